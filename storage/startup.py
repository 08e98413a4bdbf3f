"""Sorts the partitions' directories at a start: logs, copies of interrupted moves, strays and leftovers.

First all directories are opened. Then the interrupted moves are settled, for which both logs of a partition must be open:
- Case A: the metadata has the partition in the copy's directory, and the copy ends at the current log's end or later: it replaces the log.
The controller was told, but the swap did not happen, or a power cut has undone its rename.
- Case B: any other copy is kept, and the move continues. Kafka promotes even a copy that lacks records, if the metadata says so.
- Case C: two directories have the partition's own name, and one of them is that of the metadata: a kill came after the swap and before the
replaced log was removed. The one that ends later stays; if they end at the same offset, that of the metadata. Kafka stops and asks the
operator. Used by LogManager.open alone.
Source: kafka.log.LogManager.loadLog, recoverAbandonedFutureLogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from config.topic import LogConfig
from storage.deleted_directories import DeletedDirectories
from storage.errors import StorageError
from storage.files import (
    PARTITION_METADATA,
    TopicPartition,
    delete_if_exists,
    deleted_directory_name,
    is_deleted_directory,
    stray_directory_name,
)
from storage.future_logs import FutureLogs, LogKey, has_all_of
from storage.log import Log
from storage.log_directory import Checkpoints, Departure, DirectoryListing, LogDirectory
from storage.log_opener import LogOpener
from storage.meta_properties import write_partition_metadata

logger = logging.getLogger("barnabas.storage")

DELETE_AT_ONCE = 0
NO_TOPIC_ID = bytes(16)

ConfigOf = Callable[[str], LogConfig]
TopicIdOf = Callable[[str, int], bytes | None]
DirectoryIdOf = Callable[[str, int], bytes | None]


class Startup:
    """See the module's docstring. Without `topic_id_of` and `directory_id_of`, the views of the metadata, nothing is stray and no
    directory is known. Fills `logs`, `futures` and `deleted`."""

    def __init__(
        self,
        opener: LogOpener,
        directories: list[LogDirectory],
        logs: dict[LogKey, Log],
        futures: FutureLogs,
        deleted: list[DeletedDirectories],
        *,
        config_of: ConfigOf,
        topic_id_of: TopicIdOf | None,
        directory_id_of: DirectoryIdOf | None,
        now_ms: int,
    ) -> None:
        self._opener = opener
        self._disk = opener.disk
        self._directories = directories
        self._logs = logs
        self._futures = futures
        self._deleted = deleted
        self._config_of = config_of
        self._topic_id_of = topic_id_of
        self._directory_id_of = directory_id_of
        self._now_ms = now_ms
        self._twins: dict[str, list[Log]] = {}  # duplicate logs by the second log directory

    def open_directory(self, directory: LogDirectory) -> None:
        """Open the directory's logs. StorageError when its disk fails, or when another directory has one of its partitions."""
        directory.begin()
        listing = directory.list()
        departures, orphans = self._find_departures(directory, listing)
        if departures or orphans:
            directory.take_removal(departures, orphans).run()
        leavers = {departure.source for departure in departures}
        deleted = [path.name for path in listing.deleted]
        deleted += [each.target.name for each in departures if is_deleted_directory(each.target.name)]
        if deleted:
            self._deleted.append(DeletedDirectories(directory.path, deleted, DELETE_AT_ONCE))
        logs = [self._open_current(directory, key, path) for key, path in listing.partitions.items() if path not in leavers]
        for key, path in listing.futures:
            if path not in leavers:
                logs.append(self._open(directory, key, path))
                self._futures.add(logs[-1])
        if any(_lacks_what_is_named(log, directory.checkpoints) for log in logs):
            checkpoint = directory.take_checkpoint()
            for log in logs:
                checkpoint.note(log)
            checkpoint.run()

    def settle_twins(self, directory: LogDirectory) -> None:
        """Case C, for the second of two directories. StorageError when a disk fails."""
        for twin in self._twins.pop(str(directory.path), ()):
            key = twin.topic, twin.partition
            other = self._logs.get(key)
            if other is None:  # its directory has failed
                twin.abandon()  # which of them has more records is not known
                continue
            is_named = self._known_directory(key) == _id_of(directory)
            stays, goes = (twin, other) if has_all_of(twin, other) and (is_named or not has_all_of(other, twin)) else (other, twin)
            logger.warning("%s-%d is in two directories: kept %s, deleted %s", *key, stays.directory, goes.directory)
            self._logs[key] = stays
            self._futures.take_removal(goes).run()

    def promote_futures(self, directory: LogDirectory, *, is_whole: bool) -> None:
        """Case A, for the copies in `directory`. With `is_whole`, every log directory is online: a partition without a current log has
        lost it then. StorageError when a disk fails."""
        for future in self._futures.futures():
            key = future.topic, future.partition
            current = self._logs.get(key)
            if future.log_dir != str(directory.path):
                continue
            if current is not None and current.log_dir == future.log_dir:  # an operator has moved the partition by hand
                for work in self._futures.remove(*key):
                    work.run()
            elif self._known_directory(key) != _id_of(directory):
                continue
            elif (current is None and is_whole) or (current is not None and has_all_of(future, current)):
                logger.warning("the move of %s-%d to %s had got as far as its last step: done", *key, directory.path)
                if current is not None:
                    future.set_high_watermark(max(future.high_watermark, current.high_watermark))
                    future.set_log_start_offset(min(current.log_start_offset, future.high_watermark))
                self._futures.promote(self._futures.relocation_of(future))
                future.flush()
                for work in self._futures.retire(*key):
                    work.run()

    def _find_departures(self, directory: LogDirectory, listing: DirectoryListing) -> tuple[list[Departure], set[LogKey]]:
        """Returns directories to rename at once, and checkpoint entries without a directory."""
        departures: list[Departure] = []
        stay: set[LogKey] = set()
        copied: set[LogKey] = {(log.topic, log.partition) for log in self._futures.futures()}
        for key, path in (*listing.partitions.items(), *listing.futures):
            is_future = path.name != f"{key.topic}-{key.partition}"
            if self._is_stray(key, path):
                stray = path.with_name(stray_directory_name(*key, self._opener.draw_hex()))
                logger.warning("%s is no replica that this broker is to have: set aside as %s", path, stray.name)
                departures.append(Departure(key, path, stray))
            elif is_future and key in copied:
                logger.warning("%s is a second copy of a move: deleted", path)
                departures.append(Departure(key, path, path.with_name(deleted_directory_name(*key, self._opener.draw_hex()))))
            else:
                stay.add(key)
                if is_future:
                    copied.add(key)
        return departures, directory.find_orphans(stay)

    def _is_stray(self, key: TopicPartition, path: Path) -> bool:
        if self._topic_id_of is None:
            return False
        known_id = self._topic_id_of(*key)
        return known_id is None or self._opener.read_topic_id(path) not in (None, known_id)

    def _open_current(self, directory: LogDirectory, key: TopicPartition, path: Path) -> Log:
        other = self._logs.get(key)
        if other is None:
            log = self._logs[key] = self._open(directory, key, path)
            return log
        known = self._known_directory(key)
        if known is None or (known != _id_of(directory) and self._is_elsewhere(other, known)):
            raise StorageError(f"{key.topic}-{key.partition} is in {other.directory.parent} and in {directory.path}", path=path)
        twin = self._open(directory, key, path)
        self._twins.setdefault(str(directory.path), []).append(twin)
        return twin

    def _open(self, directory: LogDirectory, key: TopicPartition, path: Path) -> Log:
        known_id = self._topic_id_of(*key) if self._topic_id_of is not None else None
        topic_id = self._opener.read_topic_id(path)
        if topic_id is None and known_id is not None:
            delete_if_exists(path / PARTITION_METADATA, self._disk)
            write_partition_metadata(path, known_id, disk=self._disk)
        log_id = topic_id or known_id or NO_TOPIC_ID
        return self._opener.open(directory, key, path, log_id, self._config_of(key.topic), self._now_ms)

    def _known_directory(self, key: LogKey) -> bytes | None:
        return None if self._directory_id_of is None else self._directory_id_of(*key)

    def _is_elsewhere(self, log: Log, directory_id: bytes) -> bool:
        """Whether the log is in another directory than that of this id."""
        return all(_id_of(each) != directory_id for each in self._directories if str(each.path) == log.log_dir)


def _lacks_what_is_named(log: Log, checkpoints: Checkpoints) -> bool:
    """Whether a checkpoint has an offset above the log's end. If the log grew past that before the next checkpoint, after a power cut
    the new records would count as durable, committed, clean or deleted."""
    key = log.topic, log.partition
    return (
        checkpoints.recovery_points.get(key, 0) > log.recovery_point
        or checkpoints.high_watermarks.get(key, 0) > log.high_watermark
        or checkpoints.log_start_offsets.get(key, 0) > log.log_start_offset
        or (key in checkpoints.clean_end_offsets and log.clean_end_offset is None)
    )


def _id_of(directory: LogDirectory) -> bytes | None:
    return None if directory.meta is None else directory.meta.directory_id
