"""TransactionIndex: the aborted transactions whose abort markers are in one segment.

Owned by one LogSegment. The file is made with its first entry and grows by 34-byte entries, big endian: version int16 (0), producer
id, first offset, last offset (the marker's), last stable offset at the abort. Invariant: last offsets rise strictly. Readers with
isolation level read_committed get these transactions so that they can drop their records. Recovery rebuilds the file.

The entries stay on disk. In memory is a summary of each block of BLOCK_ENTRIES entries (24 bytes a block): by it a search finds the block
where it begins, and skips those that cannot have a result. A search reads the blocks that are left. The summary is made at the first
search, in steps, and kept while the segment lives; an append extends it.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from storage.disk import PRIVATE_FILE, SYSTEM_DISK, Disk
from storage.errors import CorruptFileError, StorageError, storage_errors
from storage.files import read_file, write_fully
from storage.page_cache import ColdRead, policy, read_at, waiting

CURRENT_VERSION = 0

_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
assert ENTRY_SIZE == 34
FIELDS = 5  # of an entry
_LAST_OFFSET = struct.Struct(">18xq8x")  # of an entry, alone

BLOCK_ENTRIES = 128
"""Entries of a block: 4 KB, which a search decodes in 15 µs at most."""

STEP_ENTRIES = 4096
"""Entries that are summarized at a time (0.6 ms) where a read may not wait. Then ColdRead lets others run."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction: `last_offset` is its marker's offset, `last_stable_offset` the partition's when it aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionSearch(NamedTuple):
    """The result of searching one segment's index. If it is not complete, the next segment's index must be searched too."""

    aborted: list[AbortedTransaction]
    is_complete: bool


NOTHING_FOUND = TransactionSearch([], is_complete=False)  # shared: a search's list is never changed


class _Summary:
    """Of the first `count` entries: the last block may be a part of one. The three arrays have one item for each block."""

    __slots__ = ("count", "first_offset_min", "first_offsets", "last_offsets", "stable_offset_max", "stable_offsets")

    def __init__(self) -> None:
        self.count = 0
        self.last_offsets = array("q")  # the last entry's
        self.first_offsets = array("q")  # the smallest
        self.stable_offsets = array("q")  # the largest last stable offset
        self.first_offset_min = 0  # of all entries
        self.stable_offset_max = 0

    def add(self, first_offset: int, last_offset: int, stable_offset: int, entries_count: int) -> None:
        """Add the next entries, which are in one block: the smallest first offset, the last offset of the last, the largest last stable
        offset."""
        if not self.count:
            self.first_offset_min, self.stable_offset_max = first_offset, stable_offset
        self.first_offset_min = min(self.first_offset_min, first_offset)
        self.stable_offset_max = max(self.stable_offset_max, stable_offset)
        if self.count % BLOCK_ENTRIES:
            self.last_offsets[-1] = last_offset
            self.first_offsets[-1] = min(self.first_offsets[-1], first_offset)
            self.stable_offsets[-1] = max(self.stable_offsets[-1], stable_offset)
        else:
            self.last_offsets.append(last_offset)
            self.first_offsets.append(first_offset)
            self.stable_offsets.append(stable_offset)
        self.count += entries_count


class TransactionIndex:
    """One segment's `.txnindex`; `path` follows the segment when its directory is renamed."""

    __slots__ = ("_count", "_descriptor", "_disk", "_last_offset", "_summary", "path", "start_offset")

    def __init__(self, path: Path, start_offset: int, disk: Disk = SYSTEM_DISK) -> None:
        """`start_offset` is the segment's base offset. No file is opened or created before the first append or search."""
        self.path = path
        self.start_offset = start_offset
        self._disk = disk
        self._descriptor: int | None = None
        self._last_offset: int | None = None
        self._count: int | None = None  # of whole entries; only this object changes the file
        self._summary = _Summary()

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self._descriptor is not None

    @property
    def count(self) -> int:
        """How many entries there are. Looks at the file once; StorageError when the disk fails."""
        if self._count is None:
            with storage_errors("look at", self.path):
                try:
                    self._count = self._disk.stat(self.path).st_size // ENTRY_SIZE
                except FileNotFoundError:
                    self._count = 0
        return self._count

    @property
    def unsummarized_count(self) -> int:
        """How many entries the next search has to summarize."""
        return self.count - self._summary.count

    def note_absent(self) -> None:
        """The file was looked for and is not there."""
        self._count = 0

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry, whose last offset is above those before it; StorageError when the disk refuses."""
        count = self.count
        with storage_errors("append to", self.path):
            if self._descriptor is None:
                self._open(os.O_CREAT)
            assert self._descriptor is not None
            if count and self._last_offset is None:
                with waiting():
                    self._last_offset = self._last_offset_of(count - 1)
            last_offset = self._last_offset
            assert last_offset is None or aborted.last_offset > last_offset, f"{self.path}: {aborted} is not above {last_offset}"
            if self._disk.fstat(self._descriptor).st_size != count * ENTRY_SIZE:  # torn: behind it every later entry would be shifted
                self._disk.ftruncate(self._descriptor, count * ENTRY_SIZE)
            write_fully(self._descriptor, _ENTRY.pack(CURRENT_VERSION, *aborted), self._disk)
        if self._summary.count == count:
            self._summary.add(aborted.first_offset, aborted.last_offset, aborted.last_stable_offset, 1)
        self._count = count + 1
        self._last_offset = aborted.last_offset

    def entries(self) -> list[AbortedTransaction]:
        """Returns all entries in order; a torn last one is left out; CorruptFileError for an unknown version. Reads the whole file."""
        content = read_file(self.path, self._disk) or b""
        entries = []
        for version, *fields in _ENTRY.iter_unpack(content[: len(content) - len(content) % ENTRY_SIZE]):
            self._check_version(version)
            entries.append(AbortedTransaction(*fields))
        return entries

    def collect(self, start_offset: int, end_offset: int, step_entries: int = STEP_ENTRIES) -> TransactionSearch:
        """Returns the aborted transactions with records in [start_offset, end_offset) (TransactionIndex.collectAbortedTxns).

        The search is complete at an entry whose last stable offset reaches the end: a transaction aborted later began after it.
        StorageError or CorruptFileError when the file cannot be read; ColdRead where it may not wait, for the disk or for the summary of
        more than `step_entries`."""
        count = self.count
        if not count:
            return NOTHING_FOUND
        summary = self._summary
        if summary.count < count:
            self._summarize(count, step_entries)
        if summary.first_offset_min >= end_offset > summary.stable_offset_max:
            return NOTHING_FOUND
        firsts, stables = summary.first_offsets, summary.stable_offsets
        aborted: list[AbortedTransaction] = []
        start_block = bisect_left(summary.last_offsets, start_offset)
        for block in range(start_block, len(firsts)):
            if firsts[block] >= end_offset > stables[block]:
                continue
            entries = self._read(block * BLOCK_ENTRIES, min(BLOCK_ENTRIES, count - block * BLOCK_ENTRIES))
            skipped = _find_entry(entries, start_offset) if block == start_block else 0
            for _, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(memoryview(entries)[skipped:]):
                if first_offset < end_offset:
                    aborted.append(AbortedTransaction(producer_id, first_offset, last_offset, stable_offset))
                if stable_offset >= end_offset:
                    return TransactionSearch(aborted, is_complete=True)
        return TransactionSearch(aborted, is_complete=False)

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose markers are at or above `offset`."""
        with waiting():
            keep = bisect_left(range(self.count), offset, key=self._last_offset_of)
        if keep < self.count:
            self._cut(keep)

    def reset(self) -> None:
        """Drops every entry, before recovery writes them again."""
        if self._disk.exists(self.path):
            self._cut(0)

    def close(self) -> None:
        """Free the descriptor; the next append or search opens the file again."""
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None

    def _cut(self, count: int) -> None:
        with storage_errors("truncate", self.path):
            self._disk.truncate(self.path, count * ENTRY_SIZE)
        self._count = count
        self._last_offset = None
        self._summary = _Summary()

    def _last_offset_of(self, number: int) -> int:
        """Returns the last offset of the entry with that number."""
        offset: int = _LAST_OFFSET.unpack(self._read(number, 1))[0]
        return offset

    def _summarize(self, count: int, step_entries: int) -> None:
        """Extend the summary to all entries; where that may not wait, by `step_entries` at most, then ColdRead for the next ones."""
        summary = self._summary
        step_end = count if policy.may_wait else min(count, summary.count + max(step_entries, 0))
        while summary.count < step_end:
            entries = self._read(summary.count, min(BLOCK_ENTRIES - summary.count % BLOCK_ENTRIES, step_end - summary.count))
            entries_count = len(entries) // ENTRY_SIZE
            fields = struct.unpack(">" + "hqqqq" * entries_count, entries)  # at once: a third less than entry by entry
            self._check_version(max(fields[::FIELDS]))
            summary.add(min(fields[2::FIELDS]), fields[-2], max(fields[4::FIELDS]), entries_count)
        if step_end < count:
            with storage_errors("open", self.path):
                if self._descriptor is None:
                    self._open()
            assert self._descriptor is not None
            size = min(count - step_end, STEP_ENTRIES) * ENTRY_SIZE
            raise ColdRead(self._descriptor, step_end * ENTRY_SIZE, size, self._disk)

    def _read(self, first: int, entries_count: int) -> bytes:
        """Returns the bytes of these entries. StorageError, ColdRead."""
        with storage_errors("read", self.path):
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            size = entries_count * ENTRY_SIZE
            content = read_at(self._descriptor, size, first * ENTRY_SIZE, self._disk)
        if len(content) < size:
            raise StorageError(f"{self.path} ends before its entry {first + entries_count}", path=self.path)
        return content

    def _open(self, flags: int = 0) -> None:
        self._descriptor = self._disk.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, PRIVATE_FILE)

    def _check_version(self, version: int) -> None:
        if version > CURRENT_VERSION:
            raise CorruptFileError(f"{self.path}: unknown transaction index version {version}", path=self.path)


def _find_entry(entries: bytes, offset: int) -> int:
    """Returns the position of the first entry whose last offset is `offset` or above; the size if there is none."""
    low, high = 0, len(entries) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        if _LAST_OFFSET.unpack_from(entries, middle * ENTRY_SIZE)[0] < offset:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_SIZE
