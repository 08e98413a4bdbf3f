"""The record batches of a segment file, one after another."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from ...protocol.errors import DecodeError
from ...protocol.records import MAGIC_V2, BatchHeader, iterate_headers
from ..errors import BarnabasError

LOOKED_AT_BYTES = 4096
"""After the last batch: zeros there are what a preallocated file ends with."""


class DamagedError(BarnabasError):
    """A file does not have what a log has."""


def iterate_batches(segment: Path) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields the position, the header and the bytes of each whole batch: `check_end` judges what follows the last one. DamagedError for a
    batch that is none, and for a segment that retention or compaction has removed meanwhile."""
    data = _map(segment)
    end = 0
    try:
        for position, header in iterate_headers(data):
            if header.magic != MAGIC_V2:
                raise DamagedError(f"{segment} has records of format {header.magic} at byte {position}: only 2 can be read")
            end = position + header.size_bytes
            yield position, header, data[position:end]
    except DecodeError as error:
        if any(data[end : end + LOOKED_AT_BYTES]):
            raise DamagedError(f"{segment} is damaged at byte {end}: {error}") from error


def check_end(segment: Path, size_bytes: int, next_offset: int, end: int | None, *, is_last: bool) -> None:
    """Whether the whole batches, of `size_bytes` and up to `next_offset`, are all that the segment must have. In the last segment of a log
    a batch may be under way behind `end`, the offset that is read to. Raises DamagedError."""
    rest = _map(segment)[size_bytes : size_bytes + LOOKED_AT_BYTES]
    if not is_last and any(rest):
        raise DamagedError(f"{segment} is damaged: a batch is cut at byte {size_bytes}, offset {next_offset}")
    if is_last and end is not None and next_offset < end:
        raise DamagedError(f"{segment} is damaged: it ends at offset {next_offset}, and the log at {end} or later")


def _map(segment: Path) -> memoryview:
    try:
        with segment.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise DamagedError(f"{segment} is gone: retention or compaction removed it while it was read") from None
