"""IsrExpiration: periodically has leaders propose to drop the followers that fell behind.

The period is half of replica.lag.time.max.ms. Source: kafka.server.ReplicaManager.maybeShrinkIsr, scheduled as isr-expiration.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.loop.job import LoopJob

if TYPE_CHECKING:
    from broker.loop.clock import Clock, Timer
    from broker.replication.hosted_partitions import HostedPartitions


class IsrExpiration:
    """See the module's docstring."""

    def __init__(self, hosted: HostedPartitions, clock: Clock, *, replica_lag_time_max_ms: int) -> None:
        self._hosted = hosted
        self._clock = clock
        self._interval_ms = max(1, replica_lag_time_max_ms // 2)
        self._timer: Timer | None = None
        self._job = LoopJob(clock, self._check)

    def start(self) -> None:
        """Make the first check after one period."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._job.stop()

    def _arm(self) -> None:
        self._timer = self._clock.call_later(self._interval_ms, self._job.run_now)

    def _check(self) -> Generator[None, None, None]:
        """Check every hosted partition: 1 µs each, 20 where a change is proposed. A partition that was removed meanwhile leads nothing."""
        for topic in tuple(self._hosted.topics):
            for partition in tuple(self._hosted.topics.get(topic, {}).values()):
                if partition.followers:
                    partition.maybe_shrink_isr(self._clock.monotonic_ms())
                yield
        self._arm()
