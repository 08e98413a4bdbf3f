"""One of the broker's log directories: its lock, identity, clean-stop marker, checkpoints and what is listed in it.

Invariants: the lock is held from `lock` to `unlock`; the marker is gone before any log in the directory can change, so that a crash
is seen as one. A directory that failed stays offline until a restart. Owner: LogManager.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from storage.errors import CorruptFileError, StorageError, storage_errors
from storage.files import (
    FUTURE_DIRECTORY_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_DIRECTORY_SUFFIX,
    TopicPartition,
    find_topic_partition,
    is_deleted_directory,
    lock_directory,
)
from storage.meta_properties import (
    MetaProperties,
    delete_clean_shutdown,
    read_clean_shutdown,
    read_meta_properties,
    write_clean_shutdown,
    write_meta_properties,
)

logger = logging.getLogger("barnabas.storage")

PartitionOffsets = Mapping[tuple[str, int], int]

CLUSTER_METADATA_TOPIC = "__cluster_metadata"  # opened by the metadata quorum itself, in the first directory


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """The directories found inside: partitions, and partitions whose deletion a stop interrupted."""

    partitions: dict[TopicPartition, Path]
    deleted: list[Path]


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A checkpoint as it was read, and when it was written."""

    offsets: dict[TopicPartition, int]
    written_ns: int

    def find(self, key: TopicPartition, created_ns: int) -> int:
        """The partition's offset; 0 without one, or when the checkpoint is not younger than the partition.

        It is then about an earlier topic of that name. Kafka rewrites its checkpoints at each deletion, with three fsyncs."""
        return self.offsets.get(key, 0) if self.written_ns > created_ns else 0


NO_CHECKPOINT = _Checkpoint({}, 0)


class CheckpointWriter:
    """Writes one directory's checkpoints from worker threads: one at a time, and never an older state over a newer one.

    The only lock of the storage: two periodic tasks may hand out work at once, and both would write the same temporary file."""

    __slots__ = ("_lock", "_written_sequence", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._written_sequence = 0

    def write(self, work: CheckpointWork) -> None:
        with self._lock:
            if work.sequence <= self._written_sequence:
                return
            write_offset_checkpoint(self.path / RECOVERY_POINT_CHECKPOINT, work.recovery_points)
            write_offset_checkpoint(self.path / LOG_START_OFFSET_CHECKPOINT, work.log_start_offsets)
            write_offset_checkpoint(self.path / HIGH_WATERMARK_CHECKPOINT, work.high_watermarks)
            self._written_sequence = work.sequence


@dataclass(frozen=True, slots=True)
class CheckpointWork:
    """The offsets of one directory's logs, to be written off the loop."""

    writer: CheckpointWriter
    sequence: int
    recovery_points: PartitionOffsets
    high_watermarks: PartitionOffsets
    log_start_offsets: PartitionOffsets

    @property
    def path(self) -> Path:
        """The log directory."""
        return self.writer.path

    def run(self) -> None:
        """Replace the three files durably; blocks. StorageError, with the directory as its path, when the disk fails."""
        try:
            self.writer.write(self)
        except StorageError as error:
            raise StorageError(str(error), path=self.path) from error


class LogDirectory:
    """See the module's docstring."""

    __slots__ = (
        "_checkpoint_sequence",
        "_lock",
        "_writer",
        "clean_shutdown_epoch",
        "high_watermarks",
        "is_offline",
        "log_start_offsets",
        "meta",
        "path",
        "recovery_points",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_offline = False
        self.meta: MetaProperties | None = None
        self.clean_shutdown_epoch: int | None = None
        self.recovery_points = self.high_watermarks = self.log_start_offsets = NO_CHECKPOINT
        self._lock: int | None = None
        self._writer = CheckpointWriter(path)
        self._checkpoint_sequence = 0

    @property
    def was_clean_stop(self) -> bool:
        return self.clean_shutdown_epoch is not None

    def lock(self) -> None:
        """Make the directory if it is missing, lock it, read whose it is. DirectoryInUseError when another broker holds it."""
        if self._lock is None:
            with storage_errors("create", self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_directory(self.path)
            self.meta = read_meta_properties(self.path)

    def format(self, meta: MetaProperties) -> None:
        """Give an empty directory its identity, durably. StorageError when the disk fails."""
        write_meta_properties(self.path, meta)
        self.meta = meta

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def descriptor(self) -> int:
        """Of a file in the directory, for a call on its file system."""
        assert self._lock is not None, "the directory is not locked"
        return self._lock

    def begin(self) -> None:
        """Take the clean-stop marker away and read the checkpoints; a checkpoint that cannot be read counts as absent.

        Without recovery points every batch is checked; without high watermarks each log starts over at its start offset."""
        self.clean_shutdown_epoch = read_clean_shutdown(self.path)
        delete_clean_shutdown(self.path)
        self.recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_CHECKPOINT)
        self.log_start_offsets = self._read_checkpoint(LOG_START_OFFSET_CHECKPOINT)

    def take_checkpoint(
        self,
        *,
        recovery_points: PartitionOffsets,
        high_watermarks: PartitionOffsets,
        log_start_offsets: PartitionOffsets,
    ) -> CheckpointWork:
        self._checkpoint_sequence += 1
        return CheckpointWork(self._writer, self._checkpoint_sequence, recovery_points, high_watermarks, log_start_offsets)

    def end(self, broker_epoch: int) -> None:
        """Mark the stop as clean: the last thing that is written."""
        write_clean_shutdown(self.path, broker_epoch=broker_epoch)

    def list(self) -> DirectoryListing:
        """Partitions by name. What is no partition is left alone."""
        partitions: dict[TopicPartition, Path] = {}
        deleted: list[Path] = []
        with storage_errors("list", self.path), os.scandir(self.path) as entries:
            for entry in entries:
                if not entry.is_dir():
                    continue
                name = entry.name
                if is_deleted_directory(name):
                    deleted.append(Path(entry.path))
                    continue
                found = find_topic_partition(name)
                if found is not None and found.topic != CLUSTER_METADATA_TOPIC:
                    partitions[found] = Path(entry.path)
                elif found is None and not name.endswith((STRAY_DIRECTORY_SUFFIX, FUTURE_DIRECTORY_SUFFIX)):
                    logger.warning("%s is no partition's directory and is left alone", entry.path)
        return DirectoryListing(dict(sorted(partitions.items())), deleted)

    def _read_checkpoint(self, name: str) -> _Checkpoint:
        path = self.path / name
        try:
            return _Checkpoint(read_offset_checkpoint(path), path.stat().st_mtime_ns)
        except FileNotFoundError:
            return NO_CHECKPOINT
        except CorruptFileError as error:
            logger.warning("ignored a checkpoint: %s", error)
            return NO_CHECKPOINT


def check_identities(directories: list[LogDirectory]) -> None:
    """StorageError unless all formatted directories are of one cluster and one node, and no two are the same directory."""
    metas = [directory.meta for directory in directories if directory.meta is not None]
    if len({(meta.cluster_id, meta.node_id) for meta in metas}) > 1:
        found = ", ".join(f"{directory.path}: {directory.meta}" for directory in directories)
        raise StorageError(f"log directories of different clusters or nodes: {found}")
    ids = [meta.directory_id for meta in metas if meta.directory_id is not None]
    if len(set(ids)) != len(ids):
        raise StorageError("two log directories have the same directory.id")
