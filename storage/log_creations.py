"""Creates logs in a thread: mkdir and open wait while the file system commits its journal, sometimes for 10 to 30 ms.

Code that cannot wait for the thread creates a log itself. So a creation is registered from its planning until the LogManager has the log,
and no log is created twice.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import StorageError
from storage.files import partition_directory_name

if TYPE_CHECKING:
    from config.topic import LogConfig
    from storage.log import Log
    from storage.log_directory import LogDirectory
    from storage.log_opener import LogOpener

PartitionName = tuple[str, int]


class NewLog(NamedTuple):
    """A log to create, and the leader epoch of its first record; None if this broker does not lead it."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    directory_id: bytes | None
    leader_epoch: int | None


class CreationWork:
    """Logs to be created by `run` in a thread. The LogManager plans them, and takes the created ones.

    The lock is held while a log is created, so that a partly created one is never seen. A caller that waits for the lock holds `_next`,
    so that the thread, which takes the lock for each log, lets it in after the present one."""

    __slots__ = ("_left", "_lock", "_made", "_next", "_now_ms", "_opener", "names")

    def __init__(self, opener: LogOpener, now_ms: int) -> None:
        self._opener = opener
        self._now_ms = now_ms
        self._left: dict[PartitionName, tuple[NewLog, LogDirectory]] = {}
        self._made: dict[PartitionName, Log] = {}
        self._lock = threading.Lock()
        self._next = threading.Lock()
        self.names: list[PartitionName] = []

    def add(self, new: NewLog, directory: LogDirectory) -> None:
        """Add a log to be created in that directory; before `run`."""
        name = new.topic, new.partition
        self._left[name] = new, directory
        self.names.append(name)

    def run(self) -> None:
        """Create the logs one after the other; blocks. Failures are skipped: code that needs the log tries again and gets the error."""
        for name in self.names:
            with self._turn():
                self._make(name)

    def finish(self, name: PartitionName) -> Log | None:
        """Returns the log, which is created now if it does not exist yet; blocks for at most one creation. None if it cannot be created,
        or was taken."""
        with self._turn():
            self._make(name)
            return self._made.pop(name, None)

    def withdraw(self, names: Collection[PartitionName]) -> list[Log]:
        """Withdraw these logs. Returns those that are created already. Blocks for at most one creation."""
        with self._turn():
            for name in names:
                self._left.pop(name, None)
            return [self._made.pop(name) for name in names if name in self._made]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._next:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _make(self, name: PartitionName) -> None:
        wanted = self._left.pop(name, None)
        if wanted is None or wanted[1].is_offline:
            return
        new, directory = wanted
        path = directory.path / partition_directory_name(*name)
        try:
            log = self._opener.create(path, new.topic, new.partition, new.topic_id, new.config, self._now_ms)
            if new.leader_epoch is not None:
                log.assign_leader_epoch(new.leader_epoch)
        except StorageError:
            return
        self._made[name] = log
