"""All logs of this broker, over its log directories (Kafka's LogManager): open, find, create, delete, checkpoint, close.

Invariants: a partition has one log, in one directory; a StorageError of one directory takes that directory's logs offline and no others.
Owner: the server, on the loop. Calls that block for long are returned as work to run in a thread: DeletionWork, CheckpointWork, and the
logs' FlushWork. The metadata quorum opens `__cluster_metadata-0` itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

from config.topic import LogConfig
from protocol.uuids import uuid_to_text
from storage import retention
from storage.deleted_directories import DeletedDirectories, DeletionWork
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import DirectoryInUseError, StorageError, is_descriptor_shortage
from storage.files import deleted_directory_name, partition_directory_name
from storage.future_logs import FutureLogs
from storage.log import Log
from storage.log_creations import CreationWork, NewLog
from storage.log_directory import CheckpointWork, Departure, LogDirectory, RemovalWork, check_identities
from storage.log_opener import LogOpener
from storage.log_segments import OpenSegments
from storage.meta_properties import NO_BROKER_EPOCH
from storage.producer_state import PRODUCER_ID_EXPIRATION_MS
from storage.startup import NO_TOPIC_ID, DirectoryIdOf, Startup, TopicIdOf

logger = logging.getLogger("barnabas.storage")


OPEN_SEGMENTS_MAX = 256  # closed segments of all logs together that keep their three descriptors


class _LeavingLog(NamedTuple):
    """A deleted log whose directory is not renamed yet, its new name, and the deletion delay of its files."""

    work: RemovalWork
    new_name: str
    delay_ms: int


class _LogBeingMade(NamedTuple):
    name: tuple[str, int]
    work: CreationWork
    directory: LogDirectory


def is_log_of(log: Log, topic_id: bytes) -> bool:
    """Whether the log belongs to that topic, and not to an earlier one of the same name."""
    return log.topic_id == topic_id or NO_TOPIC_ID in (log.topic_id, topic_id)


class LogManager:
    """See the module's docstring. `lock` first, then `open` once the topics' settings are known."""

    def __init__(
        self,
        log_dirs: Iterable[str | Path],
        *,
        random_source: Random,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        on_directory_failure: Callable[[Path, StorageError], None] | None = None,
        disk: Disk = SYSTEM_DISK,
    ) -> None:
        self.directories = [LogDirectory(Path(log_dir), disk) for log_dir in log_dirs]
        self._disk = disk
        self._on_directory_failure = on_directory_failure
        self._logs: dict[tuple[str, int], Log] = {}
        self._leaving: dict[tuple[str, int], _LeavingLog] = {}
        self._creating: dict[tuple[str, int], _LogBeingMade] = {}
        self._deleted: list[DeletedDirectories] = []
        self._opener = LogOpener(
            random_source=random_source,
            producer_id_expiration_ms=producer_id_expiration_ms,
            open_segments=OpenSegments(open_segments_max),
            disk=disk,
        )
        self.futures = FutureLogs(self._opener, self.directories, self._logs)

    @property
    def clean_shutdown_epoch(self) -> int:
        """The broker epoch of the last clean stop, after `open`; NO_BROKER_EPOCH unless all directories had the same."""
        if any(directory.is_offline for directory in self.directories):
            return NO_BROKER_EPOCH
        epochs = {directory.clean_shutdown_epoch for directory in self.directories}
        epoch = epochs.pop() if len(epochs) == 1 else None
        return NO_BROKER_EPOCH if epoch is None else epoch

    # -- opening ---------------------------------------------------------------------------------------------------

    def set_producer_id_expiration(self, expiration_ms: int) -> None:
        """Set how long producers are kept, for open and future logs."""
        if expiration_ms != self._opener.producer_id_expiration_ms:
            self._opener.producer_id_expiration_ms = expiration_ms
            for log in self._logs.values():
                log.producers.producer_id_expiration_ms = expiration_ms

    def lock(self) -> None:
        """Lock every directory and read its identity. An unreadable one goes offline, like one that fails later.

        StorageError when one is in use or belongs elsewhere, or when none can be read."""
        try:
            for directory in self.online_directories:
                self._lock_directory(directory)
            check_identities(self.directories)
        except StorageError:
            self.unlock()
            raise

    def _lock_directory(self, directory: LogDirectory) -> None:
        try:
            directory.lock()
        except DirectoryInUseError:
            raise
        except StorageError as error:
            if is_descriptor_shortage(error) or self.online_directories == [directory]:
                raise
            self.mark_offline(directory.path, error)

    def unlock(self) -> None:
        for directory in self.directories:
            directory.unlock()

    def open(
        self,
        *,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        topic_id_of: TopicIdOf | None = None,
        directory_id_of: DirectoryIdOf | None = None,
    ) -> None:
        """Open every log, recovering those of directories that were not stopped cleanly.

        With `topic_id_of`, the cluster's view (None for a partition that does not exist, or has no replica here), all other logs are set
        aside as stray. `directory_id_of` returns the directory of this broker's replica in the metadata. A directory that fails goes
        offline with its logs. So does one with a partition that another directory has too, except after a move (storage/startup.py)."""
        self.lock()
        startup = Startup(
            self._opener, self.directories, self._logs, self.futures, self._deleted,
            config_of=config_of, topic_id_of=topic_id_of, directory_id_of=directory_id_of, now_ms=now_ms,
        )  # fmt: skip
        self._each_online(startup.open_directory)
        self._each_online(startup.settle_twins)
        is_whole = len(self.online_directories) == len(self.directories)
        self._each_online(lambda directory: startup.promote_futures(directory, is_whole=is_whole))
        for work in self.futures.leaving():
            self.removed(work)

    def _each_online(self, open_one: Callable[[LogDirectory], None]) -> None:
        for directory in self.online_directories:
            try:
                open_one(directory)
            except StorageError as error:
                if is_descriptor_shortage(error):
                    raise  # not the fault of a disk
                self.mark_offline(directory.path, error)

    def mark_offline(self, path: Path, error: StorageError) -> None:
        """The disk failed at `path`, a log directory or something in it: drop the directory's logs without touching the disk again, and
        call the owner. A lack of descriptors is not a failure of a disk: only the operation has failed."""
        directory = next((each for each in self.directories if each.path == path or each.path in path.parents), None)
        if directory is None or directory.is_offline or is_descriptor_shortage(error):
            return
        path = directory.path
        directory.is_offline = True
        logger.error("log directory %s is offline: %s", path, error)
        self._leaving = {key: leaving for key, leaving in self._leaving.items() if leaving.work.path != path}
        for key, log in list(self._logs.items()):
            if log.directory.parent == path:
                del self._logs[key]
                log.abandon()
        self.futures.forget_directory(path)
        if self._on_directory_failure is not None:
            self._on_directory_failure(path, error)

    @property
    def online_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    def cordon(self, log_dirs: Iterable[str]) -> None:
        """Create no new logs in these directories, but again in all others."""
        cordoned = {Path(log_dir) for log_dir in log_dirs}
        for directory in self.directories:
            directory.is_cordoned = directory.path in cordoned

    def find_directory_id(self, log_dir: str) -> bytes | None:
        """Returns the id of the log directory at that path; None if it has none."""
        for directory in self.directories:
            if str(directory.path) == log_dir:
                return None if directory.meta is None else directory.meta.directory_id
        return None

    def find_directory(self, path: str) -> LogDirectory | None:
        """Returns the log directory at that absolute path, online or not."""
        return next((each for each in self.directories if str(each.path.absolute()) == path), None)

    # -- logs ------------------------------------------------------------------------------------------------------

    def find_log(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def logs(self) -> list[Log]:
        """The partitions' own logs."""
        return list(self._logs.values())

    def each_log(self) -> Iterator[Log]:
        """As `logs`, one by one for jobs in slices: logs deleted meanwhile are left out."""
        for name in tuple(self._logs):
            log = self._logs.get(name)
            if log is not None:
                yield log

    def all_logs(self) -> list[Log]:
        """Returns these, copies in other directories, and logs that a copy has just replaced."""
        return [*self._logs.values(), *self.futures]

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int, directory_id: bytes | None = None
    ) -> Log:
        """Returns the partition's log, created if it does not exist: in the directory requested by a client, else in the online one with
        that id, else in the one with the fewest logs that is not cordoned. StorageError if no disk takes it, or if there is a log of an
        earlier topic of that name.

        No checkpoint has an entry for a new log, because entries are removed with their logs. While a log of that name `is_leaving`,
        this blocks until it has left."""
        self._finish_creation((topic, partition))
        found = self.find_log(topic, partition)
        if found is not None:
            if not is_log_of(found, topic_id):
                known, asked = uuid_to_text(found.topic_id), uuid_to_text(topic_id)
                raise StorageError(f"{found.directory} is of topic id {known}, not {asked}", path=found.directory)
            return found
        key = topic, partition
        works = [leaving.work] if (leaving := self._leaving.get(key)) is not None else []
        if self.futures.is_leaving(key):
            works += [*self.futures.retire(*key), *self.futures.leaving()]
        self._remove_now(works)
        directory = self.futures.take_preferred(key) or self._directory_for_new_log(directory_id)
        path = directory.path / partition_directory_name(topic, partition)
        try:
            log = self._logs[key] = self._opener.create(path, topic, partition, topic_id, config, now_ms)
        except StorageError as error:
            self.mark_offline(directory.path, error)
            raise
        return log

    def plan_creations(self, wanted: Iterable[NewLog], now_ms: int) -> CreationWork:
        """Returns the work that creates the missing logs of `wanted`: run it in a thread, then pass it to `created`. Until then
        `create_log` of one of them creates it at once. None of these names may be `is_leaving`. StorageError when no directory is
        online."""
        work = CreationWork(self._opener, now_ms)
        for new in wanted:
            name = new.topic, new.partition
            if name not in self._logs and name not in self._creating:
                directory = self.futures.take_preferred(name) or self._directory_for_new_log(new.directory_id)
                work.add(new, directory)
                self._creating[name] = _LogBeingMade(name, work, directory)
        return work

    def created(self, work: CreationWork) -> None:
        """Take the logs of finished `work`."""
        for name in work.names:
            making = self._creating.get(name)
            if making is not None and making.work is work:
                self._finish_creation(name)

    def withdraw_creations(self, names: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Withdraw planned logs. Returns those that exist already and have to be deleted."""
        by_work: dict[CreationWork, list[_LogBeingMade]] = {}
        for name in names:
            making = self._creating.pop(name, None)
            if making is not None:
                by_work.setdefault(making.work, []).append(making)
        there = []
        for work, withdrawn in by_work.items():
            directories = {making.name: making for making in withdrawn}
            for log in work.withdraw(directories):
                if self._take_over(directories[log.topic, log.partition], log):
                    there.append((log.topic, log.partition))
        return there

    def _finish_creation(self, name: tuple[str, int]) -> None:
        making = self._creating.pop(name, None)
        if making is not None:
            self._take_over(making, making.work.finish(name))

    def _take_over(self, making: _LogBeingMade, made: Log | None) -> bool:
        if made is None:
            return False
        if making.directory.is_offline:
            made.abandon()
            return False
        self._logs[made.topic, made.partition] = made
        return True

    def delete_logs(self, partitions: Iterable[tuple[str, int]]) -> Generator[None, None, list[RemovalWork]]:
        """Close these logs. Returns work, one for each directory, that removes their checkpoint entries and renames their directories: run
        it in a thread, then pass it to `removed`. The files are deleted after file.delete.delay.ms.

        Yields after each log, 20 µs. The caller must not ask for logs of these names until it returns."""
        beside: list[RemovalWork] = []
        works: dict[str, RemovalWork] = {}  # built up with each closed log, so that no long step is left for the end
        for key in partitions:
            beside += self.futures.remove(*key)
            log = self._logs.pop(key, None)
            if log is None:
                continue
            log.abandon()
            work = works.get(log.log_dir)
            if work is None:
                (directory,) = (each for each in self.directories if str(each.path) == log.log_dir)
                work = works[log.log_dir] = directory.take_removal([])
            new_name = deleted_directory_name(*key, self._opener.draw_hex())
            work.departures.append(Departure(key, log.directory, log.directory.parent / new_name))
            self._leaving[key] = _LeavingLog(work, new_name, log.config.file_delete_delay_ms)
            yield
        online = [directory for directory in self.online_directories if str(directory.path) in works]  # one may have failed meanwhile
        for directory in online:
            directory.date_removal(works[str(directory.path)])
        return [*(works[str(directory.path)] for directory in online), *beside]

    def is_leaving(self, topic: str, partition: int) -> bool:
        """Whether a deleted log of that name still blocks a new one."""
        return (topic, partition) in self._leaving or self.futures.is_leaving((topic, partition))

    def removed(self, work: RemovalWork) -> None:
        """Called when `work` has run: its directories wait for their delay, and their names are free. A second call does nothing."""
        if self.futures.has_handed_out(work):
            self._deleted += self.futures.removed(work)
            return
        names: dict[int, list[str]] = {}  # by their delays
        for departure in work.departures:
            leaving = self._leaving.get(departure.key)
            if leaving is not None and leaving.work is work:
                del self._leaving[departure.key]
                names.setdefault(leaving.delay_ms, []).append(leaving.new_name)
        self._deleted += [DeletedDirectories(work.path, named, delay_ms) for delay_ms, named in names.items()]

    def update_config(self, topic: str, config: LogConfig) -> None:
        for log in self.all_logs():
            if log.topic == topic:
                log.update_config(config)

    def set_aside(self, topic: str, partition: int) -> None:
        """Close the log of that name, which is not a replica of this broker any more. Its directory stays as `-stray`, for the operator;
        the copy of an unfinished move is deleted. Blocks. A disk failure takes the directory offline."""
        works = self.futures.remove(topic, partition)
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            works.append(self.futures.take_removal(log, is_stray=True))
            stray = works[-1].departures[0].target.name
            logger.warning("%s is no replica that this broker is to have: set aside as %s", log.directory, stray)
        self._remove_now(works)

    # -- periodic --------------------------------------------------------------------------------------------------

    def enforce_retention_of(self, log: Log, now_ms: int) -> int:
        """Delete the segments that retention allows; returns their number. A disk failure takes the directory offline.

        The active segment is rolled only to delete it: otherwise only an append rolls it by time (UnifiedLog.deleteOldSegments)."""
        try:
            return log.delete_old_segments(now_ms)
        except StorageError as error:
            self.mark_offline(log.directory.parent, error)
            return 0

    def remove_expired_producers(self, now_ms: int) -> int:
        return sum(log.producers.remove_expired(now_ms) for log in self.all_logs())

    def take_due_deletions(self, now_ms: int) -> DeletionWork | None:
        """Returns work that deletes the files whose delay is over, for a thread; None if there are none. Takes 0.6 µs for each log."""
        files: list[retention.PendingDeletion] = []
        for log in chain(self.each_log(), self.futures):
            if log.deletions.is_any:
                files += log.deletions.take_due(now_ms)
        due: list[DeletedDirectories] = []
        waiting: list[DeletedDirectories] = []
        for deleted in self._deleted:
            if deleted.due_ms is None:
                deleted.due_ms = now_ms + deleted.delay_ms
            if deleted.due_ms <= now_ms:
                due.append(deleted)
            else:
                waiting.append(deleted)
        self._deleted = waiting
        return DeletionWork(tuple(files), tuple(due), self._disk) if files or due else None

    def take_checkpoints(self) -> list[CheckpointWork]:
        """Returns the checkpoints of every online directory, for a thread. Takes 1.6 µs for each log."""
        works = {str(directory.path): directory.take_checkpoint() for directory in self.online_directories}
        for log in chain(self.futures, self.each_log()):
            works[log.log_dir].note(log)
        return list(works.values())

    # -- closing ---------------------------------------------------------------------------------------------------

    def close_clean(self, *, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flush and close every log, write checkpoints and the clean-stop marker, unlock; blocks."""
        self.withdraw_creations(tuple(self._creating))
        self._remove_now([*{leaving.work for leaving in self._leaving.values()}, *self.futures.leaving()])
        is_durable = True
        for directory in self.online_directories:
            try:
                self._close_directory(directory, broker_epoch)
            except (StorageError, OSError) as error:
                is_durable = False
                logger.error("log directory %s was not closed cleanly: %s", directory.path, error)
        if is_durable:
            self._remove_now(self.futures.retire_all())  # Kafka does not start with two directories of a partition
        self._logs.clear()
        self.unlock()

    def _remove_now(self, works: Iterable[RemovalWork]) -> None:
        for work in works:
            try:
                work.run()
            except StorageError as error:
                self.mark_offline(work.path, error)
            else:
                self.removed(work)

    def _directory_for_new_log(self, directory_id: bytes | None) -> LogDirectory:
        online = self.online_directories
        if not online:
            raise StorageError("no log directory is online")
        if len(online) == 1:
            return online[0]
        for directory in online:
            if directory_id is not None and directory.meta is not None and directory.meta.directory_id == directory_id:
                return directory
        counts = Counter(log.log_dir for log in self._logs.values())
        counts.update(str(making.directory.path) for making in self._creating.values())
        # If all are cordoned, the first is taken, as in Kafka: the replica was assigned to this broker all the same.
        open_ones = [directory for directory in online if not directory.is_cordoned] or online[:1]
        return min(open_ones, key=lambda directory: counts[str(directory.path)])

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self.all_logs() if log.log_dir == str(directory.path)]

    def _close_directory(self, directory: LogDirectory, broker_epoch: int) -> None:
        logs = self._logs_in(directory)
        if self._disk.can_syncfs():
            works = []
            for log in logs:
                log.write_state()
                work = log.take_flush()
                works.append((log, work))
                if work is not None:
                    work.prepare()
            self._disk.syncfs(directory.descriptor)
            for log, work in works:
                if work is not None:
                    log.flushed(work)
                log.abandon()
        else:
            for log in logs:
                log.close()
        checkpoint = directory.take_checkpoint()
        for log in logs:
            checkpoint.note(log)
        checkpoint.run()
        directory.end(broker_epoch)
