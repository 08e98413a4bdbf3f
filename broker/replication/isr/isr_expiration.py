"""IsrExpiration: looks at intervals for followers that fell behind, so that their leaders propose to drop them.

Every half of replica.lag.time.max.ms, a few partitions in each turn of the loop. Source: kafka.server.ReplicaManager.maybeShrinkIsr,
scheduled as isr-expiration.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.loop.clock import Clock, Timer
    from broker.replication.hosted_partitions import HostedPartitions
    from broker.replication.partition import Partition

PARTITIONS_PER_TURN = 500
"""Looked at in one turn, 1 µs each where nothing is to be done."""
SLICE_US = 2_000  # of the loop's time in one turn: a proposal takes 20 µs


class IsrExpiration:
    """See the module's docstring."""

    def __init__(self, hosted: HostedPartitions, clock: Clock, *, replica_lag_time_max_ms: int) -> None:
        self._hosted = hosted
        self._clock = clock
        self._interval_ms = max(1, replica_lag_time_max_ms // 2)
        self._timer: Timer | None = None

    def start(self) -> None:
        """Look for the first time after an interval."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._timer = self._clock.call_later(self._interval_ms, lambda: self._check(self._each()))

    def _check(self, left: Iterator[Partition]) -> None:
        now_ms = self._clock.monotonic_ms()
        end_us = self._clock.monotonic_us() + SLICE_US
        count = 0
        for partition in islice(left, PARTITIONS_PER_TURN):
            count += 1
            if partition.followers:
                partition.maybe_shrink_isr(now_ms)
                if self._clock.monotonic_us() >= end_us:
                    count = PARTITIONS_PER_TURN
                    break
        if count < PARTITIONS_PER_TURN:
            self._arm()
        else:
            self._timer = self._clock.call_later(0, self._check, left)

    def _each(self) -> Iterator[Partition]:
        """Every hosted partition, though some come and go between the turns. One that has gone leads nothing."""
        for topic in tuple(self._hosted.topics):
            yield from tuple(self._hosted.topics.get(topic, {}).values())
