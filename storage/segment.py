"""One segment of a log: the .log file of record batches with its indexes (Kafka's LogSegment).

Invariants: batches lie back to back from position 0 to `size_bytes`, offsets ascend, and every offset is within 2^31 - 1 of
`base_offset`. Data is written before its index entry: recovery trusts batches only. A segment is either active (written to, its
indexes in memory, the positions of its last batches too) or closed (opened at first use; its log may `unload` it again).
Owner: Log. Errors of the disk come out as OSError or StorageError; Log makes StorageError of both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

from config.topic import LogConfig
from protocol.records import BatchHeader
from storage import batch_scan
from storage.batch_scan import read_batch_header, scan_batches
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.file_slice import FileSlice, SegmentFile, read_exactly
from storage.files import SEGMENT_SUFFIXES, delete_if_exists, offset_file_name, rename, sync_file
from storage.index import NO_TIMESTAMP, CorruptIndexError, OffsetIndex, TimeEntry, TimeIndex
from storage.page_cache import ColdRead, waiting
from storage.transaction_index import TransactionIndex

MAX_RELATIVE_OFFSET = 2**31 - 1
RECENT_BATCHES = 256  # positions kept in memory, twice this at most: tail reads and fresh appends need no scan


class LogSegment:
    """See the module's docstring. Make one with `create` (a new active segment) or `open`."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_disk",
        "_file",
        "_first_timestamp",
        "_recent_floor",
        "_recent_last_offsets",
        "_recent_positions",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "is_active",
        "is_recovered",
        "log_path",
        "max_timestamp",
        "offset_index",
        "offset_of_max_timestamp",
        "roll_jitter_ms",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, directory: Path, base_offset: int, config: LogConfig, created_ms: int, disk: Disk = SYSTEM_DISK, suffix: str = ""
    ) -> None:
        self._disk = disk
        log, offsets, times, transactions = (directory / (offset_file_name(base_offset, each) + suffix) for each in SEGMENT_SUFFIXES)
        self.base_offset = base_offset
        self.index_interval_bytes = config.index_interval_bytes
        index_bytes = config.segment_index_bytes
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        self.log_path = log
        self.offset_index = OffsetIndex(offsets, base_offset, index_bytes, disk)
        self.time_index = TimeIndex(times, base_offset, index_bytes, disk)
        self.transaction_index = TransactionIndex(transactions, base_offset, disk)
        self.size_bytes = 0
        self.is_active = False
        self.is_recovered = False  # its batches were scanned after an unclean stop, its files are not synchronised
        self.max_timestamp: int | None = None  # None: closed and not asked for yet, see largest_timestamp_entry
        self.offset_of_max_timestamp = base_offset
        self._file: SegmentFile | None = None
        self._first_timestamp: int | None = None
        self._bytes_since_index_entry = 0
        self._recent_last_offsets: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_floor = base_offset - 1  # the last offset before the recent ones

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, config: LogConfig, now_ms: int, disk: Disk = SYSTEM_DISK, suffix: str = ""
    ) -> LogSegment:
        """A new, empty, active segment; with a suffix one that is to replace others. Its directory entry is not durable yet."""
        segment = cls(directory, base_offset, config, now_ms, disk, suffix)
        segment._file = SegmentFile.open(segment.log_path, create=True, disk=disk)
        segment.offset_index.create()
        segment.time_index.create()
        segment.max_timestamp = NO_TIMESTAMP
        segment.is_active = True
        return segment

    @classmethod
    def open(
        cls, directory: Path, base_offset: int, config: LogConfig, now_ms: int, *,
        size_bytes: int, disk: Disk = SYSTEM_DISK, suffix: str = "",
    ) -> LogSegment:  # fmt: skip
        """A closed segment of `size_bytes`, whose files are opened at first use; with a suffix one that is to replace others."""
        segment = cls(directory, base_offset, config, now_ms, disk, suffix)
        segment.size_bytes = size_bytes
        return segment

    # -- writing ---------------------------------------------------------------------------------------------------

    def append_batches(self, records: memoryview, headers: list[BatchHeader]) -> None:
        """Write several batches, whose headers are given in order, with one call. All or nothing."""
        position = self.write(records)
        for header in headers:
            size = header.size_bytes
            self.note_batch(position, size, header.last_offset, header.max_timestamp)
            position += size

    def write(self, records: memoryview | bytes | bytearray) -> int:
        """Write batches at the end, with one call; returns their position. The caller gives each to `note_batch` next. StorageError when
        they cannot be written whole: then nothing of them is left."""
        assert self._file is not None
        fd, position, size = self._file.fd, self.size_bytes, len(records)
        try:
            written = self._disk.pwrite(fd, records, position)
        except OSError as error:
            raise StorageError(f"cannot append {size} bytes to {self.log_path} at {position}: {error}") from error
        if written != size:
            self._remove_partial(fd, position)
            raise StorageError(f"only {written} of {size} bytes could be appended to {self.log_path} at {position}")
        self.size_bytes = position + size
        return position

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch that `write` has written: the segment's times, index entries, its position."""
        if position == 0:
            self._first_timestamp = max_timestamp
        self.index_batch(position, size, last_offset, max_timestamp)
        positions = self._recent_positions
        positions.append(position)
        self._recent_last_offsets.append(last_offset)
        if len(positions) >= 2 * RECENT_BATCHES:
            self._forget_older()

    def should_roll(
        self,
        incoming_bytes: int,
        incoming_max_timestamp: int,
        incoming_last_offset: int,
        segment_bytes: int,
        max_segment_ms: int,
        now_ms: int,
    ) -> bool:
        """Whether a batch has to go to a new segment: size, age, full index, offset range.

        The age is by record time when the first batch has a timestamp, else by the wall clock since creation (Kafka's rule)."""
        size, age_ms = self.size_bytes, 0
        if size > 0:
            first = self._first_timestamp
            if first is None:
                first = self._read_first_timestamp()
            age_ms = incoming_max_timestamp - first if first >= 0 else now_ms - self.created_ms
        offset_index, time_index = self.offset_index, self.time_index
        return (
            size + incoming_bytes > segment_bytes
            or (size > 0 and age_ms > max_segment_ms - self.roll_jitter_ms)
            or offset_index.entries_count >= offset_index.entries_max
            or time_index.entries_count >= time_index.entries_max
            or incoming_last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def become_inactive(self) -> None:
        """Close the time index with the segment's largest timestamp and leave the active role."""
        self._close_time_index()
        self.write_indexes()
        self.is_active = False
        self.forget_recent()

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cut the batch that holds `offset` and everything after it; returns where the segment then ends: before that batch, whose
        remainder must be fetched again with it. The segment must be active."""
        assert self.is_active, "only the active segment is cut"
        position = self.find_position(offset)
        if position < self.size_bytes:
            offset = min(offset, read_batch_header(self.file, position).base_offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._cut(position)
        if not self._recent_positions:
            self._recent_floor = offset - 1  # every batch that is left ends before it
        if position == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._bytes_since_index_entry = 0
        self._reload_max_timestamp()
        return offset

    def activate(self) -> int:
        """Make an opened segment writable. Returns the offset after its last batch, which it reads from the file.

        Rebuilds the indexes when they cannot be right (Kafka preallocates them: an unclean stop leaves a zero tail)."""
        self.is_active = True
        try:
            self.offset_index.load(is_active=True)
            self.time_index.load(is_active=True)
            self._check_indexes()
        except CorruptIndexError:
            self.rebuild_indexes()
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last_entry
        start = self.offset_index.last_position
        last_offset = self.base_offset - 1
        self._recent_positions.clear()
        self._recent_last_offsets.clear()
        self._recent_floor = last_offset if start == 0 else MAX_RELATIVE_OFFSET + self.base_offset
        for position, header in self.iterate_batches(start):
            last_offset = header.last_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, last_offset
            self._recent_positions.append(position)
            self._recent_last_offsets.append(last_offset)
            if len(self._recent_positions) >= 2 * RECENT_BATCHES:
                self._forget_older()
            self._recent_floor = min(self._recent_floor, header.base_offset - 1)
        return last_offset + 1

    # -- reading ---------------------------------------------------------------------------------------------------

    def find_position(self, offset: int) -> int:
        """Position of the first batch that ends at or after `offset`; `size_bytes` when there is none."""
        if offset > self._recent_floor and self._recent_positions:
            slot = bisect_left(self._recent_last_offsets, offset)
            return self._recent_positions[slot] if slot < len(self._recent_positions) else self.size_bytes
        self._load()
        for position, _, last_offset in scan_batches(self.file, self.size_bytes, self.offset_index.find_position(offset)):
            if last_offset >= offset:
                return position
        return self.size_bytes

    def boundary_before(self, position: int) -> int:
        """An indexed batch boundary at or before `position`."""
        self._load()
        return self.offset_index.find_boundary(position)

    def slice(self, position: int, end_position: int, max_bytes: int, minimum_one_batch: bool) -> FileSlice | None:
        """Whole batches from `position`, at most `max_bytes` unless the first alone is larger and `minimum_one_batch` is set.

        None when nothing fits. The caller owns the slice."""
        limit = position + max_bytes
        if limit < end_position:
            end_position = self._last_boundary(position, limit)
            if end_position == position:
                if not minimum_one_batch:
                    return None
                end_position = next(scan_batches(self.file, self.size_bytes, position))[1]
        if end_position <= position:
            return None
        return FileSlice(self._file or self._open_file(), position, end_position - position)

    def iterate_batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from `position`, a boundary, to the end. Headers only: no checksum is verified."""
        return batch_scan.iterate_batches(self.file, self.size_bytes, position)

    def read_batch(self, position: int, size_bytes: int) -> bytes:
        return read_exactly(self.fd, size_bytes, position, self._disk)

    def find_position_by_timestamp(self, timestamp: int, start_offset: int) -> int:
        """An indexed batch boundary at or before the first record from `start_offset` on whose timestamp is `timestamp` or later."""
        self._load()
        return self.offset_index.find_position(max(self.time_index.find_entry(timestamp).offset, start_offset))

    def largest_timestamp_entry(self) -> TimeEntry:
        """The segment's largest timestamp and the last offset of its batch; (-1, base offset) without timestamps."""
        if self.max_timestamp is None:
            self._load()
            # Closing a segment leaves its largest timestamp in the last entry.
            self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last_entry
        return TimeEntry(self.max_timestamp, self.offset_of_max_timestamp)

    def largest_timestamp(self) -> int:
        """For retention: the largest record timestamp, or the file's modification time when records have none."""
        timestamp = self.largest_timestamp_entry().timestamp
        return timestamp if timestamp >= 0 else int(self._disk.stat(self.log_path).st_mtime * 1000)

    def read_end_offset(self) -> int:
        """The offset after the last batch, read from the file."""
        self._load()
        last_offset = self.base_offset - 1
        for _, _, batch_last_offset in scan_batches(self.file, self.size_bytes, self.offset_index.last_position):
            last_offset = batch_last_offset
        return last_offset + 1

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def file(self) -> SegmentFile:
        """The .log file, opened if it is not; this segment's own reference."""
        return self._file or self._open_file()

    @property
    def fd(self) -> int:
        return self.file.fd

    def share_file(self) -> SegmentFile:
        """A reference of the caller's own; a closed segment stays closed."""
        if self._file is not None:
            return self._file.acquire()
        file = SegmentFile.open(self.log_path, disk=self._disk)
        file.path = None  # this segment may leave the log without knowing of the file
        return file

    def check_in_place(self) -> None:
        """StorageError when somebody removed or replaced the file that is being written to."""
        if self._file is not None:
            self._file.check_in_place()

    @property
    def is_loaded(self) -> bool:
        """Whether the segment holds descriptors that `unload` would free."""
        return self._file is not None or self.offset_index.is_loaded

    def unload(self) -> None:
        """Free a closed segment's descriptors; slices that were handed out keep theirs."""
        self.offset_index.unload()
        self.time_index.unload()
        self.transaction_index.close()
        self.forget_recent()
        self._close_file()

    def abandon(self) -> None:
        """Free everything without writing: the disk failed, or the files are about to go."""
        self.offset_index.drop()
        self.time_index.drop()
        self.transaction_index.close()
        self._close_file()

    def paths(self) -> list[Path]:
        """The segment's files that exist."""
        return [path for path in self._all_paths() if self._disk.exists(path)]

    def index_paths(self) -> list[Path]:
        return [path for path in self.paths() if path != self.log_path]

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files of a closed segment, the .log first: an index without it stands for nothing (LogSegment.changeFileSuffixes).

        The segment must be unloaded; slices that were handed out keep the file."""
        assert self._file is None, "an open file is renamed under nobody"
        present = self.paths()
        renamed = [path.with_name(path.name.removesuffix(old) + new) for path in self._all_paths()]
        for path, target in zip(self._all_paths(), renamed, strict=True):
            if path in present:
                rename(path, target, self._disk)
        self.log_path, self.offset_index.path, self.time_index.path, self.transaction_index.path = renamed

    def flush(self) -> None:
        """Make every file of a segment durable that is not in a log yet; blocks."""
        self.write_indexes()
        for path in self.paths():
            sync_file(path, self._disk)

    def delete(self) -> None:
        """Free everything and delete the files, of a segment that is in no log."""
        self.abandon()
        for path in self._all_paths():
            delete_if_exists(path, self._disk)

    def rebuild_indexes(self) -> None:
        """Write both indexes anew from the batches' headers. The transaction index stays. Waits for the disk."""
        self.offset_index.reset()
        self.time_index.reset()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._bytes_since_index_entry = 0
        with waiting():
            for position, header in self.iterate_batches():
                self.index_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
        self._close_time_index()
        self.write_indexes()

    def begin_rebuild(self) -> None:
        """Forget all three indexes: recovery calls `index_batch` for each valid batch and then `finish_rebuild`."""
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self.max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._bytes_since_index_entry = 0
        self._first_timestamp = None

    def finish_rebuild(self, end_position: int) -> None:
        """Cut the file after the valid batches and write the indexes out."""
        if end_position < self.size_bytes:
            self._cut(end_position)
        self._close_time_index()
        self.write_indexes()
        self.is_recovered = True

    def write_closing_indexes(self) -> None:
        """Leave the indexes as a clean stop does: the time index of the active segment ends with its largest timestamp."""
        if self.is_active:
            self._close_time_index()
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write out the entries that are only in memory."""
        self.offset_index.write_out()
        self.time_index.write_out()

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Account for a batch that is in the file: largest timestamp, index entries."""
        if self.max_timestamp is None or max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    # -- inside ----------------------------------------------------------------------------------------------------

    def _all_paths(self) -> tuple[Path, Path, Path, Path]:
        return self.log_path, self.offset_index.path, self.time_index.path, self.transaction_index.path

    def _remove_partial(self, fd: int, position: int) -> None:
        try:
            self._disk.ftruncate(fd, position)
        except OSError as error:
            # Harmless: `size_bytes` did not move, and recovery cuts the torn batch.
            raise StorageError(f"cannot remove a torn batch from {self.log_path} at {position}: {error}") from error

    def _forget_older(self) -> None:
        """Keep the positions of the last RECENT_BATCHES only."""
        self._recent_floor = self._recent_last_offsets[RECENT_BATCHES - 1]
        del self._recent_positions[:RECENT_BATCHES]
        del self._recent_last_offsets[:RECENT_BATCHES]

    def forget_recent(self) -> None:
        """Drop the positions of the last batches: reads of these use the index, as those of older ones do."""
        if self._recent_last_offsets:
            self._recent_floor = self._recent_last_offsets[-1]
            self._recent_positions.clear()
            self._recent_last_offsets.clear()

    def _last_boundary(self, position: int, limit: int) -> int:
        """The last batch boundary in [position, limit], which lies before the segment's end."""
        recent = self._recent_positions
        if recent and recent[0] <= limit:
            return max(position, recent[bisect_right(recent, limit) - 1])
        self._load()
        boundary = max(position, self.offset_index.find_boundary(limit))
        for _, end, _ in scan_batches(self.file, self.size_bytes, boundary):
            if end > limit:
                break
            boundary = end
        return boundary

    def _load(self) -> None:
        """Load a closed segment's indexes, rebuilding them when they are missing or wrong."""
        if self.offset_index.is_loaded and self.time_index.is_loaded:
            return
        try:
            self.offset_index.load(is_active=False)
            self.time_index.load(is_active=False)
            self._check_indexes()
        except CorruptIndexError:
            self.rebuild_indexes()
        except ColdRead:
            self.offset_index.drop()  # loaded, but not checked yet
            self.time_index.drop()
            raise

    def _check_indexes(self) -> None:
        self.offset_index.check(self.size_bytes)
        self.time_index.check()

    def _close_time_index(self) -> None:
        if self.max_timestamp is not None and self.max_timestamp > NO_TIMESTAMP:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)

    def _reload_max_timestamp(self) -> None:
        """From the time index, and the batches behind its last entry."""
        entry = self.time_index.last_entry
        self.max_timestamp, self.offset_of_max_timestamp = entry
        for _, header in self.iterate_batches(self.offset_index.find_position(entry.offset)):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset

    def _read_first_timestamp(self) -> int:
        for _, header in self.iterate_batches():
            self._first_timestamp = header.max_timestamp
            return header.max_timestamp
        return NO_TIMESTAMP

    def _cut(self, position: int) -> None:
        self._disk.ftruncate(self.fd, position)
        self.size_bytes = position
        keep = bisect_left(self._recent_positions, position)
        del self._recent_positions[keep:]
        del self._recent_last_offsets[keep:]

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.path = None
            self._file.release()
            self._file = None

    def _open_file(self) -> SegmentFile:
        self._file = SegmentFile.open(self.log_path, disk=self._disk)
        return self._file
