"""LogCleaner: chooses the logs to compact, has worker processes compact them, and swaps the results into the logs.

Each of log.cleaner.threads cleaners has a process, which starts at its first log and ends after a long idle time. It reads closed segments
and writes `.cleaned` files. The loop here replaces the old files by them if the log has not changed. The compaction is dropped if the log
was truncated, moved or deleted meanwhile. A log whose compaction fails is excluded until the broker's next start. A disk failure takes the
log directory offline. Owner: client_server.py; Background schedules `clean`.

Sources: org.apache.kafka.storage.internals.log.LogCleaner, LogCleanerManager.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.background.cleaner_stats import CleanerStats, LastCompaction
from broker.loop.job import Slice
from broker.worker.jobs import Outcome
from protocol.errors import DecodeError
from storage.errors import CorruptFileError, StorageError

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.worker.jobs import Worker
    from storage.compaction.plan import CompactionPlan, CompactionResult
    from storage.compaction.selection import CleanableLog
    from storage.disk import Disk
    from storage.log import Log
    from storage.log_manager import LogManager

logger = logging.getLogger("barnabas.cleaner")

CHECK_INTERVAL_MS = 1_000  # between two comparisons of a running compaction with its log
BUFFERS = 2  # log.cleaner.io.buffer.size is for a read buffer and a write buffer


class LogCleaner:
    """See the module's docstring. `workers` has one for each cleaner; `setting` returns the present value of a property."""

    def __init__(self, setting: Callable[[str], float], clock: Clock, log_manager: LogManager, workers: list[Worker], disk: Disk) -> None:
        self._setting = setting
        self._clock = clock
        self._log_manager = log_manager
        self._workers = workers
        self._disk = disk
        self._in_progress: dict[Log, int] = {}  # log → its cleaner
        self._withdrawn: dict[Log, int] = {}  # withdrawn logs, which the process may still be reading: no other cleaner may take them
        self._uncleanable: set[Log] = set()
        self._stopping = asyncio.Event()
        self.stats = CleanerStats(clock.now_ms())

    @property
    def cleaners_count(self) -> int:
        return len(self._workers)

    def is_cleaning(self, log: Log) -> bool:
        """Whether the log's segments are being read: retention has to wait."""
        return log in self._in_progress

    def uncleanable_logs(self) -> list[Log]:
        """Logs that are excluded because their compaction failed."""
        return list(self._uncleanable)

    def cleanable_bytes(self, log: Log) -> int:
        """How many bytes of it could be compacted; 0 if it cannot be read."""
        from storage.compaction.selection import find_cleanable  # late, also below: few brokers ever have a log to compact

        try:
            return find_cleanable(log, self._clock.now_ms()).cleanable_bytes
        except (StorageError, OSError):
            return 0

    def stop(self) -> None:
        """End the running compactions and begin no more."""
        self._stopping.set()

    async def clean(self, cleaner: int) -> None:
        """Compact logs one after the other, the dirtiest first, until none is due. StorageError when the disk fails."""
        while not self._stopping.is_set() and (cleanable := await self._find_dirtiest(cleaner)) is not None:
            log = cleanable.log
            self._in_progress[log] = cleaner
            try:
                await self._clean(cleanable, cleaner)
            except CorruptFileError as error:
                self._set_aside(log, error)
            except StorageError as error:
                if self._is_here(log):  # else it was deleted, or its directory failed: its files have moved
                    raise StorageError(str(error), path=log.directory) from error
            except OSError as error:  # no process could be started, or it lacks descriptors
                logger.warning("compaction not begun, it is tried again topic=%s partition=%d error=%s", log.topic, log.partition, error)
                return
            except Exception as error:
                self._set_aside(log, error)
            finally:
                del self._in_progress[log]

    async def _find_dirtiest(self, cleaner: int) -> CleanableLog | None:
        now_ms = self.stats.last_run_ms = self._clock.now_ms()
        self._forget_the_gone()
        best: CleanableLog | None = None
        max_dirty_ratio, max_overdue_ms = 0.0, 0
        slice_ = Slice(self._clock)
        for log in self._log_manager.each_log():
            await slice_.maybe_end()
            if not log.config.is_compacted or len(log.segments) == 1 or not self._may_clean(log, cleaner):
                continue
            from storage.compaction.selection import find_cleanable

            try:
                found = find_cleanable(log, now_ms)
            except (StorageError, OSError) as error:
                self._set_aside(log, error)  # as Kafka does; a disk failure is noticed elsewhere
                continue
            max_dirty_ratio = max(max_dirty_ratio, found.dirty_ratio)
            max_overdue_ms = max(max_overdue_ms, found.overdue_ms)
            if found.is_due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        self.stats.max_dirty_ratio, self.stats.max_overdue_ms = max_dirty_ratio, max_overdue_ms
        return best if best is not None and self._may_clean(best.log, cleaner) else None

    def _may_clean(self, log: Log, cleaner: int) -> bool:
        return (
            log not in self._in_progress
            and log not in self._uncleanable
            and self._withdrawn.get(log, cleaner) == cleaner
            and self._is_here(log)
            and not self._is_moving(log)
        )

    def _is_here(self, log: Log) -> bool:
        return self._log_manager.find_log(log.topic, log.partition) is log

    def _is_moving(self, log: Log) -> bool:
        """Whether it is being copied to another log directory: a compaction meanwhile would leave a copy that is partly compacted."""
        return self._log_manager.futures.find(log.topic, log.partition) is not None

    def _forget_the_gone(self) -> None:
        self._uncleanable = {log for log in self._uncleanable if self._is_here(log)}
        self._withdrawn = {log: cleaner for log, cleaner in self._withdrawn.items() if self._is_here(log)}

    async def _clean(self, cleanable: CleanableLog, cleaner: int) -> None:
        from broker.background.cleaning_job import NAME, CompactionJob
        from storage.compaction.selection import find_cleanable, make_plan, swap_in

        log = cleanable.log
        map_bytes = self._setting("log.cleaner.dedupe.buffer.size") * self._setting("log.cleaner.io.buffer.load.factor")
        now_ms, begun_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        plan = make_plan(
            find_cleanable(log, now_ms),  # time has passed since it was chosen
            now_ms=now_ms,
            map_limit_bytes=map_bytes / self.cleaners_count,
            read_bytes=int(self._setting("log.cleaner.io.buffer.size")) // self.cleaners_count // BUFFERS,
            disk=self._disk,
        )
        if not plan.first_dirty_offset < plan.end_offset:
            return
        outcome = await self._run(log, plan, cleaner, NAME, CompactionJob(plan, self._rate()))
        if outcome is None:
            return
        result: CompactionResult = outcome.value
        are_in = []
        for cleaned in result.cleaned:
            await asyncio.sleep(0)  # a swap renames the files of many segments
            may_swap = self._is_here(log) and not self._is_moving(log)
            are_in.append(may_swap and swap_in(log, plan, cleaned, self._clock.now_ms()))
        if not all(are_in):
            logger.info("compaction came to nothing, for the log has changed topic=%s partition=%d", log.topic, log.partition)
            return
        if not await self._make_durable(log, plan, cleaner):
            return
        log.clean_end_offset = result.clean_end_offset
        self._withdrawn.pop(log, None)
        last = self.stats.last[cleaner] = LastCompaction(result.stats, self._clock.monotonic_ms() - begun_ms)
        _tell(log, plan, result, last)

    async def _make_durable(self, log: Log, plan: CompactionPlan, cleaner: int) -> bool:
        """Make the renames of the swap durable, as LocalLog.replaceSegments does. Returns False if the log has changed meanwhile.

        Until then a power cut may undo them and bring the old segments back. The checkpoint must not mark these as clean: they would
        never be compacted, and when one of their tombstones is deleted, the values that it hides would be read again."""
        from broker.background.cleaning_job import SYNC_NAME, SyncJob

        outcome = await self._run(log, plan, cleaner, SYNC_NAME, SyncJob(plan.directory, self._disk))
        return outcome is not None and self._is_as_planned(log, plan)

    async def _run(self, log: Log, plan: CompactionPlan, cleaner: int, job: str, arguments: Any) -> Outcome | None:
        """Returns the result of a job of this plan; None if the log has changed meanwhile, or if the broker stops. Raises the job's
        exception."""
        answer = self._workers[cleaner].submit(job, arguments, (), is_short=False)
        outcomes: list[Any] = []
        wake = asyncio.Event()

        def done(outcome: Any) -> None:
            outcomes.append(outcome)
            wake.set()

        answer.when_done(done)
        while not outcomes:
            timer = self._clock.call_later(CHECK_INTERVAL_MS, wake.set)
            await self._wait(wake)
            timer.cancel()
            wake.clear()
            if not outcomes and (self._stopping.is_set() or not self._is_as_planned(log, plan)):
                self._withdrawn[log] = cleaner
                answer.abandon()
                return None
        outcome = outcomes.pop()
        if isinstance(outcome, Outcome):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # the traceback holds this frame: a cycle

    def _is_as_planned(self, log: Log, plan: CompactionPlan) -> bool:
        return self._is_here(log) and log.truncations_count == plan.truncations_count and not self._is_moving(log)

    def _rate(self) -> float | None:
        """How many bytes one cleaner may move in a second; None for no limit."""
        rate = self._setting("log.cleaner.io.max.bytes.per.second")
        return None if rate == sys.float_info.max else rate / self.cleaners_count

    async def _wait(self, wake: asyncio.Event) -> None:
        """Until `wake` is set or the broker stops."""
        waits = [asyncio.ensure_future(event.wait()) for event in (wake, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _set_aside(self, log: Log, error: Exception) -> None:
        is_bug = not isinstance(error, (StorageError, DecodeError, OSError))
        logger.error(
            "compaction failed, tried again after a restart only topic=%s partition=%d error=%s",
            log.topic, log.partition, error, exc_info=error if is_bug else None,
        )  # fmt: skip
        self._uncleanable.add(log)


def _tell(log: Log, plan: CompactionPlan, result: CompactionResult, last: LastCompaction) -> None:
    stats = result.stats
    logger.info(
        "log compacted topic=%s partition=%d dirty_from=%d dirty_to=%d "
        "read_bytes=%d written_bytes=%d read_records=%d written_records=%d elapsed_ms=%d",
        log.topic, log.partition, plan.first_dirty_offset, result.clean_end_offset,
        stats.read_bytes, stats.written_bytes, stats.read_records, stats.written_records, last.elapsed_ms,
    )  # fmt: skip
    if stats.keyless_records:
        logger.warning(
            "compaction dropped records without keys topic=%s partition=%d records=%d", log.topic, log.partition, stats.keyless_records
        )
