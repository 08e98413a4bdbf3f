"""The broker's scheduled tasks: flushing, checkpoints, retention, deletion, compaction, expiry of producer ids.

Each task has a timer and never runs twice at once. It decides on the loop, over all logs at once; blocking work runs in the thread pool.
Tasks that fall due together begin in different turns of the loop. Names and intervals are Kafka's. Sources: kafka.log.LogManager.startup,
kafka.server.ReplicaManager.startHighWatermarkCheckPointThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.loop.job import Slice
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

DELETION_INTERVAL_MS = 1_000  # between two checks for delays that are over
CLEANER_BACKOFF_MS = 15_000  # log.cleaner.backoff.ms
FLUSH_CHECK_INTERVAL_MS = 1_000  # flush.ms is honoured to this precision, or to a shorter log.flush.scheduler.interval.ms


class Background:
    """The scheduled tasks of one broker. Owned by client_server.py: `start` once partitions are there, `stop` before the logs close."""

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
        self._beginning = asyncio.Lock()
        self._is_stopped = False

    def start(self) -> None:
        """Schedule all tasks: those of the logs after log.initial.task.delay.ms, the others after their first interval."""
        config = self._config
        first_ms = config.log_initial_task_delay_ms
        self._schedule("log-retention", config.log_retention_check_interval_ms, self._enforce_retention, first_ms)
        self._schedule("recovery-point-checkpoint", config.log_flush_offset_checkpoint_interval_ms, self._flush_all, first_ms)
        start_offsets_ms = config.log_flush_start_offset_checkpoint_interval_ms
        self._schedule("log-start-offset-checkpoint", start_offsets_ms, self._write_checkpoints, first_ms)
        self._schedule("highwatermark-checkpoint", config.replica_high_watermark_checkpoint_interval_ms, self._write_checkpoints)
        # Kafka never looks again unless log.flush.scheduler.interval.ms is set; here flush.ms alone is enough.
        is_set = 0 < config.log_flush_scheduler_interval_ms < FLUSH_CHECK_INTERVAL_MS
        self._schedule("log-flusher", config.log_flush_scheduler_interval_ms if is_set else FLUSH_CHECK_INTERVAL_MS, self._flush_due)
        self._schedule("delete-logs", DELETION_INTERVAL_MS, self._delete_due)
        if self._cleaner is not None:
            backoff_ms = self._cleaner_backoff_ms
            for number in range(self._cleaner.cleaners_count):
                self._schedule(f"log-cleaner-{number}", backoff_ms(), partial(self._cleaner.clean, number), next_ms=backoff_ms)
        self._schedule("producer-id-expiration", config.producer_id_expiration_check_interval_ms, self._expire_producers)

    async def stop(self) -> None:
        """Start no more tasks and wait for the running ones."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _schedule(
        self,
        name: str,
        interval_ms: int,
        task: Callable[[], Awaitable[None]],
        first_ms: int | None = None,
        next_ms: Callable[[], int] | None = None,
    ) -> None:
        """Run `task` at intervals, first after `first_ms`. As in Kafka, without an interval (0 or less) it runs once. `next_ms` returns
        the interval if that may change."""

        async def run() -> None:
            try:
                async with self._beginning:  # several fall due together, and each takes up to 16 ms over 9,500 logs
                    await asyncio.sleep(0)
                await task()
            except StorageError as e:
                if e.path is not None:
                    self._replica_manager.fail_log_dir(e.path, e)
                else:
                    log.error("scheduled task failed task=%s error=%s", name, e)
            except Exception:
                log.exception("scheduled task failed task=%s", name)
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
        """Apply retention, in slices of the loop's time: the files of a deleted segment are renamed. Requests are woken that wait for a
        partition whose log start offset has moved."""
        count = 0
        slice_ = Slice(self._clock)
        for each in self._log_manager.each_log():
            await slice_.maybe_end()
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
        for work in self._log_manager.take_checkpoints():
            await self._run_blocking(work.run)

    async def _flush_all(self) -> None:
        """Make all appended records durable, so that a restart has to scan only about a minute of log. Kafka leaves it to the kernel."""
        self._request_flush(lambda partition: partition.log.has_unflushed)
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note_flushed() -> None:
            if not flushed.done():  # a stop may have cancelled it
                flushed.set_result(None)

        self._replica_manager.when_flushed(note_flushed)
        await flushed
        await self._write_checkpoints()

    async def _flush_due(self) -> None:
        now_ms = self._clock.now_ms()
        self._request_flush(lambda partition: partition.log.flush_is_due(now_ms))

    def _request_flush(self, is_due: Callable[[Partition], bool]) -> None:
        partitions = self._replica_manager.each_partition()
        self._replica_manager.request_flush(partition for partition in partitions if not partition.is_deleted and is_due(partition))

    async def _delete_due(self) -> None:
        work = self._log_manager.take_due_deletions(self._clock.now_ms())
        if work is not None:
            await self._run_blocking(work.run)

    async def _expire_producers(self) -> None:
        self._log_manager.remove_expired_producers(self._clock.now_ms())
