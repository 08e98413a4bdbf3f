"""What the broker does by itself at intervals: flushing, checkpoints, retention, deletion, expiry of producer ids.

One timer a chore; the chore decides on the loop and hands what blocks to the thread pool. A chore is never run twice at once.
Intervals are Kafka's properties. Sources: kafka.log.LogManager.startup, kafka.server.ReplicaManager.startHighWatermarkCheckPointThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.background.log_cleaner import LogCleaner
    from broker.loop.blocking import RunBlocking
    from broker.loop.clock import Clock, Timer
    from broker.replication.partition import Partition
    from broker.replication.replica_manager import ReplicaManager
    from config.server import ServerConfig
    from storage.log_manager import LogManager

log = logging.getLogger("barnabas.background")

DELETION_INTERVAL_MS = 1_000  # how often delays that are over are looked for
PARTITIONS_PER_TURN = 500  # asked whether there is something to do before others are served: 0.5 to 1 µs each
LOGS_PER_TURN = 50  # whose retention is looked at before others are served: 1 µs each, more where there are files to look at
CLEANER_BACKOFF_MS = 15_000  # log.cleaner.backoff.ms
FLUSH_CHECK_INTERVAL_MS = 1_000  # flush.ms is honoured to this precision, or to a shorter log.flush.scheduler.interval.ms
Result = TypeVar("Result")


class ChoreTurns:
    """At most one chore works in a turn of the loop: several fall due in the same millisecond, and each piece of theirs takes up to one."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._is_taken = False

    async def next(self) -> None:
        """Wait for a turn, which may be this one if it is nobody's; the caller works in it until it waits for something."""
        ticket = object()
        self._waiting.append(ticket)
        try:
            while self._is_taken or self._waiting[0] is not ticket:
                await asyncio.sleep(0)
        finally:
            self._waiting.remove(ticket)
        self._is_taken = True
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._is_taken = False


class Background:
    """The chores of one broker. Owned by client_server.py: `start` once partitions are there, `stop` before the logs close."""

    def __init__(
        self,
        config: ServerConfig,
        clock: Clock,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        run_blocking: RunBlocking,
        cleaner: LogCleaner | None = None,
        cleaner_backoff_ms: Callable[[], int] = lambda: CLEANER_BACKOFF_MS,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._run_blocking = run_blocking
        self._cleaner = cleaner
        self._cleaner_backoff_ms = cleaner_backoff_ms
        self._timers: dict[str, Timer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = ChoreTurns()
        self._is_stopped = False

    def start(self) -> None:
        """Begin all chores: those of the logs after log.initial.task.delay.ms, the others after their first interval."""
        config = self._config
        first_ms = config.log_initial_task_delay_ms
        self._repeat("retention", config.log_retention_check_interval_ms, self._enforce_retention, first_ms)
        self._repeat("flush and recovery point checkpoint", config.log_flush_offset_checkpoint_interval_ms, self._flush_all, first_ms)
        start_offsets_ms = config.log_flush_start_offset_checkpoint_interval_ms
        self._repeat("start offset checkpoint", start_offsets_ms, self._write_checkpoints, first_ms)
        self._repeat("high watermark checkpoint", config.replica_high_watermark_checkpoint_interval_ms, self._write_checkpoints)
        # Kafka never looks again unless log.flush.scheduler.interval.ms is set; here flush.ms alone is enough.
        is_set = 0 < config.log_flush_scheduler_interval_ms < FLUSH_CHECK_INTERVAL_MS
        self._repeat("flush by time", config.log_flush_scheduler_interval_ms if is_set else FLUSH_CHECK_INTERVAL_MS, self._flush_due)
        self._repeat("deletion", DELETION_INTERVAL_MS, self._delete_due)
        if self._cleaner is not None:
            backoff_ms = self._cleaner_backoff_ms
            for number in range(self._cleaner.cleaners_count):
                chore = partial(self._cleaner.clean, number, self._turns.next)
                self._repeat(f"compaction {number}", backoff_ms(), chore, next_ms=backoff_ms)
        self._repeat("producer expiry", config.producer_id_expiration_check_interval_ms, self._expire_producers)

    async def stop(self) -> None:
        """Arm nothing more and wait for what is running."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _repeat(
        self,
        name: str,
        interval_ms: int,
        chore: Callable[[], Awaitable[None]],
        first_ms: int | None = None,
        next_ms: Callable[[], int] | None = None,
    ) -> None:
        """Run `chore` at intervals, first after `first_ms`. As in Kafka, without an interval (0 or less) it runs once. `next_ms` tells the
        interval where that may change."""

        async def run() -> None:
            try:
                await self._turns.next()
                await chore()
            except StorageError as e:
                if e.path is not None:
                    self._replica_manager.fail_log_dir(e.path, e)
                else:
                    log.error("chore failed chore=%s error=%s", name, e)
            except Exception:
                log.exception("chore failed chore=%s", name)
            finally:
                del self._tasks[name]
                if not self._is_stopped and interval_ms > 0:
                    arm(interval_ms if next_ms is None else next_ms())

        def begin() -> None:
            self._tasks[name] = asyncio.get_running_loop().create_task(run())

        def arm(delay_ms: int) -> None:
            self._timers[name] = self._clock.call_later(delay_ms, begin)

        arm(interval_ms if first_ms is None else first_ms)

    async def _enforce_retention(self) -> None:
        """Log by log, serving requests between them. Requests that wait for a partition whose log start offset moved are woken."""
        count = 0
        for checked_count, each in enumerate(self._log_manager.each_log()):
            if checked_count % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                await self._turns.next()
            if self._log_manager.find_log(each.topic, each.partition) is not each:
                continue  # it was deleted, or its directory failed, meanwhile
            if self._cleaner is not None and self._cleaner.is_cleaning(each):
                continue
            deleted_count = self._log_manager.enforce_retention_of(each, self._clock.now_ms())
            partition = self._replica_manager.find_partition(each.topic, each.partition)
            if deleted_count and partition is not None:
                self._replica_manager.on_progress(partition)
            count += deleted_count
        if count:
            log.info("retention deleted segments=%d", count)

    async def _write_checkpoints(self) -> None:
        for work in await self._in_turns(self._log_manager.take_checkpoints_in_pieces()):
            await self._run_blocking(work.run)

    async def _flush_all(self) -> None:
        """Make all that was appended durable, so that a restart has about a minute of log to scan. Kafka leaves it to the kernel."""
        await self._request_flush(lambda partition: partition.log.has_unflushed)
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note_flushed() -> None:
            if not flushed.done():  # a stop may have cancelled it
                flushed.set_result(None)

        self._replica_manager.when_flushed(note_flushed)
        await flushed
        await self._write_checkpoints()

    async def _flush_due(self) -> None:
        now_ms = self._clock.now_ms()
        await self._request_flush(lambda partition: partition.log.flush_is_due(now_ms))

    async def _request_flush(self, is_due: Callable[[Partition], bool]) -> None:
        partitions = self._replica_manager.each_partition()
        while piece := tuple(islice(partitions, PARTITIONS_PER_TURN)):
            self._replica_manager.request_flush(partition for partition in piece if not partition.is_deleted and is_due(partition))
            await self._turns.next()

    async def _delete_due(self) -> None:
        work = await self._in_turns(self._log_manager.take_due_deletions_in_pieces(self._clock.now_ms()))
        if work is not None:
            await self._run_blocking(work.run)

    async def _expire_producers(self) -> None:
        self._log_manager.remove_expired_producers(self._clock.now_ms())

    async def _in_turns(self, pieces: Generator[None, None, Result]) -> Result:
        """What the work comes to; others are served at each of its yields."""
        while True:
            await self._turns.next()
            try:
                next(pieces)
            except StopIteration as e:
                result: Result = e.value
                return result
