"""LogDirectories: the group commit of each log directory, and the failure of one.

Source: kafka.server.ReplicaManager.handleLogDirFailure; group commit has no counterpart there: Kafka flushes inline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from broker.replication.countdown import countdown
from broker.replication.group_commit import GroupCommitter
from storage.errors import StorageError, is_descriptor_shortage

if TYPE_CHECKING:
    from broker.loop.blocking import RunBlocking
    from broker.loop.clock import Clock
    from broker.replication.hosted_partitions import HostedPartitions
    from broker.replication.partition import Partition
    from broker.replication.waiting_requests import WaitingRequests
    from storage.log import Log

log = logging.getLogger("barnabas.replication")


class LogDirectories:
    """See the module's docstring.

    `on_failure(directory, error)` is called once for each log directory that fails, after its partitions went offline."""

    def __init__(
        self,
        hosted: HostedPartitions,
        waiting: WaitingRequests,
        clock: Clock,
        run_blocking: RunBlocking,
        on_failure: Callable[[Path, StorageError], None] | None,
    ) -> None:
        self._hosted = hosted
        self._waiting = waiting
        self._clock = clock
        self._run_blocking = run_blocking
        self._on_failure = on_failure
        self._failed: set[Path] = set()
        self._committers: dict[str, GroupCommitter] = {}  # by log directory

    def request_flush(self, partitions: Iterable[Partition]) -> None:
        """Make the partitions' logs durable off the loop, by group commit."""
        committers: dict[GroupCommitter, None] = {}
        for partition in partitions:
            if not partition.is_offline:
                committer = self._committer_of(partition.log)
                committer.add(partition)
                committers[committer] = None
        for committer in committers:
            committer.start()

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once every flush requested so far has ended."""
        note_flushed = countdown(len(self._committers), callback)
        for committer in tuple(self._committers.values()):
            committer.when_flushed(note_flushed)

    def fail(self, path: Path | str, error: StorageError) -> None:
        """Take the log directory at `path`, or the one that contains `path`, offline. Its partitions answer KAFKA_STORAGE_ERROR from now
        on, and requests that wait for them end. A second call for the same failure does nothing."""
        path = Path(path)
        if is_descriptor_shortage(error):
            log.error("out of descriptors dir=%s error=%s", path, error)
            return
        lost = [
            partition for partition in self._hosted if not partition.is_offline and partition.log.directory.parent in (path, *path.parents)
        ]
        log_dirs = {partition.log.directory.parent: None for partition in lost} or {path: None}
        for partition in lost:
            partition.mark_offline()
        for log_dir in log_dirs:
            if log_dir not in self._failed:
                self._failed.add(log_dir)
                log.error("log directory failed dir=%s error=%s", log_dir, error)
                if self._on_failure is not None:
                    self._on_failure(log_dir, error)
        for partition in lost:
            self._waiting.wake(partition)

    def _committer_of(self, partition_log: Log) -> GroupCommitter:
        committer = self._committers.get(partition_log.log_dir)
        if committer is None:
            log_dir = partition_log.directory.parent
            committer = self._committers[partition_log.log_dir] = GroupCommitter(
                log_dir,
                run_blocking=self._run_blocking,
                call_later=self._clock.call_later,
                on_flushed=self._note_flushed,
                on_failure=self.fail,
            )
        return committer

    def _note_flushed(self, partition: Partition) -> None:
        partition.maybe_advance_high_watermark(self._clock.monotonic_ms() if partition.followers else 0)
        self._waiting.wake(partition)
