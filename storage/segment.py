"""One segment of a log: the .log file of record batches with its indexes (Kafka's LogSegment).

Invariants: batches lie back to back from position 0 to `size_bytes`, offsets ascend, and every offset is within 2^31 - 1 of
`base_offset`. Data is written before its index entry: recovery trusts batches only. A segment is either active (written to, its
indexes in memory, the positions of its last batches too) or closed (opened at first use; its log may `unload` it again).
Of its parts, SegmentIndexes counts and indexes what is written, and RecentBatches remembers where the last batches lie; the .log file,
and when the parts are loaded, are this module's.
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
from storage.index import NO_TIMESTAMP, CorruptIndexError, TimeEntry
from storage.page_cache import waiting
from storage.recent_batches import POSITIONS_MAX, RecentBatches
from storage.segment_indexes import SegmentIndexes

MAX_RELATIVE_OFFSET = 2**31 - 1

SegmentPaths = tuple[Path, Path, Path, Path]


class LogSegment:
    """See the module's docstring. Make one with `create` (a new active segment) or `open`."""

    __slots__ = (
        "_disk",
        "_file",
        "_first_timestamp",
        "base_offset",
        "created_ms",
        "indexes",
        "is_active",
        "is_recovered",
        "log_path",
        "recent_batches",
        "roll_jitter_ms",
        "size_bytes",
    )

    def __init__(
        self, directory: Path, base_offset: int, config: LogConfig, created_ms: int, disk: Disk = SYSTEM_DISK, suffix: str = ""
    ) -> None:
        self._disk = disk
        log, offsets, times, transactions = (directory / (offset_file_name(base_offset, each) + suffix) for each in SEGMENT_SUFFIXES)
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        self.log_path = log
        self.indexes = SegmentIndexes((offsets, times, transactions), base_offset, config, disk)
        self.recent_batches = RecentBatches(base_offset - 1)
        self.size_bytes = 0
        self.is_active = False
        self.is_recovered = False  # its batches were scanned after an unclean stop, its files are not synchronised
        self._file: SegmentFile | None = None
        self._first_timestamp: int | None = None

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, config: LogConfig, now_ms: int, disk: Disk = SYSTEM_DISK, suffix: str = ""
    ) -> LogSegment:
        """A new, empty, active segment; with a suffix one that is to replace others. Its directory entry is not durable yet."""
        segment = cls(directory, base_offset, config, now_ms, disk, suffix)
        segment._file = SegmentFile.open(segment.log_path, create=True, disk=disk)
        segment.indexes.create()
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
        self.indexes.note_batch(position, size, last_offset, max_timestamp)
        recent = self.recent_batches
        positions = recent.positions
        positions.append(position)  # RecentBatches.add(), inlined: once a produce
        recent.last_offsets.append(last_offset)
        if len(positions) >= POSITIONS_MAX:
            recent.forget_older()

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
        indexes = self.indexes
        offset_index, time_index = indexes.offset_index, indexes.time_index
        return (
            size + incoming_bytes > segment_bytes
            or (size > 0 and age_ms > max_segment_ms - self.roll_jitter_ms)
            or offset_index.entries_count >= offset_index.entries_max
            or time_index.entries_count >= time_index.entries_max
            or incoming_last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def become_inactive(self) -> None:
        """Close the time index with the segment's largest timestamp and leave the active role."""
        self.indexes.close_time_index()
        self.indexes.write_out()
        self.is_active = False
        self.recent_batches.forget()

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cut the batch that holds `offset` and everything after it; returns where the segment then ends: before that batch, whose
        remainder must be fetched again with it. The segment must be active."""
        assert self.is_active, "only the active segment is cut"
        position = self.find_position(offset)
        if position < self.size_bytes:
            offset = min(offset, read_batch_header(self.file, position).base_offset)
        self.indexes.truncate_to(offset)
        self._cut(position)
        if not self.recent_batches.positions:
            self.recent_batches.floor = offset - 1  # every batch that is left ends before it
        if position == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._reload_largest_timestamp()
        return offset

    def activate(self) -> int:
        """Make an opened segment writable. Returns the offset after its last batch, which it reads from the file.

        Rebuilds the indexes when they cannot be right (Kafka preallocates them: an unclean stop leaves a zero tail)."""
        self.is_active = True
        indexes, recent = self.indexes, self.recent_batches
        try:
            indexes.load(self.size_bytes, is_active=True)
        except CorruptIndexError:
            self._rebuild_indexes()
        indexes.take_last_entry()
        start = indexes.offset_index.last_position
        last_offset = self.base_offset - 1
        recent.restart(last_offset if start == 0 else MAX_RELATIVE_OFFSET + self.base_offset)
        for position, header in self.iterate_batches(start):
            last_offset = header.last_offset
            indexes.note_timestamp(header)
            recent.add(position, last_offset)
            recent.floor = min(recent.floor, header.base_offset - 1)
        return last_offset + 1

    # -- reading ---------------------------------------------------------------------------------------------------

    def find_position(self, offset: int) -> int:
        """Position of the first batch that ends at or after `offset`; `size_bytes` when there is none."""
        recent = self.recent_batches
        positions = recent.positions
        if offset > recent.floor and positions:
            slot = bisect_left(recent.last_offsets, offset)
            return positions[slot] if slot < len(positions) else self.size_bytes
        self._load()
        for position, _, last_offset in scan_batches(self.file, self.size_bytes, self.indexes.offset_index.find_position(offset)):
            if last_offset >= offset:
                return position
        return self.size_bytes

    def find_offset_at(self, position: int) -> int:
        """An offset behind all records before `position`, a batch boundary before the segment's end, and at or before those behind it."""
        recent = self.recent_batches
        slot = bisect_left(recent.positions, position)
        return recent.last_offsets[slot - 1] + 1 if slot else read_batch_header(self.file, position).base_offset

    def owns(self, records: FileSlice) -> bool:
        """Whether the slice, which is not released, was taken of this segment's open file."""
        return self._file is not None and self._file.fd == records.fd

    def boundary_before(self, position: int) -> int:
        """An indexed batch boundary at or before `position`."""
        self._load()
        return self.indexes.offset_index.find_boundary(position)

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
        indexes = self.indexes
        return indexes.offset_index.find_position(max(indexes.time_index.find_entry(timestamp).offset, start_offset))

    def largest_timestamp_entry(self) -> TimeEntry:
        """The segment's largest timestamp and the last offset of its batch; (-1, base offset) without timestamps."""
        indexes = self.indexes
        if indexes.max_timestamp is None:
            self._load()
            return indexes.take_last_entry()
        return TimeEntry(indexes.max_timestamp, indexes.offset_of_max_timestamp)

    def largest_timestamp(self) -> int:
        """For retention: the largest record timestamp, or the file's modification time when records have none."""
        timestamp = self.largest_timestamp_entry().timestamp
        return timestamp if timestamp >= 0 else int(self._disk.stat(self.log_path).st_mtime * 1000)

    def read_end_offset(self) -> int:
        """The offset after the last batch, read from the file."""
        self._load()
        last_offset = self.base_offset - 1
        for _, _, batch_last_offset in scan_batches(self.file, self.size_bytes, self.indexes.offset_index.last_position):
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
        return self._file is not None or self.indexes.offset_index.is_loaded or self.indexes.transaction_index.is_open

    def unload(self) -> None:
        """Free a closed segment's descriptors; slices that were handed out keep theirs."""
        self.indexes.unload()
        self.recent_batches.forget()
        self._close_file()

    def abandon(self) -> None:
        """Free everything without writing: the disk failed, or the files are about to go."""
        self.indexes.drop()
        self._close_file()

    @property
    def all_paths(self) -> SegmentPaths:
        """Of the .log file, the offset index, the time index and the transaction index, whether they exist or not."""
        return self.log_path, *self.indexes.paths

    def paths(self) -> list[Path]:
        """The segment's files that exist."""
        return [path for path in self.all_paths if self._disk.exists(path)]

    def index_paths(self) -> list[Path]:
        return [path for path in self.paths() if path != self.log_path]

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the files of a closed segment, the .log first: an index without it stands for nothing (LogSegment.changeFileSuffixes).

        The segment must be unloaded; slices that were handed out keep the file."""
        assert self._file is None, "an open file is renamed under nobody"
        present, paths = self.paths(), self.all_paths
        log, offsets, times, transactions = renamed = [path.with_name(path.name.removesuffix(old) + new) for path in paths]
        for path, target in zip(paths, renamed, strict=True):
            if path in present:
                rename(path, target, self._disk)
        self.note_renamed((log, offsets, times, transactions))

    def note_renamed(self, paths: SegmentPaths) -> None:
        """The files have other names, given as `all_paths` gives them."""
        self.log_path = paths[0]
        self.indexes.note_renamed(paths[1:])
        if self._file is not None:
            self._file.path = paths[0]

    def flush(self) -> None:
        """Make every file of a segment durable that is not in a log yet; blocks."""
        self.indexes.write_out()
        for path in self.paths():
            sync_file(path, self._disk)

    def delete(self) -> None:
        """Free everything and delete the files, of a segment that is in no log."""
        self.abandon()
        for path in self.all_paths:
            delete_if_exists(path, self._disk)

    # -- recovery --------------------------------------------------------------------------------------------------

    def begin_rebuild(self) -> None:
        """Forget all three indexes: recovery calls `indexes.note_batch` for each valid batch and then `finish_rebuild`."""
        self.indexes.reset()
        self.indexes.transaction_index.reset()
        self._first_timestamp = None

    def finish_rebuild(self, end_position: int) -> None:
        """Cut the file after the valid batches and write the indexes out."""
        if end_position < self.size_bytes:
            self._cut(end_position)
        self.indexes.finish_rebuild()
        self.is_recovered = True

    def write_closing_indexes(self) -> None:
        """Leave the indexes as a clean stop does: the time index of the active segment ends with its largest timestamp."""
        if self.is_active:
            self.indexes.close_time_index()
        self.indexes.write_out()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _remove_partial(self, fd: int, position: int) -> None:
        try:
            self._disk.ftruncate(fd, position)
        except OSError as error:
            # Harmless: `size_bytes` did not move, and recovery cuts the torn batch.
            raise StorageError(f"cannot remove a torn batch from {self.log_path} at {position}: {error}") from error

    def _last_boundary(self, position: int, limit: int) -> int:
        """The last batch boundary in [position, limit], which lies before the segment's end."""
        recent = self.recent_batches.positions
        if recent and recent[0] <= limit:
            return max(position, recent[bisect_right(recent, limit) - 1])
        self._load()
        boundary = max(position, self.indexes.offset_index.find_boundary(limit))
        for _, end, _ in scan_batches(self.file, self.size_bytes, boundary):
            if end > limit:
                break
            boundary = end
        return boundary

    def _load(self) -> None:
        """Load a closed segment's indexes, rebuilding them when they are missing or wrong."""
        indexes = self.indexes
        if indexes.offset_index.is_loaded and indexes.time_index.is_loaded:
            return
        try:
            indexes.load(self.size_bytes, is_active=False)
        except CorruptIndexError:
            self._rebuild_indexes()

    def _rebuild_indexes(self) -> None:
        """Write the offset and the time index anew from the batches' headers. Waits for the disk."""
        indexes = self.indexes
        indexes.reset()
        with waiting():
            for position, header in self.iterate_batches():
                indexes.note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
        indexes.finish_rebuild()

    def _reload_largest_timestamp(self) -> None:
        """From the time index, and the batches behind its last entry."""
        indexes = self.indexes
        entry = indexes.take_last_entry()
        for _, header in self.iterate_batches(indexes.offset_index.find_position(entry.offset)):
            indexes.note_timestamp(header)

    def _read_first_timestamp(self) -> int:
        for _, header in self.iterate_batches():
            self._first_timestamp = header.max_timestamp
            return header.max_timestamp
        return NO_TIMESTAMP

    def _cut(self, position: int) -> None:
        self._disk.ftruncate(self.fd, position)
        self.size_bytes = position
        self.recent_batches.cut(position)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.path = None
            self._file.release()
            self._file = None

    def _open_file(self) -> SegmentFile:
        self._file = SegmentFile.open(self.log_path, disk=self._disk)
        return self._file
