"""The two sparse indexes of a segment: offset to file position, and timestamp to offset.

Invariants: entries ascend strictly (the offsets of a time index may repeat); the file holds exactly the entries, never a preallocated tail.
An index is a cache: a missing tail costs a longer scan, and a corrupt one is rebuilt from the batches. So new entries are kept in memory
and written in groups. The index of the active segment is in memory. That of a closed one is searched in its file by single reads (18 reads
of cached pages for the largest index). So open segments take no memory, and a disk error is an exception; with a memory mapping it would
end the process. Owner: LogSegment. Errors come out as OSError or CorruptIndexError.

Formats (Kafka's OffsetIndex and TimeIndex): int32 offset - base, int32 position of that batch; int64 timestamp, int32 offset - base.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple

from storage.disk import PRIVATE_FILE, SYSTEM_DISK, Disk
from storage.page_cache import read_at

logger = logging.getLogger("barnabas.storage")

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
UNWRITTEN_LIMIT = 256  # entries kept in memory before they are written: at Kafka's 4 KiB interval one write per MiB of data
NO_TIMESTAMP = -1


class CorruptIndexError(Exception):
    """An index file is invalid; its segment rebuilds it. Never leaves storage/."""


class TimeEntry(NamedTuple):
    """No record up to `offset` is younger than `timestamp`."""

    timestamp: int
    offset: int


class SegmentIndex:
    """The base of both indexes: an array of fixed-size entries, loaded at first use and written in groups."""

    __slots__ = ("_disk", "_entries", "_fd", "_written", "base_offset", "entries_count", "entries_max", "path")
    entry: ClassVar[Struct]
    spare_entries: ClassVar[int] = 0

    def __init__(self, path: Path, base_offset: int, max_bytes: int, disk: Disk = SYSTEM_DISK) -> None:
        self.path = path
        self._disk = disk
        self.base_offset = base_offset
        self.entries_max = max_bytes // self.entry.size - self.spare_entries  # then it is full, and the segment must be rolled
        self._entries: bytearray | None = None  # of an active segment
        self._fd = -1  # of a closed one
        self.entries_count = 0
        self._written = 0  # entries in the file; -1 when the file must be replaced

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None or self._fd >= 0

    def create(self) -> None:
        """Start empty, in memory and on disk."""
        self.reset()
        self.write_out()

    def load(self, *, is_active: bool) -> None:
        """Read the file of an active segment into memory; only open that of a closed one. CorruptIndexError when it is missing or torn."""
        self.drop()
        try:
            fd = self._disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{self.path} is missing") from error
        self._fd = fd
        size = self._disk.fstat(fd).st_size
        if size % self.entry.size:
            raise CorruptIndexError(f"{self.path} has {size} bytes, no multiple of {self.entry.size}")
        self.entries_count = self._written = size // self.entry.size
        if is_active:
            entries = bytearray(self._disk.pread(fd, size, 0))
            self._close_file()
            if len(entries) != size:
                raise CorruptIndexError(f"{self.path} could be read to {len(entries)} of {size} bytes only")
            self._entries = entries

    def reset(self) -> None:
        """Drop every entry; the next write replaces the file. A rebuild starts with it."""
        self._close_file()
        self._entries = bytearray()
        self.entries_count = 0
        self._written = -1

    def write_out(self) -> None:
        """Append the entries that are only in memory to the file, before an fsync or another reader."""
        if self._entries is None or self._written == self.entries_count:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if self._written < 0 else 0)
        start = max(self._written, 0) * self.entry.size
        fd = self._disk.open(self.path, flags, PRIVATE_FILE)
        try:
            written = self._disk.pwrite(fd, memoryview(self._entries)[start:], start)
        finally:
            self._disk.close(fd)
        if start + written != len(self._entries):
            raise OSError(f"short write to {self.path}")
        self._written = self.entries_count

    def unload(self) -> None:
        """Write out and free the memory or the descriptor; the next use loads it again."""
        self.write_out()
        self.drop()

    def drop(self) -> None:
        """Free the memory or the descriptor without writing."""
        self._close_file()
        self._entries = None

    def _close_file(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def _unpack(self, slot: int) -> tuple[int, int]:
        entries, size = self._entries, self.entry.size
        if entries is not None:
            key, value = self.entry.unpack_from(entries, slot * size)
        else:
            # A search reads all over the file, so a cold read brings in all of it.
            key, value = self.entry.unpack(read_at(self._fd, size, slot * size, self._disk, missing=(0, self.entries_count * size)))
        return key, value

    def _field(self, place: int) -> Callable[[int], int]:
        """Returns a function from a slot to its entry's key (0) or value (1), for a search; in memory it takes half the time of
        `_unpack`."""
        entries, size, unpack_from = self._entries, self.entry.size, self.entry.unpack_from
        if entries is None:
            return lambda slot: self._unpack(slot)[place]
        return lambda slot: unpack_from(entries, slot * size)[place]

    def _append(self, packed: bytes) -> None:
        entries = self._entries
        assert entries is not None, "only the index of an active segment grows"
        entries += packed
        self.entries_count += 1
        if self.entries_count - self._written >= UNWRITTEN_LIMIT:
            try:
                self.write_out()
            except OSError as error:
                # The batch is written, so the append succeeds. The entries stay in memory, and the next flush, which needs them on disk,
                # fails.
                logger.warning("cannot write %s: %s", self.path, error)

    def _keep(self, count: int) -> None:
        """Cut to the first `count` entries, in memory and on disk."""
        entries = self._entries
        assert entries is not None, "only the index of an active segment is cut"
        if count == self.entries_count:
            return
        del entries[count * self.entry.size :]
        self.entries_count = count
        if self._written > count:
            self._disk.truncate(self.path, count * self.entry.size)
            self._written = count


class OffsetIndex(SegmentIndex):
    """Last offset of a batch to the batch's position, one entry per index.interval.bytes."""

    __slots__ = ()
    entry = OFFSET_ENTRY

    @property
    def last_position(self) -> int:
        """The position of the last indexed batch; 0 without entries."""
        return self._unpack(self.entries_count - 1)[1] if self.entries_count else 0

    def check(self, log_size_bytes: int) -> None:
        """CorruptIndexError for the results of an unclean stop: zeros behind the entries, or entries past the data."""
        if self.entries_count == 0:
            return
        first_offset, first_position = self._unpack(0)
        last_offset, last_position = self._unpack(self.entries_count - 1)
        ascends = self.entries_count == 1 or (last_offset > first_offset and last_position > first_position)
        # A batch at position 0 is never indexed, so a zero can only be an unwritten entry.
        if not ascends or first_position <= 0 or not 0 < last_position < log_size_bytes or first_offset < 0:
            raise CorruptIndexError(f"{self.path} does not ascend within the segment's {log_size_bytes} bytes")

    def append(self, last_offset: int, position: int) -> None:
        self._append(OFFSET_ENTRY.pack(last_offset - self.base_offset, position))

    def find_position(self, offset: int) -> int:
        """Position of the last indexed batch that ends at or before `offset`, 0 when there is none."""
        relative = offset - self.base_offset
        slot = bisect_right(range(self.entries_count), relative, key=self._field(0))
        return self._unpack(slot - 1)[1] if slot else 0

    def find_boundary(self, position: int) -> int:
        """The last indexed position at or before `position`, 0 when there is none: a batch starts there."""
        slot = bisect_right(range(self.entries_count), position, key=self._field(1))
        return self._unpack(slot - 1)[1] if slot else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or past `offset`."""
        self._keep(bisect_left(range(self.entries_count), offset - self.base_offset, key=self._field(0)))


class TimeIndex(SegmentIndex):
    """Largest timestamp so far to the last offset of the batch that has it."""

    __slots__ = ()
    entry = TIME_ENTRY
    spare_entries = 1  # kept free for the entry that closing a segment adds

    @property
    def last_entry(self) -> TimeEntry:
        return self._entry_at(self.entries_count - 1) if self.entries_count else TimeEntry(NO_TIMESTAMP, self.base_offset)

    def check(self) -> None:
        """CorruptIndexError when the ends of the file are out of order, as with a zero tail."""
        if self.entries_count == 0:
            return
        first, last = self._entry_at(0), self._entry_at(self.entries_count - 1)
        if self.entries_count > 1 and (last.timestamp <= first.timestamp or last.offset < first.offset):
            raise CorruptIndexError(f"{self.path} does not ascend")
        if first.offset < self.base_offset or first == TimeEntry(0, self.base_offset):
            raise CorruptIndexError(f"{self.path} starts with {first}")

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the last one has the same or a later timestamp."""
        if timestamp > self.last_entry.timestamp:
            self._append(TIME_ENTRY.pack(timestamp, offset - self.base_offset))

    def find_entry(self, timestamp: int) -> TimeEntry:
        """The last entry at or before `timestamp`; (-1, base offset) when there is none."""
        slot = bisect_right(range(self.entries_count), timestamp, key=self._field(0))
        return self._entry_at(slot - 1) if slot else TimeEntry(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or past `offset`."""
        self._keep(bisect_left(range(self.entries_count), offset - self.base_offset, key=self._field(1)))

    def _entry_at(self, slot: int) -> TimeEntry:
        timestamp, relative = self._unpack(slot)
        return TimeEntry(timestamp, self.base_offset + relative)
