"""The gauges of the log cleaner, under the names of Kafka's MBeans LogCleaner and LogCleanerManager.

client_server.py calls `add_cleaner_gauges` once; nothing is computed until someone scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.observability.metrics import Metrics

if TYPE_CHECKING:
    from broker.background.log_cleaner import LogCleaner
    from broker.loop.clock import Clock
    from storage.log import Log
    from storage.log_manager import LogManager

DIRECTORY_LABELS = ("logdirectory",)
PERCENT = 100


def add_cleaner_gauges(metrics: Metrics, cleaner: LogCleaner, log_manager: LogManager, clock: Clock) -> None:
    """Register the gauges of compaction."""
    stats = cleaner.stats

    def by_directory(measure: Callable[[Log], int]) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
        def measured() -> Iterator[tuple[tuple[str, ...], float]]:
            logs = cleaner.uncleanable_logs()
            for directory in log_manager.directories:
                path = str(directory.path)
                yield (path,), sum(measure(log) for log in logs if log.log_dir == path)

        return measured

    prefix = "kafka_log_logcleanermanager"
    metrics.add_gauge(
        f"{prefix}_uncleanable_partitions_count", "logs set aside: their compaction failed", by_directory(lambda _log: 1), DIRECTORY_LABELS
    )
    metrics.add_gauge(
        f"{prefix}_uncleanable_bytes", "bytes of these that wait for it", by_directory(cleaner.cleanable_bytes), DIRECTORY_LABELS
    )
    for name, documentation, read in (
        ("logcleanermanager_max_dirty_percent", "how dirty the dirtiest log is", lambda: int(PERCENT * stats.max_dirty_ratio)),
        ("logcleanermanager_time_since_last_run_ms", "since the cleaner last looked", lambda: clock.now_ms() - stats.last_run_ms),
        ("logcleaner_max_buffer_utilization_percent", "how full the map of keys was", lambda: int(PERCENT * stats.max_map_share)),
        ("logcleaner_cleaner_recopy_percent", "bytes written again, of those read", lambda: int(PERCENT * stats.recopy_ratio)),
        ("logcleaner_max_clean_time_secs", "of the last compactions", lambda: stats.max_elapsed_ms // 1000),
        ("logcleaner_max_compaction_delay_secs", "beyond max.compaction.lag.ms", lambda: stats.max_overdue_ms // 1000),
    ):
        metrics.add_gauge(f"kafka_log_{name}", documentation, read)
