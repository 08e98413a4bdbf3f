"""The five codecs of record batches: compress, and decompress into a bounded buffer.

The bytes are what Kafka's Java clients write and accept: gzip members, snappy in the xerial framing (raw snappy is read too), lz4
frames with independent 64 KB blocks, zstd frames. Every codec library is imported at its first use, to keep the start short.

Decompression trusts nothing: its output never exceeds `max_bytes` by more than one byte, whatever a frame declares, and every
corruption that a codec can see is a DecodeError.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

from .errors import DecodeError, OversizedError

Buffer = bytes | bytearray | memoryview

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
"""Uncompressed bytes per xerial block, as Kafka's SnappyOutputStream cuts them."""

LZ4_FRAME_START = struct.Struct("<IBB")
"""Magic, flags, and the size of a block."""
LZ4_MAGIC = 0x184D2204
LZ4_FLAGS_FIXED = 0b11100011
"""Version, block independence and the reserved bits; the others say what follows."""
LZ4_FLAGS_READABLE = 0b01100000
"""Version 1, independent blocks, no dictionary."""
LZ4_BLOCK_SIZES = frozenset({0x40, 0x50, 0x60, 0x70})

LZ4_DEFAULT_LEVEL = 9
"""Kafka's name for lz4's fast compressor; every other level means the high-compression one (Lz4BlockOutputStream)."""

ZSTD_WINDOW_BYTES_MAX = 1 << 27
"""The largest window a zstd decoder accepts by default; the memory one hostile frame can make us reserve."""

SNAPPY_RATIO_MAX = 22
"""Snappy's densest element gives 64 bytes for three, so that a block which declares more is corrupt."""

PIECE_BYTES_MIN = 64 * 1024
PIECE_BYTES_MAX = 1024 * 1024
"""The libraries decompress without the GIL, but copy each piece of their output with it: 32 MB at once kept it for up to 60 ms."""
EXPECTED_RATIO = 4
"""Output is asked for in pieces of this many times the input, then doubling; one is enough for ordinary data."""

_GZIP_WBITS = 31
_BLOCK_SIZE = struct.Struct(">i")


class Compression(IntEnum):
    """The codec ids in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Returns `data` compressed; `level` None or Kafka's default means the codec's default, and snappy has none."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return zlib.compress(data, -1 if level is None else level, _GZIP_WBITS)
    if codec is Compression.SNAPPY:
        return _compress_xerial(data)
    if codec is Compression.LZ4:
        return _compress_lz4(data, LZ4_DEFAULT_LEVEL if level is None else level)
    return _compress_zstd(data, 3 if level is None else level)


def decompress(codec: Compression, data: Buffer, *, max_bytes: int) -> bytes:
    """Returns the original bytes; DecodeError when they are corrupt, its OversizedError when they would be more than `max_bytes`.

    A zstd or snappy payload cut at a block's end is not always seen here: the caller checks the records inside.
    """
    try:
        pieces = _decompress_pieces(codec, data, max_bytes)
        if sum(map(len, pieces)) <= max_bytes:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)  # without the GIL where it is long
        while pieces:
            pieces.pop()  # one by one: all at once are freed with the GIL
        raise _oversized(codec, max_bytes)
    except DecodeError as error:
        kind, why = type(error), str(error)
    # Raised again, out here: an exception keeps the frames of its traceback, and so all output and a codec's window.
    raise kind(why)


def _decompress_pieces(codec: Compression, data: Buffer, max_bytes: int) -> list[bytes]:
    """The original bytes in pieces; one is the rule. Their sum exceeds `max_bytes` by one byte at most, which the caller refuses."""
    if codec is Compression.NONE:
        return [bytes(data)]
    if codec is Compression.GZIP:
        return _decompress_gzip(data, max_bytes)
    if codec is Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec is Compression.LZ4:
        return _decompress_lz4(data, max_bytes)
    return _decompress_zstd(data, max_bytes)


def _oversized(codec: Compression, max_bytes: int) -> OversizedError:
    return OversizedError(f"{codec.name.lower()} data is larger than {max_bytes} bytes when decompressed")


def _corrupt(codec: Compression, why: object) -> DecodeError:
    return DecodeError(f"corrupt {codec.name.lower()} data: {why}")


def _decompress_gzip(data: Buffer, max_bytes: int) -> list[bytes]:
    """Reads all members of the stream, as Java's GZIPInputStream does."""
    pieces: list[bytes] = []
    output_size = 0
    remaining: Buffer = data
    while True:
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            try:
                pieces.append(member.decompress(remaining, min(max_bytes + 1 - output_size, PIECE_BYTES_MAX)))
            except zlib.error as error:
                raise _corrupt(Compression.GZIP, error) from error
            output_size += len(pieces[-1])
            if output_size > max_bytes:
                return pieces
            remaining = member.unconsumed_tail
            if not pieces[-1] and not member.eof and not remaining:
                raise _corrupt(Compression.GZIP, "the stream is cut short")
        if not member.unused_data:
            return pieces
        remaining = member.unused_data


def _compress_xerial(data: Buffer) -> bytes:
    from cramjam import snappy

    output = bytearray(XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        output += _BLOCK_SIZE.pack(len(block))
        output += block
    return bytes(output)


def _decompress_snappy(data: Buffer, max_bytes: int) -> list[bytes]:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    pieces: list[bytes] = []
    output_size = 0
    position = len(XERIAL_HEADER)
    if len(view) < position:
        raise _corrupt(Compression.SNAPPY, "the xerial header is cut short")
    while position < len(view):
        if len(view) - position < _BLOCK_SIZE.size:
            raise _corrupt(Compression.SNAPPY, "a block's size is cut short")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - position:
            raise _corrupt(Compression.SNAPPY, f"a block of {size} bytes in {len(view) - position}")
        block = _decompress_snappy_block(view[position : position + size], max_bytes - output_size)
        output_size += sum(map(len, block))
        pieces += block
        position += size
    return pieces


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> list[bytes]:
    from cramjam import DecompressionError, snappy

    # The library allocates what the preamble declares, so that is checked before it runs (CVE-2023-34455).
    declared_size = _snappy_declared_size(block)
    if declared_size > max_bytes:
        raise _oversized(Compression.SNAPPY, max_bytes)
    if declared_size > SNAPPY_RATIO_MAX * len(block):
        raise _corrupt(Compression.SNAPPY, f"{len(block)} bytes can't hold {declared_size}")
    try:
        output = snappy.decompress_raw(block)
    except DecompressionError as error:
        raise _corrupt(Compression.SNAPPY, error) from error
    if declared_size <= PIECE_BYTES_MAX:
        return [bytes(output)]
    return [output.read(PIECE_BYTES_MAX) for _ in range(0, declared_size, PIECE_BYTES_MAX)]


def _snappy_declared_size(block: memoryview) -> int:
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _corrupt(Compression.SNAPPY, "no preamble")


def is_lz4_frame_of_kafka(data: Buffer, position: int = 0) -> bool:
    """Whether what is at `position` begins as every reader of Kafka's wants it (Lz4BlockInputStream): one whose blocks depend on each
    other is a frame of LZ4, but no Java consumer reads it."""
    if len(data) < position + LZ4_FRAME_START.size:
        return False
    magic, flags, block_size = LZ4_FRAME_START.unpack_from(data, position)
    return magic == LZ4_MAGIC and flags & LZ4_FLAGS_FIXED == LZ4_FLAGS_READABLE and block_size in LZ4_BLOCK_SIZES


def _compress_lz4(data: Buffer, level: int) -> bytes:
    import lz4.frame as lz4_frame

    return lz4_frame.compress(  # type: ignore[no-any-return]
        bytes(data),
        compression_level=0 if level == LZ4_DEFAULT_LEVEL else level,
        block_size=lz4_frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


def _decompress_lz4(data: Buffer, max_bytes: int) -> list[bytes]:
    import lz4.frame as lz4_frame

    if not is_lz4_frame_of_kafka(data):
        raise _corrupt(Compression.LZ4, "no frame of version 1 with independent blocks")
    decompressor = lz4_frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    output_size = 0
    pending = bytes(data)
    while not decompressor.eof and output_size <= max_bytes:
        try:
            pieces.append(decompressor.decompress(pending, max_length=_piece_size(data, output_size, max_bytes)))
        except (RuntimeError, ValueError) as error:
            raise _corrupt(Compression.LZ4, error) from error
        if not pieces[-1] and not decompressor.eof:
            raise _corrupt(Compression.LZ4, "the frame is cut short")
        output_size += len(pieces[-1])
        pending = b""
    return pieces


def _compress_zstd(data: Buffer, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def _decompress_zstd(data: Buffer, max_bytes: int) -> list[bytes]:
    import zstandard

    # `decompress(max_output_size=…)` ignores its limit when the frame declares a size, so the frame is read as a stream.
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    pieces: list[bytes] = []
    output_size = 0
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while output_size <= max_bytes and (piece := reader.read(_piece_size(data, output_size, max_bytes))):
                pieces.append(piece)
                output_size += len(piece)
    except zstandard.ZstdError as error:
        raise _corrupt(Compression.ZSTD, error) from error
    return pieces


def _piece_size(data: Buffer, output_size: int, max_bytes: int) -> int:
    """Returns how much to ask for next: the lz4 and zstd libraries allocate that much before they know whether it is there.

    Asking for the whole limit made 1 MB cost 0.5 ms instead of 0.1.
    """
    return min(max_bytes + 1 - output_size, max(PIECE_BYTES_MIN, EXPECTED_RATIO * len(data), output_size), PIECE_BYTES_MAX)
