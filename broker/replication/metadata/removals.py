"""Partitions that are no longer hosted, and their removal: their logs are closed, requests that wait for them end, their directories leave.

Few are closed at once. A topic may have thousands, 20 µs each: their logs are closed in turns, and until then nothing may take their
names. Owner: the ReplicaManager, which finds none of them any more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker.loop.loop_job import LoopJob
from broker.replication.countdown import countdown
from broker.replication.partition_role import OFFLINE
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.loop.blocking import BlockingResult, RunBlocking
    from broker.loop.clock import Clock
    from broker.replication.partition import Partition
    from storage.log_directory import RemovalWork
    from storage.log_manager import LogManager

CLOSED_PIECE_PARTITIONS = 100
"""Closed partitions whose waiters are notified between two yields, and that are freed, 5 µs each where nobody waits."""

PIECES_PER_TURN = 2
"""Pieces in one turn of the loop, a millisecond each."""

FREED_PER_TURN = 500
"""Departures of work that is done, with two paths each, that are freed in one turn: 2 µs each."""


class PartitionRemovals:
    """See the module's docstring.

    `on_closed(partition)` is called for each whose log is closed, `on_left()` when directories are out of the way of new ones, and
    `on_failure(path, error)` when they could not be."""

    def __init__(
        self,
        clock: Clock,
        log_manager: LogManager,
        run_blocking: RunBlocking,
        *,
        on_closed: Callable[[Partition], None],
        on_left: Callable[[], None],
        on_failure: Callable[[Path, StorageError], None],
    ) -> None:
        self._log_manager = log_manager
        self._run_blocking = run_blocking
        self._on_closed = on_closed
        self._on_left = on_left
        self._on_failure = on_failure
        self._closing: deque[Generator[None, None, None]] = deque()
        self._topics: Counter[str] = Counter()  # by how many of `_closing` each is in the way
        self._when_closed: list[Callable[[], None]] = []
        self._works: dict[RemovalWork, list[Callable[[], None]]] = {}  # in progress, and the callbacks that wait for each
        self._job = LoopJob(clock, self._run_slice)
        self._leaving: deque[Generator[None, None, None]] = deque()  # of works that are done
        self._leave_job = LoopJob(clock, self._leave_more)

    def add(self, partitions: Sequence[Partition]) -> None:
        """Close their logs now, as far as a turn allows, unless others are before them."""
        if not partitions:
            return
        offline = {partition for partition in partitions if partition.role is OFFLINE}
        for partition in partitions:
            partition.mark_deleted()
        topics = {partition.topic for partition in partitions}
        # Marking thousands has taken a piece's time already.
        pieces_count = 1 if len(partitions) > CLOSED_PIECE_PARTITIONS else PIECES_PER_TURN
        self._begin(self._close(deque(partitions), offline, topics), topics, pieces_count)

    def add_logs(self, names: Collection[tuple[str, int]]) -> None:
        """The same for logs that have no partitions."""
        if names:
            topics = {topic for topic, _ in names}
            self._begin(self._remove_logs(names, topics), topics)

    def _begin(self, closing: Generator[None, None, None], topics: set[str], pieces_count: int = PIECES_PER_TURN) -> None:
        self._topics.update(topics)
        self._closing.append(closing)
        if not self._job.is_waiting and self._run_slice(pieces_count):
            self._job.resume()

    def is_leaving(self, topic: str, partition: int) -> bool:
        """Whether a deleted log still blocks a new one of that name."""
        return topic in self._topics or self._log_manager.is_leaving(topic, partition)

    def when_left(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the directories of the partitions added so far are out of the way of new ones."""
        if self._closing:
            self._when_closed.append(lambda: self.when_left(callback))
            return
        note_left = countdown(len(self._works), callback)
        for callbacks in self._works.values():
            callbacks.append(note_left)

    def stop(self) -> None:
        """Close the rest at once: a directory that kept its name would be taken for a stray at the next start."""
        self._job.stop()
        self._leave_job.stop()
        while self._closing:
            deque(self._closing.popleft(), maxlen=0)

    def _run_slice(self, pieces_count: int = PIECES_PER_TURN) -> bool:
        """Close a few; whether there are more."""
        for _ in range(pieces_count):
            if not self._closing:
                break
            if next(self._closing[0], self) is self:  # over
                self._closing.popleft()
        if self._closing:
            return True
        callbacks, self._when_closed = self._when_closed, []
        for callback in callbacks:
            callback()
        return bool(self._closing)

    def _close(self, partitions: deque[Partition], offline: set[Partition], topics: set[str]) -> Generator[None, None, None]:
        """Takes `partitions` one by one in the end: to free thousands at once takes too long. Those that were `offline` have no log."""
        keys = ((partition.topic, partition.partition) for partition in partitions if partition not in offline)
        yield from self._remove_logs(keys, topics)
        while partitions:
            self._on_closed(partitions.popleft())
            if len(partitions) % CLOSED_PIECE_PARTITIONS == 0:
                yield

    def _remove_logs(self, names: Iterable[tuple[str, int]], topics: set[str]) -> Generator[None, None, None]:
        works = yield from self._log_manager.delete_logs_in_pieces(names)
        for work in works:
            self._works[work] = []
            self._run_blocking(work.run).add_done_callback(partial(self._end, work))
        self._topics -= Counter(topics)  # from here on the log manager knows which are in the way

    def _end(self, work: RemovalWork, done: BlockingResult) -> None:
        is_removed = False
        try:
            done.result()
            is_removed = True
        except StorageError as error:
            self._on_failure(work.path, error)
        finally:
            leaving = self._leave(work, is_removed)
            if next(leaving, self) is not self:  # there is more: in later turns, behind others
                self._leaving.append(leaving)
                self._leave_job.resume()

    def _leave(self, work: RemovalWork, is_removed: bool) -> Generator[None, None, None]:
        if is_removed:
            yield from self._log_manager.removed_in_pieces(work)
        callbacks = self._works.pop(work)
        self._on_left()
        for callback in callbacks:
            callback()
        while work.is_done and work.departures:
            del work.departures[-FREED_PER_TURN:]
            if work.departures:
                yield

    def _leave_more(self) -> bool:
        """Whether there is still more."""
        if next(self._leaving[0], self) is self:  # over
            self._leaving.popleft()
        return bool(self._leaving)
