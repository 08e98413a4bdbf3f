"""Group commit: one committer for each log directory makes its appended records durable, off the loop.

Appends ask for a flush and do not wait. While one round of fsyncs runs in a thread, further requests gather, and the next round takes them
all. Thousands of logs take several rounds, because each log costs the loop some microseconds. So all requests that wait share one fsync,
and at most one round per directory is in flight. A round of many files is one syncfs: 200 dirty files take 1.3 ms that way and 24.5 ms one
by one.

Invariant: a log whose flush was requested is dirty here, or in the round that runs, until `on_flushed` was called for it.

A failed round is not repeated: the kernel may have dropped the pages that it could not write, so a second fsync would succeed without
having written them. A round that lacks descriptors is: no fsync has failed then, and the log directory stays online (LogDirectories.fail).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.loop.blocking import BlockingResult, RunBlocking
from storage.errors import StorageError, is_descriptor_shortage

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from storage.flush import FlushWork
    from storage.log import Log

ROUND_PARTITIONS_MAX = 200
"""Partitions of one round: a millisecond of the loop at its begin and two at its end."""

SMALL_ROUND_PARTITIONS_MAX = 50
"""A round with no more partitions begins the next one in the turn of the loop in which it ends."""

SHORTAGE_WAIT_MS = 1_000
"""Until a round is tried again that the process had not enough descriptors for."""

SYNC_FILES_MAX = 4  # dirty files of one round up to which fdatasync each is cheaper than one syncfs


class _LogFlush(NamedTuple):
    """A partition of a round, and its log at the start of the round."""

    partition: Partition
    log: Log
    work: FlushWork


class _Waiter:
    """A callback that waits until the first `partitions_count` dirty partitions are flushed, in the order of their rounds."""

    __slots__ = ("callback", "partitions_count")

    def __init__(self, partitions_count: int, callback: Callable[[], None]) -> None:
        self.partitions_count = partitions_count
        self.callback = callback


class GroupCommitter:
    """The rounds of one log directory. `on_flushed(partition)` follows each partition's flush, on the loop. `call_later(delay_ms,
    callback)` is the clock's."""

    def __init__(
        self,
        log_dir: Path,
        *,
        run_blocking: RunBlocking,
        call_later: Callable[[float, Callable[[], None]], Any],
        on_flushed: Callable[[Partition], None],
        on_failure: Callable[[Path, StorageError], None],
    ) -> None:
        self.log_dir = log_dir
        self._log_dir_name = str(log_dir)
        self.round_count = 0
        self._run_blocking = run_blocking
        self._call_later = call_later
        self._on_flushed = on_flushed
        self._on_failure = on_failure
        self._dirty: OrderedDict[Partition, None] = OrderedDict()  # in the order of their rounds
        self._is_running = False  # a round runs, or the next one begins in the next turn of the loop
        self._round_size = 0  # partitions
        self._is_failed = False
        self._waiting: list[_Waiter] = []
        self._after_this_round: list[Callable[[], None]] = []

    def add(self, partition: Partition) -> None:
        """Make everything that `partition`'s log holds now durable, in the next round; `start` follows."""
        self._dirty[partition] = None

    def start(self) -> None:
        """Begin a round with the partitions that were added. If a round is running, its end begins the next one."""
        if not self._is_running and self._dirty:
            self._start_round()

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all that was added so far is durable or has failed; at once if there is nothing."""
        if self._dirty:
            self._waiting.append(_Waiter(len(self._dirty), callback))
        elif self._is_running:
            self._after_this_round.append(callback)
        else:
            callback()

    def _start_round(self) -> None:
        dirty = self._take_dirty()
        works: list[_LogFlush] = []
        try:
            self._take_works(dirty, works)
        except StorageError as error:
            self._end_failed(dirty, works, error)
            return
        if not works:
            self._finish_round()
            return
        self._is_running = True
        self.round_count += 1
        future = self._run_blocking(run_flushes, self.log_dir, [work for _, _, work in works])
        future.add_done_callback(lambda done: self._end_round(works, done))

    def _take_dirty(self) -> Collection[Partition]:
        """Take the partitions of this round: those that have waited longest. The others, which may be thousands, are not copied."""
        dirty: Collection[Partition]
        if len(self._dirty) <= ROUND_PARTITIONS_MAX:
            dirty, self._dirty = self._dirty, OrderedDict()
        else:
            dirty = [self._dirty.popitem(last=False)[0] for _ in range(ROUND_PARTITIONS_MAX)]
        self._round_size = len(dirty)
        for waiter in self._waiting:
            waiter.partitions_count -= self._round_size
        self._after_this_round += [waiter.callback for waiter in self._waiting if waiter.partitions_count <= 0]
        self._waiting = [waiter for waiter in self._waiting if waiter.partitions_count > 0]
        return dirty

    def _take_works(self, dirty: Collection[Partition], works: list[_LogFlush]) -> None:
        """Add what is to be flushed to `works`. StorageError when a file cannot be opened; what was taken before is in `works` then."""
        for partition in dirty:
            log = partition.log
            if self._is_failed or partition.is_deleted or partition.is_offline or log.log_dir != self._log_dir_name:
                continue  # in the last case it has moved, and the committer of its new directory was asked
            work = log.take_flush()
            if work is not None:
                works.append(_LogFlush(partition, log, work))

    def _end_round(self, works: list[_LogFlush], done: BlockingResult) -> None:
        self._is_running = False
        try:
            done.result()
        except StorageError as error:
            self._end_failed([partition for partition, _, _ in works], works, error)
            return
        flushed: list[Partition] = []
        for partition, log, work in works:
            if partition.is_deleted or partition.is_offline or partition.log is not log:
                work.release()  # its log was deleted, or replaced, while the round ran
            else:
                log.flushed(work)
                flushed.append(partition)
        self._finish_round(flushed)

    def _finish_round(self, flushed: Sequence[Partition] = ()) -> None:
        callbacks, self._after_this_round = self._after_this_round, []
        if self._round_size <= SMALL_ROUND_PARTITIONS_MAX:
            self.start()  # before waking anyone: their next appends belong to the round after it
        else:
            self._is_running = True
            self._call_later(0, self._begin_next)
        for partition in flushed:
            self._on_flushed(partition)
        for callback in callbacks:
            callback()

    def _begin_next(self) -> None:
        self._is_running = False
        if self._dirty or self._after_this_round:
            self._start_round()

    def _end_failed(self, asked: Collection[Partition], works: list[_LogFlush], error: StorageError) -> None:
        if is_descriptor_shortage(error):
            self._try_again_later(asked, works)
            self._on_failure(self.log_dir, error)
            return
        self._is_failed = True
        for _, _, work in works:
            work.release()
        self._on_failure(self.log_dir, error)
        self._finish_round()

    def _try_again_later(self, asked: Collection[Partition], works: list[_LogFlush]) -> None:
        """Make the round again after SHORTAGE_WAIT_MS. Who waits for it goes on waiting."""
        for _, log, work in works:
            log.give_back(work)
        self._dirty = OrderedDict.fromkeys((*asked, *self._dirty))  # first again
        for waiter in self._waiting:
            waiter.partitions_count = min(waiter.partitions_count + len(asked), len(self._dirty))
        self._is_running = True
        self._call_later(SHORTAGE_WAIT_MS, self._begin_next)


def run_flushes(log_dir: Path, works: list[FlushWork]) -> None:
    """Make the works durable; blocks. Many files are made durable by one syncfs, which includes new directory entries; few are
    synchronised one by one. StorageError on any failure."""
    files_count = sum(len(work.files) + len(work.paths) for work in works)
    disk = works[0].disk
    if files_count <= SYNC_FILES_MAX or not disk.can_syncfs():
        for work in works:
            work.run()
        return
    for work in works:
        work.prepare()
    try:
        disk.syncfs(works[0].descriptors[0])
    except OSError as error:
        raise StorageError(f"cannot synchronise {log_dir}: {error}", path=log_dir) from error
