"""Frames out of a byte stream: whole frames whatever the cuts, large ones received in place, bad sizes refused."""

from __future__ import annotations

import random
import struct

import pytest

from protocol.errors import DecodeError
from protocol.framing import FIRST_ALLOCATION_MAX, POOLED_BUFFER_SIZE, BufferPool, FrameAssembler, decode_client_id, skip_tags

MAX_FRAME_SIZE = 8 * 1024 * 1024


class Receiver:
    """An assembler and the copies of the frames that it handed out."""

    def __init__(self, *, takes: int = 1_000_000) -> None:
        self.frames: list[bytes] = []
        self.takes = takes
        self.pool = BufferPool()
        self.assembler = FrameAssembler(self._frame, max_frame_size=MAX_FRAME_SIZE, pool=self.pool)

    def _frame(self, frame: memoryview) -> bool:
        self.frames.append(bytes(frame))
        return len(self.frames) < self.takes

    def feed(self, data: bytes, cut: int = 65536) -> None:
        while data:
            view = self.assembler.get_buffer()
            count = min(len(view), len(data), cut)
            assert count > 0
            view[:count] = data[:count]
            self.assembler.buffer_updated(count)
            data = data[count:]


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.mark.parametrize("cut", [1, 3, 4, 7, 1000, 65536])
def test_frames_come_out_whole_whatever_the_cuts(cut: int) -> None:
    bodies = [b"", b"a", b"bc" * 50, random.Random(7).randbytes(5000), b"end"]
    receiver = Receiver()

    receiver.feed(framed(*bodies), cut)

    assert receiver.frames == bodies
    assert not receiver.assembler.has_partial_frame


@pytest.mark.parametrize("size", [65531, 65532, 65533, 70_000, FIRST_ALLOCATION_MAX, POOLED_BUFFER_SIZE, POOLED_BUFFER_SIZE + 1, 5_000_000])
def test_large_frames_between_small_ones_arrive_intact(size: int) -> None:
    large = random.Random(size).randbytes(size)
    receiver = Receiver()

    receiver.feed(framed(b"before", large, b"after"))

    assert receiver.frames == [b"before", large, b"after"]


def test_a_large_frame_is_received_into_its_own_buffer_to_its_exact_end() -> None:
    receiver = Receiver()
    receiver.feed(struct.pack(">i", 100_000) + b"x" * 10)

    assert len(receiver.assembler.get_buffer()) == 100_000 - 10


def test_a_declared_size_is_not_allocated_before_its_bytes_arrive() -> None:
    receiver = Receiver()

    receiver.feed(struct.pack(">i", MAX_FRAME_SIZE) + b"x")

    assert receiver.assembler.held_size == FIRST_ALLOCATION_MAX


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_SIZE + 1, 2**31 - 1])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(DecodeError):
        Receiver().feed(struct.pack(">i", size))


def test_frames_already_received_wait_until_resume() -> None:
    receiver = Receiver(takes=1)
    receiver.feed(framed(b"one", b"two", b"three"))
    assert receiver.frames == [b"one"]

    receiver.takes = 10
    receiver.assembler.resume()

    assert receiver.frames == [b"one", b"two", b"three"]


def test_a_pooled_buffer_is_used_again() -> None:
    receiver = Receiver()
    receiver.feed(framed(b"x" * 100_000))
    receiver.feed(struct.pack(">i", 100_000) + b"y")

    assert receiver.assembler.held_size == POOLED_BUFFER_SIZE
    assert len(receiver.pool._free) == 0


def test_client_id_as_text() -> None:
    assert decode_client_id(memoryview(b"kcat!"), 5) == "kcat!"
    assert decode_client_id(memoryview(b""), -1) == ""


@pytest.mark.parametrize(("raw", "declared_size"), [(b"abc", 4), (b"", -2), (b"\xff", 1)])
def test_a_bad_client_id_is_a_decode_error(raw: bytes, declared_size: int) -> None:
    with pytest.raises(DecodeError):
        decode_client_id(memoryview(raw), declared_size)


@pytest.mark.parametrize("tags", [b"", b"\x11" + b"\x00\x00" * 17, b"\x01\x00\x05ab", b"\xff\xff\xff\xff\xff\x01", b"\x80"])
def test_bad_header_tags_are_a_decode_error(tags: bytes) -> None:
    with pytest.raises(DecodeError):
        skip_tags(memoryview(tags), 0)


def test_unknown_header_tags_are_skipped() -> None:
    assert skip_tags(memoryview(b"\x02\x00\x01a\x07\x02bcBODY"), 0) == 8
