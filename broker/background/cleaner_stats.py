"""The cleaner's figures for Kafka's metrics kafka.log:LogCleaner and LogCleanerManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from storage.compaction.plan import CompactionStats


class LastCompaction(NamedTuple):
    """The last compaction of one cleaner, and its duration."""

    stats: CompactionStats
    elapsed_ms: int


class CleanerStats:
    """Owner: the LogCleaner, which writes it; gauges read it."""

    def __init__(self, now_ms: int) -> None:
        self.last: dict[int, LastCompaction] = {}  # by cleaner
        self.max_dirty_ratio = 0.0
        self.max_overdue_ms = 0
        self.last_run_ms = now_ms

    @property
    def recopy_ratio(self) -> float:
        """The share of the bytes read by the last compactions that they wrote again."""
        read_bytes = sum(last.stats.read_bytes for last in self.last.values())
        return sum(last.stats.written_bytes for last in self.last.values()) / max(read_bytes, 1)

    @property
    def max_map_share(self) -> float:
        return max((last.stats.map_share for last in self.last.values()), default=0.0)

    @property
    def max_elapsed_ms(self) -> int:
        return max((last.elapsed_ms for last in self.last.values()), default=0)
