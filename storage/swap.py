"""Finishes or undoes a deletion or a replacement of segments that a kill has interrupted, before a log is opened (LogLoader's first
passes).

`.deleted` files are deleted. `.cleaned` files belong to segments that were being written or are only partly renamed: they are deleted with
the `.swap` files of the same replacement, and the old segments stay. `.swap` files without `.cleaned` files are complete: they replace the
rest of the old segments. After a kill in here the next start continues. See LocalLog.replace_segments.
"""

from __future__ import annotations

from pathlib import Path

from storage.batch_scan import iterate_batches
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.file_slice import SegmentFile
from storage.files import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, find_offset

_SWAPPED_LOG = LOG_SUFFIX + SWAP_SUFFIX


def remove_leftovers(directory: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Finish or undo interrupted work. OSError or StorageError when the disk fails."""
    cleaned: list[Path] = []
    swaps: list[Path] = []
    for name in sorted(entry.name for entry in disk.scan(directory)):
        if name.endswith(DELETED_SUFFIX):
            disk.unlink(directory / name)
        elif name.endswith(CLEANED_SUFFIX):
            cleaned.append(directory / name)
        elif name.endswith(SWAP_SUFFIX):
            swaps.append(directory / name)
    if cleaned:
        # They became .swap files from the last to the first, so those above a .cleaned file are of the same unfinished replacement
        # (KAFKA-6264). The .cleaned files are deleted last, because they are the sign of it.
        first_cleaned_offset = min(_offset_of(path) for path in cleaned)
        unfinished = [path for path in swaps if _offset_of(path) >= first_cleaned_offset]
        for path in (*unfinished, *cleaned):
            disk.unlink(path)
        swaps = [path for path in swaps if path not in unfinished]
    if swaps:
        _complete(directory, swaps, disk)


def _complete(directory: Path, swaps: list[Path], disk: Disk) -> None:
    """Replace the source segments of the swapped ones, which may still exist."""
    logs = [path for path in swaps if path.name.endswith(_SWAPPED_LOG)]
    first_offset = min((_offset_of(path) for path in logs), default=0)
    end_offset = max((_end_offset_of(path, disk) for path in logs), default=0)
    for name, _ in disk.scan(directory):
        for suffix in SEGMENT_SUFFIXES:
            offset = find_offset(name, suffix)
            if offset is not None and first_offset <= offset < end_offset:
                disk.unlink(directory / name)
    # The .log files first: the next start would take an index with its final name for one of an old segment.
    for path in (*logs, *(path for path in swaps if path not in logs)):
        disk.replace(path, path.with_name(path.name.removesuffix(SWAP_SUFFIX)))


def _end_offset_of(path: Path, disk: Disk) -> int:
    file = SegmentFile.open(path, disk=disk)
    try:
        end_offset = _offset_of(path)
        for _, header in iterate_batches(file, disk.fstat(file.fd).st_size):
            end_offset = header.next_offset
        return end_offset
    finally:
        file.release()


def _offset_of(path: Path) -> int:
    try:
        return int(path.name.partition(".")[0])
    except ValueError as error:
        raise StorageError(f"{path} is no segment file", path=path) from error
