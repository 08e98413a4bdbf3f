"""Opens logs: `open_log` loads a directory, recovers it and builds a Log. The LogManager's LogOpener creates new logs, and opens those
of a log directory with their checkpointed offsets (LogManager.loadLog, UnifiedLog.create)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from config.topic import LogConfig
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError, StorageError, storage_errors
from storage.files import LEADER_EPOCH_CHECKPOINT, TopicPartition
from storage.leader_epochs import LeaderEpochFileCache
from storage.local_log import LocalLog
from storage.log import Log
from storage.log_directory import LogDirectory
from storage.log_segments import OpenSegments
from storage.meta_properties import read_partition_metadata, write_partition_metadata
from storage.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerStateManager
from storage.recovery import load_log

logger = logging.getLogger("barnabas.storage")

_HEX_BITS = 128


def open_log(
    directory: Path,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    was_clean_stop: bool = False,
    random_below: Callable[[int], int] = lambda limit: 0,
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    open_segments: OpenSegments | None = None,
    disk: Disk = SYSTEM_DISK,
) -> Log:
    """Returns the log in an existing directory, recovered if the last stop was not clean. StorageError when it cannot be read.

    The high watermark starts at the log start offset; a caller that knows a later one sets it."""
    try:
        epochs = LeaderEpochFileCache(directory / LEADER_EPOCH_CHECKPOINT, disk)
        producers = ProducerStateManager(directory, producer_id_expiration_ms=producer_id_expiration_ms, disk=disk)
        loaded = load_log(
            directory, config, producers, epochs, open_segments=open_segments, disk=disk,
            log_start_offset=log_start_offset, recovery_point=recovery_point, was_clean_stop=was_clean_stop, now_ms=now_ms,
        )  # fmt: skip
    except OSError as error:
        raise StorageError(f"cannot load {directory}: {error}", path=directory) from error
    local = LocalLog(
        directory, config, loaded.segments, recovery_point=loaded.recovery_point,
        random_below=random_below, mark_snapshot=producers.mark_snapshot_for_deletion, disk=disk,
    )  # fmt: skip
    return Log(
        local, topic, partition, topic_id, leader_epochs=epochs, producers=producers,
        log_start_offset=loaded.log_start_offset, log_end_offset=loaded.log_end_offset,
    )  # fmt: skip


class LogOpener:
    """See the module's docstring. Owner: one LogManager, whose logs share these settings."""

    __slots__ = ("_open_log", "_random", "disk", "producer_id_expiration_ms")

    def __init__(self, *, random_source: Random, producer_id_expiration_ms: int, open_segments: OpenSegments, disk: Disk) -> None:
        self.disk = disk
        self._random = random_source
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._open_log = partial(open_log, random_below=random_source.randrange, open_segments=open_segments, disk=disk)

    def draw_hex(self) -> str:
        """Returns random hex digits that make a directory's name unique."""
        return f"{self._random.getrandbits(_HEX_BITS):032x}"

    def create(self, path: Path, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        """Creates a log in the new directory `path`. StorageError when the disk fails."""
        with storage_errors("create", path), suppress(FileExistsError):
            self.disk.mkdir(path)
        # Bound to its topic before the first batch; durable with the log's first flush.
        write_partition_metadata(path, topic_id, fsync=False, disk=self.disk)
        log = self._open_log(
            path, topic, partition, topic_id, config, now_ms=now_ms, producer_id_expiration_ms=self.producer_id_expiration_ms
        )
        log.note_created()
        return log

    def open(self, directory: LogDirectory, key: TopicPartition, path: Path, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        """Opens the log at `path`, in a log directory whose checkpoints were just read. StorageError when it cannot be read."""
        checkpoints = directory.checkpoints
        log = self._open_log(
            path, key.topic, key.partition, topic_id, config, now_ms=now_ms,
            producer_id_expiration_ms=self.producer_id_expiration_ms, was_clean_stop=directory.was_clean_stop,
            log_start_offset=checkpoints.log_start_offsets.get(key, 0), recovery_point=checkpoints.recovery_points.get(key, 0),
        )  # fmt: skip
        if config.flush_messages == 1 and log.has_unflushed:
            # The records that an unclean stop left were mostly acknowledged as durable, so they count as durable from the start. Otherwise
            # the leader's high watermark would go back: consumers would miss records that they have seen, and coordinators commits that
            # they have answered.
            log.flush()
        clean_end = checkpoints.clean_end_offsets.get(key)
        if clean_end is not None and clean_end <= log.log_end_offset:
            log.clean_end_offset = clean_end
        high_watermark = checkpoints.high_watermarks.get(key, 0)
        log.set_high_watermark(high_watermark if high_watermark <= log.log_end_offset else 0)  # at least the log start
        log.checkpointed_end_offset = checkpoints.end_offset_of(key)
        return log

    def read_topic_id(self, path: Path) -> bytes | None:
        """The id in partition.metadata; None when it is missing or, after a power cut, empty."""
        try:
            return read_partition_metadata(path, self.disk)
        except CorruptFileError as error:
            logger.warning("ignored: %s", error)
            return None
