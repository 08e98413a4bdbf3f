"""TruncationCheckpoints: lowers the checkpoints of a log before it is truncated, so that none names a later offset after a crash.

Checkpoints say how far a log is durable, committed, compacted and deleted, and are written periodically. A log may be truncated below a
checkpoint and grow past it again before the next one is written. After a crash its new records would be taken for the old ones. Recovery
would not check them, so damage by a power cut would be served, or would take the directory offline. The high watermark and the log start
would be higher than what was committed and deleted. Duplicates and tombstones that were never compacted would count as clean. So the
checkpoints are lowered first, durably, and then the log is truncated. Few elections need this: most truncate nothing, and truncated
records, which are uncommitted except after unclean elections, were often not flushed at the last checkpoint. Truncations of one directory's
logs share one write. With a write for each, a broker that becomes the follower of 300 partitions would take seconds.

Kafka writes the recovery points and clean ends after each truncation, in the fetcher's thread, and the rest at its next turn.
Source: LogManager.truncateTo, LogCleanerManager.maybeTruncateCheckpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import StorageError, storage_errors

if TYPE_CHECKING:
    from broker.loop.blocking import BlockingResult, RunBlocking
    from storage.log import Log
    from storage.log_directory import LogDirectory
    from storage.log_manager import LogManager


class TruncationCheckpoints:
    """See the module's docstring. `on_failure` is called when a disk fails."""

    def __init__(self, log_manager: LogManager, run_blocking: RunBlocking, on_failure: Callable[[Path, StorageError], None]) -> None:
        self._log_manager = log_manager
        self._run_blocking = run_blocking
        self._on_failure = on_failure
        self._waiting: dict[LogDirectory, dict[Log, int]] = {}  # the offsets to which their checkpoints are to be lowered
        self._under_way: dict[LogDirectory, dict[Log, int]] = {}

    def may_truncate(self, log: Log, offset: int) -> bool:
        """Returns whether the log may be truncated to `offset` now. If not, ask again soon: its checkpoints are being lowered.

        StorageError when its disk fails."""
        if self._is_waiting(log):
            return False
        clean_end = log.clean_end_offset
        if log.checkpointed_end_offset <= offset and (clean_end is None or clean_end <= offset):
            return True
        directory = next((each for each in self._log_manager.online_directories if str(each.path) == log.log_dir), None)
        if directory is None:
            return True  # the disk has failed, and so will the truncation
        with storage_errors("truncate", log.directory):
            end_offset = log.segments.start_of_batch(offset)  # the whole batch that holds the offset is truncated
        # Checkpoints that are taken from now on have the lower clean end. The other offsets are read from the log when they are taken.
        log.checkpointed_end_offset = end_offset
        if clean_end is not None:
            log.clean_end_offset = min(clean_end, end_offset)
        self._waiting.setdefault(directory, {})[log] = end_offset
        if directory not in self._under_way:
            self._lower(directory)
        return False

    def _is_waiting(self, log: Log) -> bool:
        return any(log in logs for logs in (*self._waiting.values(), *self._under_way.values()))

    def _lower(self, directory: LogDirectory) -> None:
        logs = self._under_way[directory] = self._waiting.pop(directory)
        work = directory.take_lowering({(log.topic, log.partition): end_offset for log, end_offset in logs.items()})
        self._run_blocking(work.run).add_done_callback(partial(self._lowered, directory))

    def _lowered(self, directory: LogDirectory, lowering: BlockingResult) -> None:
        logs = self._under_way.pop(directory)
        try:
            lowering.result()
        except StorageError as error:
            for log in logs:
                # The files may have a higher offset: they are lowered when `may_truncate` is called again.
                log.checkpointed_end_offset = log.log_end_offset
            self._on_failure(directory.path, error)
        if directory.is_offline:
            self._waiting.pop(directory, None)
        elif directory in self._waiting:
            self._lower(directory)
