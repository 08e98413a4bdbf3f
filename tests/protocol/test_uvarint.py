"""Unsigned varints."""

from __future__ import annotations

import pytest

from protocol.errors import DecodeError
from protocol.uvarint import read_uvarint, skip_tagged_fields, uvarint


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**32 - 1, 2**35 - 1])
def test_uvarint_comes_back(value: int) -> None:
    assert read_uvarint(b"?" + uvarint(value), 1) == (value, 1 + len(uvarint(value)))


@pytest.mark.parametrize("malformed", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01"])
def test_a_uvarint_that_ends_early_or_never_is_a_decode_error(malformed: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(malformed, 0)


def test_skipping_tagged_fields_ends_after_the_last() -> None:
    assert skip_tagged_fields(bytes.fromhex("07 01 aa 63 02 bbcc ff"), 0, 2, budget=9) == (7, 7)


def test_a_tagged_field_longer_than_the_buffer_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="longer than the buffer"):
        skip_tagged_fields(bytes.fromhex("07 02 aa"), 0, 1, budget=9)
