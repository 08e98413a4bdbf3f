"""Replicas that move to another log directory of this broker (KIP-113): the copies, the logs that they replaced, and the requested
directories.

A copy, the future log, is in `<topic>-<partition>.<hex>-future` in its target. When it has all records of the current log, it replaces it:
the copy's directory is renamed, the tables are updated, and the replaced log stays until the copy is durable. After a kill at any point the
next start finds a complete log (storage/startup.py). A future log's entries in its directory's checkpoints have the partition's name: after
the rename they are those of the log.
Owner: LogManager, which shares its table of logs with this. Source: kafka.log.LogManager's futureLogs, preferredLogDirs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from storage.deleted_directories import DeletedDirectories
from storage.files import deleted_directory_name, future_directory_name, is_deleted_directory, stray_directory_name
from storage.log import Log
from storage.log_directory import Departure, LogDirectory, RemovalWork
from storage.log_opener import LogOpener
from storage.relocation import Relocation

logger = logging.getLogger("barnabas.storage")

LogKey = tuple[str, int]

PREFERRED_DIRECTORIES_MAX = 10_000
"""Directories wanted for partitions that are not here; the oldest is forgotten beyond. Any client can name such partitions."""


class FutureLogs:
    """See the module's docstring."""

    def __init__(self, opener: LogOpener, directories: list[LogDirectory], current: dict[LogKey, Log]) -> None:
        self._opener = opener
        self._directories = directories
        self._current = current
        self._futures: dict[LogKey, Log] = {}
        self._replaced: dict[LogKey, Log] = {}
        self._leaving: dict[RemovalWork, int] = {}  # and the delay of the files
        self._preferred: dict[LogKey, LogDirectory] = {}

    def __iter__(self) -> Iterator[Log]:
        """Iterates over every log in here, including replaced ones."""
        return chain(self._futures.values(), self._replaced.values())

    def find(self, topic: str, partition: int) -> Log | None:
        """Returns the partition's copy if the partition is moving; else None."""
        return self._futures.get((topic, partition))

    def futures(self) -> list[Log]:
        return list(self._futures.values())

    # -- a move, step by step --------------------------------------------------------------------------------------

    def add(self, log: Log) -> None:
        """Add a copy that a start has found."""
        self._futures[log.topic, log.partition] = log

    def create(self, source: Log, directory: LogDirectory, now_ms: int) -> Log:
        """Create an empty copy of `source` in another directory. No directory of an earlier move may be `is_leaving`. StorageError when
        the disk fails."""
        key = source.topic, source.partition
        assert key not in self._futures and source.log_dir != str(directory.path), "a partition has one copy, in another directory"
        assert not self.is_leaving(key), "an earlier copy, or a log that one replaced, has entries in the checkpoints still"
        path = directory.path / future_directory_name(*key, self._opener.draw_hex())
        log = self._opener.create(path, *key, source.topic_id, source.config, now_ms)
        self._futures[key] = log
        self._preferred.pop(key, None)
        return log

    def relocation_of(self, log: Log) -> Relocation:
        """Returns the relocation that gives this copy the name of the partition's directory."""
        return Relocation(log, f"{log.topic}-{log.partition}", self._opener.disk)

    def promote(self, relocation: Relocation) -> None:
        """Replace the current log, if there is one, by the copy; `retire` then removes the old one. StorageError when the copy's disk
        fails: nothing has changed then."""
        log = relocation.log
        key = log.topic, log.partition
        assert self._futures.get(key) is log and key not in self._replaced
        relocation.apply()
        del self._futures[key]
        source = self._current.get(key)
        self._current[key] = log
        if source is not None:
            self._replaced[key] = source
            if source.clean_end_offset is not None:  # nothing is compacted during a move: the clean part is clean in the copy
                log.clean_end_offset = min(source.clean_end_offset, log.log_end_offset)

    def retire(self, topic: str, partition: int, *, is_needed: bool = False) -> list[RemovalWork]:
        """Close the log that a copy has replaced. The returned work, if any, renames its directory: run it off the loop, then pass it to
        LogManager.removed. The caller has made the copy durable. If that failed, the log `is_needed`: it is set aside for the operator
        but never served, because it lacks later appends."""
        replaced = self._replaced.pop((topic, partition), None)
        return [] if replaced is None else [self.take_removal(replaced, is_stray=is_needed)]

    def retire_all(self) -> list[RemovalWork]:
        """As `retire`, for every replaced log."""
        return [work for key in list(self._replaced) for work in self.retire(*key)]

    def remove(self, topic: str, partition: int) -> list[RemovalWork]:
        """End the partition's move, or delete the partition: as `retire`, for its copy and for a replaced log."""
        works = self.retire(topic, partition)
        future = self._futures.pop((topic, partition), None)
        return works if future is None else [*works, self.take_removal(future)]

    def take_removal(self, log: Log, *, is_stray: bool = False) -> RemovalWork:
        """Close a log that has left all tables, to be deleted or set aside."""
        key = log.topic, log.partition
        log.abandon()
        (directory,) = (each for each in self._directories if str(each.path) == log.log_dir)
        unique_hex = self._opener.draw_hex()
        name = stray_directory_name(*key, unique_hex) if is_stray else deleted_directory_name(*key, unique_hex)
        work = directory.take_removal([Departure(key, log.directory, log.directory.with_name(name))])
        self._leaving[work] = log.config.file_delete_delay_ms
        return work

    def has_handed_out(self, work: RemovalWork) -> bool:
        """Whether `work` was returned here and has not been passed to `removed` yet."""
        return work in self._leaving

    def removed(self, work: RemovalWork) -> list[DeletedDirectories]:
        """Called when `work` has run. Returns its directory, which now waits for its delay, unless it has to stay."""
        delay_ms = self._leaving.pop(work)
        name = work.departures[0].target.name
        return [DeletedDirectories(work.path, [name], delay_ms)] if is_deleted_directory(name) else []

    # -- what is in the way, and what was wished for ---------------------------------------------------------------

    def is_leaving(self, key: LogKey) -> bool:
        """Whether a directory of that partition still blocks a new log."""
        return key in self._replaced or any(work.departures[0].key == key for work in self._leaving)

    def leaving(self) -> list[RemovalWork]:
        """Work that was returned and has not been passed to `removed` yet."""
        return list(self._leaving)

    def prefer(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Create the partition's log in that directory when this broker gets a replica."""
        self._preferred.pop((topic, partition), None)
        self._preferred[topic, partition] = directory
        if len(self._preferred) > PREFERRED_DIRECTORIES_MAX:
            del self._preferred[next(iter(self._preferred))]

    def take_preferred(self, key: LogKey) -> LogDirectory | None:
        """Returns and removes the directory that was requested for the partition."""
        directory = self._preferred.pop(key, None)
        return None if directory is None or directory.is_offline else directory

    def forget_directory(self, path: Path) -> None:
        """Drop the logs of a failed log directory, without touching its disk."""
        for logs in (self._futures, self._replaced):
            for key, log in list(logs.items()):
                if log.directory.parent == path:
                    del logs[key]
                    log.abandon()
        self._leaving = {work: delay_ms for work, delay_ms in self._leaving.items() if work.path != path}


def has_all_of(copy: Log, other: Log) -> bool:
    """Whether `copy` ends where `other` does or later: by the epoch of the last record, then by the offset, as voters compare logs.

    Logs of one partition are equal as far as their epochs are, so the one that ends later has every record that counts."""
    return _end_of(copy) >= _end_of(other)


def _end_of(log: Log) -> tuple[int, int]:
    epoch = log.leader_epochs.find_epoch_for_offset(log.log_end_offset - 1)
    return -1 if epoch is None else epoch, log.log_end_offset
