"""Four bytes where a size should be: named where they are another protocol's, else told as the number that they are."""

from __future__ import annotations

import struct

import pytest

from protocol.errors import DecodeError
from protocol.foreign_protocols import ForeignProtocolError
from protocol.framing import BufferPool, FrameAssembler

MAX_FRAME_SIZE = 104_857_600


def refusal_of(start: bytes) -> DecodeError:
    pool = BufferPool()
    assembler = FrameAssembler(lambda frame: True, max_frame_size=MAX_FRAME_SIZE, pool=pool)
    assembler.get_buffer()[: len(start)] = start
    with pytest.raises(DecodeError) as caught:
        assembler.buffer_updated(len(start))
    return caught.value


@pytest.mark.parametrize("version", [b"\x03\x01", b"\x03\x03"])
def test_a_client_hello_is_told_from_a_size(version: bytes) -> None:
    error = refusal_of(b"\x16" + version + b"\x02\x00\x01\x00\x01\xfc\x03\x03")

    assert isinstance(error, ForeignProtocolError)
    assert str(error) == "looks like TLS: this listener is PLAINTEXT"


@pytest.mark.parametrize("verb", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH", "TRACE"])
def test_a_verb_of_http_is_told_from_a_size(verb: str) -> None:
    error = refusal_of(f"{verb} / HTTP/1.1\r\nHost: broker\r\n\r\n".encode())

    assert isinstance(error, ForeignProtocolError)
    assert str(error) == "looks like HTTP: this listener speaks Kafka's protocol"


def test_ssh_is_told_from_a_size() -> None:
    assert str(refusal_of(b"SSH-2.0-OpenSSH_9.6\r\n")) == "looks like SSH: this listener speaks Kafka's protocol"


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, MAX_FRAME_SIZE + 1])
def test_any_other_size_is_told_as_a_number(size: int) -> None:
    error = refusal_of(struct.pack(">i", size) + b"HTTP")

    assert not isinstance(error, ForeignProtocolError)
    assert str(error) == f"frame of {size} bytes; at most {MAX_FRAME_SIZE} are accepted"
