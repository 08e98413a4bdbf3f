"""Makes a log durable off the loop: the files to fsync, and the offset up to which that makes the log durable.

A FlushWork is immutable. The loop creates it (`Log.take_flush`), and any thread runs it. Then the loop applies the result (`Log.flushed`),
or releases it after a failure (`release`). It holds references to the segment files, so that they are not closed meanwhile. Invariant:
index entries are written before the work is created, so the indexes are valid below a recovery point.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from storage.disk import Disk
from storage.errors import StorageError
from storage.file_slice import SegmentFile
from storage.files import PARTITION_METADATA, sync_directory, sync_file
from storage.leader_epochs import EpochsToWrite, LeaderEpochFileCache
from storage.segment import LogSegment

CHECK_INTERVAL_MS = 1_000  # between two checks that a log's files are in place: each costs a thread two turns at the interpreter


class FlushWork(NamedTuple):
    """Files to synchronise so that every batch below `end_offset` is durable.

    `generation` is the log's count of truncations: a work older than a truncation must not move the recovery point. `is_checked` says
    whether the files are first checked to be in place. `closed` are the segments that were closed when it was created. `epochs` go into
    their file before it is synchronised, one of `paths` then."""

    end_offset: int
    generation: int
    closed: tuple[LogSegment, ...]
    files: tuple[SegmentFile, ...]
    paths: tuple[Path, ...]
    epochs: EpochsToWrite | None
    directory: Path | None
    is_checked: bool

    @property
    def disk(self) -> Disk:
        """The disk that all of it is on."""
        return self.files[0].disk

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The segment files' descriptors, at least one, for a committer that calls syncfs on their file system."""
        return tuple(file.fd for file in self.files)

    def run(self) -> None:
        """Synchronise file by file; blocks. StorageError on any failure, which must not be retried: the kernel may have dropped
        the pages that it could not write."""
        self.prepare()
        try:
            for file in self.files:
                self.disk.fdatasync(file.fd)
            for path in self.paths:
                sync_file(path, self.disk)  # retention or a rebuild may have removed the file
        except OSError as error:
            raise StorageError(f"cannot synchronise up to offset {self.end_offset}: {error}") from error
        if self.directory is not None:
            sync_directory(self.directory, missing_ok=True, disk=self.disk)  # it was renamed if its topic was deleted meanwhile
            sync_directory(self.directory.parent, disk=self.disk)  # a new partition's own entry

    def prepare(self) -> None:
        """Do what has to precede the fsyncs. `run` calls it, and so does the code that calls syncfs instead. StorageError if another
        program has removed a file that is being written to: its data would never be durable."""
        if self.is_checked:
            try:
                for file in self.files:
                    file.check_in_place()
            except OSError as error:
                raise StorageError(f"cannot look at the files up to offset {self.end_offset}: {error}") from error
        if self.epochs is not None:
            self.epochs.write()

    def release(self) -> None:
        """Release the segment files. `Log.flushed` calls it, and so must the owner of work that failed."""
        for file in self.files:
            file.release()


class FlushState:
    """The data of one log that is written and not fsynced yet. Owner: that Log."""

    __slots__ = ("_checked_ms", "_directory_is_dirty", "_epochs", "_generation", "_is_requested", "_paths", "_rolled", "unflushed_since_ms")

    def __init__(self) -> None:
        self._rolled: list[LogSegment] = []
        self._paths: list[Path] = []  # producer snapshots and the like
        self._epochs: LeaderEpochFileCache | None = None  # if they are to be written
        self._directory_is_dirty = True
        self._is_requested = False
        self.unflushed_since_ms: int | None = None
        """When the first append came that is not synchronised; the log sets it, for each append asks for it."""
        self._checked_ms = 0
        self._generation = 0

    @property
    def has_files(self) -> bool:
        """Whether there is more to fsync than the active segment's data."""
        return bool(self._rolled or self._paths) or self._epochs is not None

    def is_due(self, now_ms: int, unflushed_count: int, flush_messages: int, flush_ms: int) -> bool:
        if self._is_requested or unflushed_count >= flush_messages:
            return True
        return self.unflushed_since_ms is not None and now_ms - self.unflushed_since_ms >= flush_ms

    def note_closed(self, segments: Iterable[LogSegment]) -> None:
        """Record closed segments with data that is not fsynced, and ask for a flush."""
        self._rolled += segments
        self._is_requested = self._is_requested or bool(self._rolled)
        self._directory_is_dirty = True

    def note_paths(self, paths: Iterable[Path]) -> None:
        self._paths += paths
        self._directory_is_dirty = True

    def note_epochs(self, epochs: LeaderEpochFileCache, *, is_new: bool = False) -> None:
        """Record changed epochs, which the next flush writes. A new epoch asks for a flush. The first one of a log can wait, because the
        metadata log has it too."""
        self._epochs = epochs
        self._is_requested = self._is_requested or (is_new and len(epochs) > 1)

    def note_renamed(self, directory: Path) -> None:
        """Record the directory's new name, which the next flush makes durable."""
        self._paths = [directory / path.name for path in self._paths]
        self.note_paths([directory / PARTITION_METADATA])

    def forget(self, segments: list[LogSegment]) -> None:
        """These segments were removed, or one became active again."""
        self._rolled = [segment for segment in self._rolled if segment not in segments]
        self._directory_is_dirty = True

    @property
    def truncations_count(self) -> int:
        return self._generation

    def note_truncation(self) -> None:
        """Record a truncation: flushes in flight must not move the recovery point."""
        self._generation += 1
        self._directory_is_dirty = True

    def take(self, active: LogSegment, directory: Path, end_offset: int) -> FlushWork:
        """Returns the work for everything up to `end_offset`. OSError when a file cannot be opened."""
        paths = list(self._paths)
        for segment in self._rolled:
            segment.indexes.write_out()
            paths += segment.index_paths()
        files = _share_files((*self._rolled, active))
        epochs = None
        if self._epochs is not None:
            epochs = self._epochs.take_write()
            paths.append(self._epochs.path)
            self._directory_is_dirty = True
        dirty_directory = directory if self._directory_is_dirty else None
        work = FlushWork(
            end_offset, self._generation, tuple(self._rolled), files, tuple(paths), epochs, dirty_directory, self._takes_check()
        )
        self._is_requested = self._directory_is_dirty = False
        self.unflushed_since_ms = None
        return work

    def _takes_check(self) -> bool:
        """Whether to check that the files are in place: once in CHECK_INTERVAL_MS, by the time of the appends."""
        now_ms = self.unflushed_since_ms
        if now_ms is None or not 0 <= now_ms - self._checked_ms < CHECK_INTERVAL_MS:
            self._checked_ms = now_ms or 0
            return True
        return False

    def give_back(self, work: FlushWork) -> None:
        """Release `work`, which the process had not enough descriptors for: the next one includes what it was to do."""
        work.release()
        self._directory_is_dirty = self._directory_is_dirty or work.directory is not None
        self._is_requested = True

    def complete(self, work: FlushWork) -> bool:
        """Apply finished `work`. Returns whether its end offset is still valid."""
        work.release()
        if work.generation != self._generation:
            return False
        # A segment that was closed while the work ran may have got appends that the work does not cover: it stays.
        self._rolled = [segment for segment in self._rolled if segment not in work.closed]
        for path in work.paths:
            if path in self._paths:
                self._paths.remove(path)  # once: it may have been added again while the work ran
        if work.epochs is not None and self._epochs is not None and work.epochs.number == self._epochs.changes_count:
            self._epochs = None  # only now: of two concurrent flushes, each has to make the epochs durable before it is complete
        return True


def _share_files(segments: Iterable[LogSegment]) -> tuple[SegmentFile, ...]:
    """References to the segments' files. OSError, without any, when one of them cannot be opened."""
    files: list[SegmentFile] = []
    try:
        for segment in segments:
            files.append(segment.share_file())
    except OSError:
        for file in files:
            file.release()
        raise
    return tuple(files)
