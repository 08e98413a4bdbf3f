"""One of the broker's log directories: its lock, identity, clean-stop marker, checkpoints and partitions.

Invariants: the lock is held from `lock` to `unlock`; the marker is gone before any log in the directory can change, so that a crash
is seen as one. A directory that failed stays offline until a restart. Owner: LogManager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError, StorageError, storage_errors
from storage.files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_DIRECTORY_SUFFIX,
    TopicPartition,
    find_future_partition,
    find_topic_partition,
    is_deleted_directory,
    lock_directory,
    make_directory,
    rename,
)
from storage.meta_properties import (
    MetaProperties,
    delete_clean_shutdown,
    read_clean_shutdown,
    read_meta_properties,
    write_clean_shutdown,
    write_meta_properties,
)

if TYPE_CHECKING:
    from storage.log import Log

logger = logging.getLogger("barnabas.storage")

PartitionOffsets = dict[tuple[str, int], int]

CLUSTER_METADATA_TOPIC = "__cluster_metadata"  # opened by the metadata quorum itself, in the first directory


class VolumeSpace(NamedTuple):
    """The space of a directory's volume."""

    total_bytes: int
    usable_bytes: int
    """What a process without special rights can still write."""


class DirectoryListing(NamedTuple):
    """The directories inside: partitions, copies of partitions that are moving here, and partitions whose deletion a stop has
    interrupted."""

    partitions: dict[TopicPartition, Path]
    futures: list[tuple[TopicPartition, Path]]
    deleted: list[Path]


class Checkpoints(NamedTuple):
    """The contents of a directory's four checkpoint files."""

    recovery_points: PartitionOffsets
    high_watermarks: PartitionOffsets
    log_start_offsets: PartitionOffsets
    clean_end_offsets: PartitionOffsets

    def files(self) -> tuple[tuple[str, PartitionOffsets], ...]:
        return (
            (RECOVERY_POINT_CHECKPOINT, self.recovery_points),
            (LOG_START_OFFSET_CHECKPOINT, self.log_start_offsets),
            (HIGH_WATERMARK_CHECKPOINT, self.high_watermarks),
            (CLEANER_CHECKPOINT, self.clean_end_offsets),
        )

    def end_offset_of(self, key: tuple[str, int]) -> int:
        """Returns the largest offset that they have for the partition."""
        return max(offsets.get(key, 0) for offsets in self)

    def without(self, keys: Collection[tuple[str, int]]) -> Checkpoints:
        """Returns a copy without these partitions. A table that has none of them is not copied."""
        return Checkpoints(*(_without(offsets, keys) for offsets in self))

    def lowered(self, ends: Mapping[tuple[str, int], int]) -> Checkpoints:
        """Returns a copy with no offset of these partitions above their ends. A table without such offsets is not copied."""
        return Checkpoints(*(_lowered(offsets, ends) for offsets in self))


NO_CHECKPOINTS = Checkpoints({}, {}, {}, {})


class CheckpointWriter:
    """Writes one directory's checkpoints from worker threads: one at a time, and never an older state over a newer one.

    An entry has no time, so it must not outlive its log: it is removed from the files before the log's directory is renamed, and an
    older state that is written afterwards does not bring it back. The same is true of offsets above a coming truncation. The lock is
    needed because two periodic tasks may run at once and would write the same temporary file."""

    __slots__ = ("_disk", "_forgotten", "_lock", "_lowered", "_written", "_written_sequence", "path")

    def __init__(self, path: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._written = NO_CHECKPOINTS
        self._written_sequence = 0
        self._forgotten: dict[tuple[str, int], int] = {}  # removed partitions and when, until a later state is written
        self._lowered: dict[tuple[str, int], _Lowered] = {}  # the same for logs to be truncated

    def read(self) -> Checkpoints:
        """Returns the contents of the files; an unreadable one counts as empty."""
        self._written = Checkpoints(
            recovery_points=self._read(RECOVERY_POINT_CHECKPOINT),
            high_watermarks=self._read(HIGH_WATERMARK_CHECKPOINT),
            log_start_offsets=self._read(LOG_START_OFFSET_CHECKPOINT),
            clean_end_offsets=self._read(CLEANER_CHECKPOINT),
        )
        return self._written

    def write(self, work: CheckpointWork) -> None:
        with self._lock:
            if work.sequence <= self._written_sequence:
                return
            checkpoints = work.checkpoints
            if self._forgotten:
                checkpoints = checkpoints.without({key for key, sequence in self._forgotten.items() if sequence > work.sequence})
                self._forgotten = {key: sequence for key, sequence in self._forgotten.items() if sequence > work.sequence}
            if self._lowered:
                self._lowered = {key: each for key, each in self._lowered.items() if each.sequence > work.sequence}
                checkpoints = checkpoints.lowered({key: each.end_offset for key, each in self._lowered.items()})
            for name, offsets in checkpoints.files():
                if name == CLEANER_CHECKPOINT and offsets == self._written.clean_end_offsets:
                    continue  # nothing was compacted: most brokers have no such file
                write_offset_checkpoint(self.path / name, offsets, self._disk)
            self._written = checkpoints
            self._written_sequence = work.sequence

    def lower(self, work: LoweringWork) -> None:
        """Remove offsets above these logs' new ends from the files, durably."""
        with self._lock:
            for key, end_offset in work.end_offsets.items():
                before = self._lowered.get(key)
                self._lowered[key] = _Lowered(work.sequence, end_offset if before is None else min(before.end_offset, end_offset))
            self._replace(self._written.lowered(work.end_offsets))

    def remove(self, work: RemovalWork) -> None:
        """Remove the entries from the files, durably, then rename the directories."""
        with self._lock:
            if work.is_done:
                return
            keys = {*(each.key for each in work.departures), *work.orphans}
            self._forgotten.update(dict.fromkeys(keys, work.sequence))
            self._replace(self._written.without(keys))
            for departure in work.departures:
                rename(departure.source, departure.target, self._disk)
            work.is_done = True

    def _replace(self, checkpoints: Checkpoints) -> None:
        """Write the files whose tables have changed since the last write."""
        for (name, offsets), (_, before) in zip(checkpoints.files(), self._written.files(), strict=True):
            if offsets is not before:
                write_offset_checkpoint(self.path / name, offsets, self._disk)
        self._written = checkpoints

    def _read(self, name: str) -> PartitionOffsets:
        try:
            return read_offset_checkpoint(self.path / name, self._disk)
        except CorruptFileError as error:
            logger.warning("ignored a checkpoint: %s", error)
            return {}


class _Lowered(NamedTuple):
    """The end of a log to be truncated; checkpoints taken earlier must be lowered to it."""

    sequence: int
    end_offset: int


class CheckpointWork(NamedTuple):
    """The offsets of one directory's logs, to be written in a thread."""

    writer: CheckpointWriter
    sequence: int
    checkpoints: Checkpoints

    @property
    def path(self) -> Path:
        """The log directory."""
        return self.writer.path

    def note(self, log: Log) -> None:
        """Add the log's present offsets."""
        checkpoints = self.checkpoints
        key = log.topic, log.partition  # a plain tuple: for 10,000 logs NamedTuples cost milliseconds
        recovery_point, high_watermark = log.recovery_point, log.high_watermark
        checkpoints.recovery_points[key] = recovery_point
        checkpoints.high_watermarks[key] = high_watermark
        if log.log_start_offset > log.segments.first.base_offset:
            checkpoints.log_start_offsets[key] = log.log_start_offset
        if log.clean_end_offset is not None:
            checkpoints.clean_end_offsets[key] = log.clean_end_offset
        log.checkpointed_end_offset = recovery_point if recovery_point > high_watermark else high_watermark

    def run(self) -> None:
        """Replace the files durably; blocks. StorageError, with the directory as its path, when the disk fails."""
        with _errors_of(self.path):
            self.writer.write(self)


class LoweringWork(NamedTuple):
    """The ends of logs of one directory that are about to be truncated. The checkpoints are lowered to them in a thread. A checkpoint
    that is taken later has the logs' offsets of that time."""

    writer: CheckpointWriter
    sequence: int
    end_offsets: PartitionOffsets

    def run(self) -> None:
        """Do it; blocks. StorageError, with the directory as its path, when the disk fails."""
        with _errors_of(self.writer.path):
            self.writer.lower(self)


class Departure(NamedTuple):
    """A partition's directory and its new name."""

    key: tuple[str, int]
    source: Path
    target: Path


class RemovalWork:
    """Partitions of one directory that are no longer served, to be removed in a thread: first their checkpoint entries are removed, then
    their directories renamed. `orphans` are entries of partitions without a directory."""

    __slots__ = ("departures", "is_done", "orphans", "sequence", "writer")

    def __init__(
        self,
        writer: CheckpointWriter,
        sequence: int,
        departures: list[Departure],
        orphans: Collection[tuple[str, int]] = (),
    ) -> None:
        self.writer = writer
        self.sequence = sequence
        self.departures = departures
        self.orphans = orphans
        self.is_done = False

    @property
    def path(self) -> Path:
        """The log directory."""
        return self.writer.path

    def run(self) -> None:
        """Do it; blocks. A second call waits for the first. StorageError, with the directory as its path, when the disk fails."""
        with _errors_of(self.path):
            self.writer.remove(self)


class LogDirectory:
    """See the module's docstring."""

    __slots__ = (
        "_checkpoint_sequence",
        "_disk",
        "_lock",
        "_writer",
        "checkpoints",
        "clean_shutdown_epoch",
        "is_cordoned",
        "is_offline",
        "meta",
        "path",
    )

    def __init__(self, path: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.path = path
        self._disk = disk
        self.is_offline = False
        self.is_cordoned = False  # it gets no new partitions (KIP-1066)
        self.meta: MetaProperties | None = None
        self.clean_shutdown_epoch: int | None = None
        self.checkpoints = NO_CHECKPOINTS
        """As the files were at the start."""
        self._lock: int | None = None
        self._writer = CheckpointWriter(path, disk)
        self._checkpoint_sequence = 0

    @property
    def was_clean_stop(self) -> bool:
        return self.clean_shutdown_epoch is not None

    def lock(self) -> None:
        """Create the directory if it is missing, lock it, and read its meta.properties. DirectoryInUseError when another broker holds
        it."""
        if self._lock is None:
            make_directory(self.path, self._disk)
            self._lock = lock_directory(self.path, self._disk)
            self.meta = read_meta_properties(self.path, self._disk)

    def format(self, meta: MetaProperties) -> None:
        """Write the meta.properties of an empty directory, durably. StorageError when the disk fails."""
        write_meta_properties(self.path, meta, self._disk)
        self.meta = meta

    def unlock(self) -> None:
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None

    @property
    def descriptor(self) -> int:
        """The descriptor of a file in the directory, for calls on its file system."""
        assert self._lock is not None, "the directory is not locked"
        return self._lock

    def read_space(self) -> VolumeSpace:
        """Returns the space of its volume; may block. StorageError when the disk fails."""
        with storage_errors("ask the size of the volume of", self.path):
            status = self._disk.statvfs(self.path)
        return VolumeSpace(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def begin(self) -> None:
        """Remove the clean-stop marker and read the checkpoints; an unreadable one counts as absent.

        Without recovery points every batch is checked; without high watermarks each log starts over at its start offset."""
        self.clean_shutdown_epoch = read_clean_shutdown(self.path, self._disk)
        delete_clean_shutdown(self.path, self._disk)
        self.checkpoints = self._writer.read()

    def take_checkpoint(self) -> CheckpointWork:
        """Returns an empty checkpoint, numbered before any that is taken later. The caller adds the logs' offsets."""
        self._checkpoint_sequence += 1
        return CheckpointWork(self._writer, self._checkpoint_sequence, Checkpoints({}, {}, {}, {}))

    def take_lowering(self, end_offsets: PartitionOffsets) -> LoweringWork:
        """Returns the work for logs that are about to be truncated to these ends."""
        self._checkpoint_sequence += 1
        return LoweringWork(self._writer, self._checkpoint_sequence, end_offsets)

    def take_removal(self, departures: list[Departure], orphans: Collection[tuple[str, int]] = ()) -> RemovalWork:
        """Returns the work for partitions whose logs are closed. Later checkpoints do not have them."""
        self._checkpoint_sequence += 1
        return RemovalWork(self._writer, self._checkpoint_sequence, departures, orphans)

    def date_removal(self, work: RemovalWork) -> None:
        """Called when the last log of `work`, which was taken earlier, is closed: checkpoints taken from now on have none of its logs."""
        self._checkpoint_sequence += 1
        work.sequence = self._checkpoint_sequence

    def find_orphans(self, partitions: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Returns the partitions of checkpoint entries that are not in `partitions`: a crash or an operator has removed their
        directories."""
        return {key for _, offsets in self.checkpoints.files() for key in offsets if key not in partitions}

    def end(self, broker_epoch: int) -> None:
        """Mark the stop as clean; this is the last write."""
        write_clean_shutdown(self.path, broker_epoch=broker_epoch, disk=self._disk)

    def list(self) -> DirectoryListing:
        """Returns the partitions by name. Other directories are ignored."""
        partitions: dict[TopicPartition, Path] = {}
        futures: list[tuple[TopicPartition, Path]] = []
        deleted: list[Path] = []
        with storage_errors("list", self.path):
            entries = self._disk.scan(self.path)
        for name, is_directory in entries:
            if not is_directory:
                continue
            if is_deleted_directory(name):
                deleted.append(self.path / name)
                continue
            future = find_future_partition(name)
            if future is not None:
                futures.append((future, self.path / name))
                continue
            found = find_topic_partition(name)
            if found is not None and found.topic != CLUSTER_METADATA_TOPIC:
                partitions[found] = self.path / name
            elif found is None and not name.endswith(STRAY_DIRECTORY_SUFFIX):
                logger.warning("%s is no partition's directory and is left alone", self.path / name)
        return DirectoryListing(dict(sorted(partitions.items())), sorted(futures), deleted)


def check_identities(directories: list[LogDirectory]) -> None:
    """StorageError unless all formatted directories are of one cluster and one node, and no two are the same directory."""
    metas = [directory.meta for directory in directories if directory.meta is not None]
    if len({(meta.cluster_id, meta.node_id) for meta in metas}) > 1:
        found = ", ".join(f"{directory.path}: {directory.meta}" for directory in directories)
        raise StorageError(f"log directories of different clusters or nodes: {found}")
    ids = [meta.directory_id for meta in metas if meta.directory_id is not None]
    if len(set(ids)) != len(ids):
        raise StorageError("two log directories have the same directory.id")


def _without(offsets: PartitionOffsets, keys: Collection[tuple[str, int]]) -> PartitionOffsets:
    if not any(key in offsets for key in keys):
        return offsets
    return {key: offset for key, offset in offsets.items() if key not in keys}


def _lowered(offsets: PartitionOffsets, ends: Mapping[tuple[str, int], int]) -> PartitionOffsets:
    beyond = {key: end for key, end in ends.items() if offsets.get(key, end) > end}
    return {**offsets, **beyond} if beyond else offsets


@contextmanager
def _errors_of(directory: Path) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise StorageError(str(error), path=directory) from error
