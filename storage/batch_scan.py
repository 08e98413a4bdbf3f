"""Walks the batches of a segment's file by their headers. It verifies no checksum: recovery does that once."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from protocol.errors import DecodeError
from protocol.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from storage.errors import StorageError
from storage.file_slice import SegmentFile, read_exactly

SCAN_BYTES = 16 * 1024  # one read while looking for a batch: an index interval and a header more, or the next long batch

_SCAN = Struct(">qi11xi")  # base offset, batch length, (epoch, magic, crc, attributes), last offset delta


def iterate_batches(file: SegmentFile, size_bytes: int, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `position`, a boundary, to `size_bytes`. StorageError for a malformed one."""
    fd, disk = file.fd, file.disk
    while position < size_bytes:
        chunk = read_exactly(fd, min(SCAN_BYTES, size_bytes - position), position, disk)
        inside = 0
        while inside + HEADER_SIZE <= len(chunk):
            header = _read_header(file, chunk, inside)
            yield position + inside, header
            inside += header.size_bytes
        if inside == 0:
            raise StorageError(f"{file.path} ends inside a batch header at {position}")
        position += inside


def scan_batches(file: SegmentFile, size_bytes: int, position: int) -> Iterator[tuple[int, int, int]]:
    """(position, end position, last offset) of each batch from `position`: `iterate_batches` without header objects."""
    fd, disk = file.fd, file.disk
    while position < size_bytes:
        chunk = read_exactly(fd, min(SCAN_BYTES, size_bytes - position), position, disk)
        inside, usable = 0, len(chunk) - HEADER_SIZE
        while inside <= usable:
            base_offset, length, last_offset_delta = _SCAN.unpack_from(chunk, inside)
            batch_end = inside + length + LOG_OVERHEAD
            if length + LOG_OVERHEAD < HEADER_SIZE:
                raise StorageError(f"{file.path} has a batch of length {length} at {position + inside}")
            yield position + inside, position + batch_end, base_offset + last_offset_delta
            inside = batch_end
        if inside == 0:
            raise StorageError(f"{file.path} ends inside a batch header at {position}")
        position += inside


def read_batch_header(file: SegmentFile, position: int) -> BatchHeader:
    """The header of the batch at `position`. StorageError when it is malformed."""
    return _read_header(file, read_exactly(file.fd, HEADER_SIZE, position, file.disk), 0)


def _read_header(file: SegmentFile, chunk: bytes, position: int) -> BatchHeader:
    try:
        return read_header(chunk, position)
    except DecodeError as error:
        raise StorageError(f"{file.path} holds a malformed batch: {error}", path=file.path) from error
