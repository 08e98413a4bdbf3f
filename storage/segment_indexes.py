"""The three indexes of one segment, and its largest timestamp, which is the last entry of the time index.

They are a cache of the batches: missing or wrong ones are rebuilt from the batches' headers. Owner: LogSegment, which decides when they are
loaded; recovery and the cleaner write through it. Errors come out as OSError, StorageError or CorruptIndexError.
"""

from __future__ import annotations

from pathlib import Path

from config.topic import LogConfig
from protocol.records import BatchHeader
from storage.disk import Disk
from storage.index import NO_TIMESTAMP, OffsetIndex, TimeEntry, TimeIndex
from storage.page_cache import ColdRead
from storage.transaction_index import TransactionIndex


class SegmentIndexes:
    """See the module's docstring. `max_timestamp` is None in a closed segment until it is first needed."""

    __slots__ = (
        "_bytes_since_entry",
        "_interval_bytes",
        "base_offset",
        "max_timestamp",
        "offset_index",
        "offset_of_max_timestamp",
        "time_index",
        "transaction_index",
    )

    def __init__(self, paths: tuple[Path, Path, Path], base_offset: int, config: LogConfig, disk: Disk) -> None:
        offsets, times, transactions = paths
        self.base_offset = base_offset
        self.offset_index = OffsetIndex(offsets, base_offset, config.segment_index_bytes, disk)
        self.time_index = TimeIndex(times, base_offset, config.segment_index_bytes, disk)
        self.transaction_index = TransactionIndex(transactions, base_offset, disk)
        self.max_timestamp: int | None = None
        self.offset_of_max_timestamp = base_offset
        self._interval_bytes = config.index_interval_bytes
        self._bytes_since_entry = 0

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        """The paths of the offset index, the time index and the transaction index."""
        return self.offset_index.path, self.time_index.path, self.transaction_index.path

    def note_renamed(self, paths: tuple[Path, Path, Path]) -> None:
        self.offset_index.path, self.time_index.path, self.transaction_index.path = paths

    # -- writing ---------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Start empty, in memory and on disk."""
        self.offset_index.create()
        self.time_index.create()
        self.max_timestamp = NO_TIMESTAMP

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Record a written batch: largest timestamp, index entries."""
        if self.max_timestamp is None or max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_entry > self._interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size

    def close_time_index(self) -> None:
        """End the time index with the segment's largest timestamp."""
        if self.max_timestamp is not None and self.max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)

    def write_out(self) -> None:
        """Write out the entries that are only in memory."""
        self.offset_index.write_out()
        self.time_index.write_out()

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or past `offset`."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._bytes_since_entry = 0

    # -- rebuilding ------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Drop the entries of the offset and the time index: `note_batch` for each batch and `finish_rebuild` follow."""
        self.offset_index.reset()
        self.time_index.reset()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._bytes_since_entry = 0

    def finish_rebuild(self) -> None:
        """Write the indexes out, after `note_batch` for every batch."""
        self.close_time_index()
        self.write_out()

    # -- reading ---------------------------------------------------------------------------------------------------

    def load(self, log_size_bytes: int, *, is_active: bool) -> None:
        """Load both from their files. CorruptIndexError when they are missing or invalid. After a ColdRead nothing is loaded."""
        try:
            self.offset_index.load(is_active=is_active)
            self.time_index.load(is_active=is_active)
            self.offset_index.check(log_size_bytes)
            self.time_index.check()
        except ColdRead:
            self.offset_index.drop()  # loaded, but not checked yet
            self.time_index.drop()
            raise

    def take_last_entry(self) -> TimeEntry:
        """Set the largest timestamp from the time index's last entry, which closing a segment writes. Returns the entry."""
        entry = self.time_index.last_entry
        self.max_timestamp, self.offset_of_max_timestamp = entry
        return entry

    def note_timestamp(self, header: BatchHeader) -> None:
        """Update the largest timestamp by a batch that may be behind the last entry of the time index."""
        assert self.max_timestamp is not None
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset

    # -- descriptors and memory ------------------------------------------------------------------------------------

    def unload(self) -> None:
        """Write out, then free memory and descriptors."""
        self.offset_index.unload()
        self.time_index.unload()
        self.transaction_index.close()

    def drop(self) -> None:
        """Free memory and descriptors without writing."""
        self.offset_index.drop()
        self.time_index.drop()
        self.transaction_index.close()
