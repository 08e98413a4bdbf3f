"""Logs that are being made: a thread makes them, for mkdir and open wait while the filesystem commits its journal, 10 to 30 ms at times.

A log that somebody cannot wait for is made at once by who needs it. So a creation is known from the moment it is planned until the
LogManager has the log, and no name is ever made twice.
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
    """A log to be made, and the epoch that this broker is to lead it in from its first record on; None if it does not lead."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    directory_id: bytes | None
    leader_epoch: int | None


class CreationWork:
    """Logs to be made, by `run` in a thread. The LogManager plans them, and takes over what was made.

    The lock is held while one is made: nobody sees half a log. Who waits for it holds `_next`, so that the thread, which takes it again
    and again, lets him in after the one that it is making."""

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
        """One more, to be made in that directory; before `run`."""
        name = new.topic, new.partition
        self._left[name] = new, directory
        self.names.append(name)

    def run(self) -> None:
        """Make one after the other; blocks. What cannot be made is left out: who needs it tries again, and hears why."""
        for name in self.names:
            with self._turn():
                self._make(name)

    def finish(self, name: PartitionName) -> Log | None:
        """The log, which is made now if it is not there yet; blocks for one creation at most. None if it cannot be made, or was taken."""
        with self._turn():
            self._make(name)
            return self._made.pop(name, None)

    def withdraw(self, names: Collection[PartitionName]) -> list[Log]:
        """They are needed no more: the logs that are made already. Blocks for one creation at most."""
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
