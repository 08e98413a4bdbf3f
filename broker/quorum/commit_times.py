"""CommitTimes: how long this node's own batches took until the quorum had committed them (KafkaRaftMetrics, commit-latency)."""

from __future__ import annotations

from collections import deque

from broker.loop.clock import Clock
from broker.loop.recent_times import RecentTimes


class CommitTimes:
    """Owned by the quorum's driver, which bounds how many batches wait. Offsets are those of the last record."""

    def __init__(self, clock: Clock) -> None:
        self.times = RecentTimes(clock)
        self._clock = clock
        self._waiting: deque[tuple[int, int]] = deque()  # the offset, and when it was proposed
        self._epoch = 0

    def note_proposed(self, offset: int, epoch: int) -> None:
        """This node, which leads `epoch`, has appended a batch that ends with `offset`."""
        if epoch != self._epoch:
            self._waiting.clear()  # who leads now may have had them cut off
            self._epoch = epoch
        self._waiting.append((offset, self._clock.monotonic_ms()))

    def note_committed(self, high_watermark: int, epoch: int) -> None:
        """What is below `high_watermark`, an exclusive end, is committed; this node knows `epoch`."""
        if epoch != self._epoch:
            self._waiting.clear()
        while self._waiting and self._waiting[0][0] < high_watermark:
            self.times.record(self._waiting.popleft()[1])
