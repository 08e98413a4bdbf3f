"""Every codec reads what it wrote and what Kafka's clients write, and its output is bounded whatever the input declares."""

from __future__ import annotations

import os
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from protocol.compression import PIECE_BYTES_MAX, XERIAL_HEADER, Compression, compress, decompress
from protocol.errors import DecodeError

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TEXT = b"and Barnabas took Mark with him " * 5000


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(70_000)], ids=["empty", "one byte", "text", "random"])
def test_round_trip_gives_the_data_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", list(Compression))
def test_output_larger_than_the_limit_is_refused(codec: Compression) -> None:
    compressed = compress(codec, TEXT)

    with pytest.raises(DecodeError, match="larger than"):
        decompress(codec, compressed, max_bytes=len(TEXT) - 1)


LONG = TEXT * (3 * PIECE_BYTES_MAX // len(TEXT) + 1)
LONG_SIZES = [PIECE_BYTES_MAX - 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 3 * PIECE_BYTES_MAX]


@pytest.mark.parametrize("size", LONG_SIZES)
@pytest.mark.parametrize("codec", CODECS)
def test_data_of_several_pieces_comes_back_whole_or_is_refused(codec: Compression, size: int) -> None:
    data = LONG[:size]
    compressed = compress(codec, data)

    assert decompress(codec, compressed, max_bytes=size) == data
    with pytest.raises(DecodeError, match="larger than"):
        decompress(codec, compressed, max_bytes=size - 1)


@pytest.mark.parametrize("size", LONG_SIZES)
def test_a_raw_snappy_block_of_several_pieces_comes_back_whole(size: int) -> None:
    assert decompress(Compression.SNAPPY, bytes(snappy.compress_raw(LONG[:size])), max_bytes=size) == LONG[:size]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
def test_data_of_several_pieces_whose_end_is_missing_is_corrupt(codec: Compression) -> None:
    compressed = compress(codec, LONG)

    with pytest.raises(DecodeError, match="corrupt"):
        decompress(codec, compressed[:-20], max_bytes=len(LONG))


@pytest.mark.parametrize("codec", CODECS)
def test_decompressing_leaves_other_threads_running(codec: Compression) -> None:
    """No call into a library copies all of a bomb's output at once, which it would do with the GIL. Seen as memory: the output in
    pieces, and no piece beside them that is larger than the others."""
    compressed = compress(codec, bytes(16 * PIECE_BYTES_MAX))

    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="larger than"):
            decompress(codec, compressed, max_bytes=8 * PIECE_BYTES_MAX)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * PIECE_BYTES_MAX + 3 * PIECE_BYTES_MAX


def test_zstd_frame_that_declares_a_huge_size_does_not_escape_the_limit() -> None:
    """zstandard's own max_output_size is ignored when the frame declares its size."""
    bomb = zstandard.ZstdCompressor().compress(bytes(256 * 1024 * 1024))

    with pytest.raises(DecodeError, match="larger than"):
        decompress(Compression.ZSTD, bomb, max_bytes=1024)


def test_raw_snappy_that_declares_a_huge_size_is_refused_before_it_is_allocated() -> None:
    """CVE-2023-34455: the declared size was trusted."""
    with pytest.raises(DecodeError, match="larger than"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 10, max_bytes=1024)


@pytest.mark.parametrize("codec", list(Compression))
def test_a_kept_refusal_keeps_none_of_the_output(codec: Compression) -> None:
    """Its traceback holds the frames that it passed, and their locals."""
    compressed = compress(codec, bytes(8 << 20))
    tracemalloc.start()

    with pytest.raises(DecodeError) as refusal:
        decompress(codec, compressed, max_bytes=(8 << 20) - 1)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert refusal.value.__traceback__ is not None
    assert kept < 1 << 20


def test_a_snappy_block_that_declares_more_than_it_can_hold_is_refused_before_it_is_allocated() -> None:
    block = bytearray(snappy.compress_raw(bytes(100)))
    block[:1] = b"\x80\x80\x80\x04"  # 8 MiB

    with pytest.raises(DecodeError, match="can't hold 8388608"):
        decompress(Compression.SNAPPY, bytes(block), max_bytes=1 << 30)


def test_raw_snappy_without_framing_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(snappy.compress_raw(TEXT)), max_bytes=len(TEXT)) == TEXT


def test_snappy_is_written_in_blocks_of_the_xerial_framing() -> None:
    compressed = compress(Compression.SNAPPY, TEXT)

    first_size = int.from_bytes(compressed[16:20], "big")
    assert compressed[:16] == XERIAL_HEADER
    assert bytes(snappy.decompress_raw(compressed[20 : 20 + first_size])) == TEXT[: 32 * 1024]


def test_lz4_frame_has_independent_64_kb_blocks() -> None:
    """Kafka's reader refuses linked blocks (Lz4BlockInputStream)."""
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, TEXT))

    assert info["block_linked"] is False
    assert info["block_size"] == 64 * 1024
    assert info["content_size"] == 0


def test_lz4_blocks_that_depend_on_each_other_are_corrupt() -> None:
    linked = lz4.frame.compress(TEXT, block_linked=True)
    assert lz4.frame.decompress(linked) == TEXT

    with pytest.raises(DecodeError, match="independent blocks"):
        decompress(Compression.LZ4, linked, max_bytes=len(TEXT))


def test_gzip_of_several_members_is_read_to_its_end() -> None:
    members = zlib.compress(b"one", wbits=31) + zlib.compress(b"two", wbits=31)

    assert decompress(Compression.GZIP, members, max_bytes=6) == b"onetwo"


def test_zstd_of_several_frames_is_read_to_its_end() -> None:
    frames = compress(Compression.ZSTD, b"one") + compress(Compression.ZSTD, b"two")

    assert decompress(Compression.ZSTD, frames, max_bytes=6) == b"onetwo"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_accepted(codec: Compression, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
def test_every_strict_prefix_of_a_checked_stream_is_corrupt(codec: Compression) -> None:
    compressed = compress(codec, TEXT[:200])

    for size in range(len(compressed)):
        with pytest.raises(DecodeError):
            decompress(codec, compressed[:size], max_bytes=1000)


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=200))
def test_arbitrary_bytes_decompress_or_are_a_decode_error(codec: Compression, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, max_bytes=1000)) <= 1000
    except DecodeError:
        return


@given(codec=st.sampled_from(CODECS), position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_is_a_decode_error_or_bounded_output(codec: Compression, position: int, value: int) -> None:
    compressed = bytearray(compress(codec, TEXT[:2000]))
    compressed[position % len(compressed)] = value

    try:
        assert len(decompress(codec, compressed, max_bytes=4000)) <= 4000
    except DecodeError:
        return
