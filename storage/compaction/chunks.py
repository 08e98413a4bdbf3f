"""Reads closed segments for compaction in chunks of whole batches."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from protocol.errors import DecodeError
from protocol.records import COMPRESSION_MASK, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, BatchHeader, read_header, read_payload
from storage.compaction.plan import SourceSegment
from storage.disk import Disk
from storage.files import LOG_SUFFIX, offset_file_name


class Chunk(NamedTuple):
    """Bytes of a segment, where in them each batch begins, and where the last whole batch ends."""

    data: bytes
    batches: list[tuple[int, BatchHeader]]
    end: int


Payload = tuple[bytes, int, int]
"""The uncompressed records of a batch: the bytes that have them, and where in these they start and end. No copy of what lies in a chunk."""


def read_chunks(directory: Path, segment: SourceSegment, read_bytes: int, disk: Disk) -> Generator[Chunk, None, None]:
    """Yields the segment in pieces of whole batches, of `read_bytes` or of one larger batch. OSError when the disk fails; DecodeError
    for a batch that is not whole, or of a format before Kafka 0.11."""
    fd = disk.open(directory / offset_file_name(segment.base_offset, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        while position < segment.size_bytes:
            left_bytes = segment.size_bytes - position
            data = _pread(disk, fd, min(max(read_bytes, HEADER_SIZE), left_bytes), position)
            chunk = _divide(data)
            if chunk.end == 0:
                chunk = _divide(_pread(disk, fd, _first_batch_size(data, left_bytes), position))
            yield chunk
            position += chunk.end
    finally:
        disk.close(fd)


def _pread(disk: Disk, fd: int, size: int, position: int) -> bytes:
    data = disk.pread(fd, size, position)
    while len(data) < size:
        more = disk.pread(fd, size - len(data), position + len(data))
        if not more:
            raise DecodeError(f"a segment ends at {position + len(data)}, {size} bytes were expected at {position}")
        data += more
    return data


def _divide(data: bytes) -> Chunk:
    batches = []
    position, size = 0, len(data)
    while size - position >= HEADER_SIZE:
        header = read_header(data, position)
        end = position + LOG_OVERHEAD + header.batch_length
        if end > size:
            break
        if header.magic != MAGIC_V2:
            raise DecodeError(f"batch magic {header.magic}, only {MAGIC_V2} is supported")
        batches.append((position, header))
        position = end
    return Chunk(data, batches, position)


def _first_batch_size(data: bytes, left_bytes: int) -> int:
    size = read_header(data).size_bytes
    if size > left_bytes:
        raise DecodeError(f"a batch of {size} bytes, {left_bytes} are left in the segment")
    return size


def locate_payload(data: bytes, position: int, header: BatchHeader) -> Payload:
    """The uncompressed records of the batch at `data[position]`."""
    if not header.attributes & COMPRESSION_MASK:
        return data, position + HEADER_SIZE, position + LOG_OVERHEAD + header.batch_length
    payload = bytes(read_payload(data, position, header))
    return payload, 0, len(payload)
