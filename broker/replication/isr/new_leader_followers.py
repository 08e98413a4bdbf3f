"""NewLeaderFollowers: members of the ISR that have not fetched a partition since this broker became its leader.

Until they have, the high watermark does not move and producers with acks=-1 wait. A follower names a new partition in its next Fetch, but
its previous Fetch may be parked here for replica.fetch.wait.max.ms, half a second. So this broker answers the parked fetches when it
becomes leader of a partition. It parks the next ones only briefly, while the follower may still lack the metadata. Kafka lets them wait.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.loop.clock import Clock, Timer
from broker.replication.fetch.delayed_fetch import DelayedFetch
from broker.replication.fetch.fetch_data import UNKNOWN_OFFSET
from broker.replication.partition_role import LEADER

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.purgatory import Purgatory

BRIEF_WAIT_MS = 20
AWAITED_MAX_MS = 2_000
"""A follower that has not come by then is slow, dead or throttled: waiting briefly does not bring it sooner."""


class NewLeaderFollowers:
    """See the module's docstring. `by_follower` has the awaited partitions by node id; it is nearly always empty."""

    def __init__(self, clock: Clock, fetches: Purgatory) -> None:
        self._clock = clock
        self._fetches = fetches
        self.by_follower: dict[int, deque[tuple[Partition, int, int]]] = {}  # with the leader epoch and the end of the wait
        self._answering: Timer | None = None
        self._giving_up: Timer | None = None

    def expect_followers(self, partition: Partition) -> None:
        """Called when this broker begins to lead the partition, or does so in a new epoch."""
        until_ms = self._clock.monotonic_ms() + AWAITED_MAX_MS
        for node_id in partition.isr:
            if node_id in partition.followers and _is_awaited(partition, node_id):
                self.by_follower.setdefault(node_id, deque()).append((partition, partition.leader_epoch, until_ms))
                if self._answering is None:
                    self._answering = self._clock.call_later(0, self._answer_parked)
                if self._giving_up is None:
                    self._giving_up = self._clock.call_later(AWAITED_MAX_MS, self._give_up)

    def bound_wait(self, node_id: int, max_wait_ms: int) -> int:
        """Returns for how long a Fetch of that follower may be parked."""
        awaited = self.by_follower.get(node_id)
        if awaited is None:
            return max_wait_ms
        now_ms = self._clock.monotonic_ms()
        while awaited:
            partition, leader_epoch, until_ms = awaited[0]
            if now_ms < until_ms and partition.leader_epoch == leader_epoch and _is_awaited(partition, node_id):
                return min(max_wait_ms, BRIEF_WAIT_MS)
            awaited.popleft()
        del self.by_follower[node_id]
        return max_wait_ms

    def _give_up(self) -> None:
        """Drop the followers whose wait is over: a dead one never fetches, and the partitions may have been deleted."""
        self._giving_up = None
        for node_id in tuple(self.by_follower):
            self.bound_wait(node_id, 0)
        if self.by_follower:
            self._giving_up = self._clock.call_later(AWAITED_MAX_MS, self._give_up)

    def _answer_parked(self) -> None:
        self._answering = None
        fetches = self._fetches
        parked = {operation: None for watched in fetches.watchers.values() for operation in watched}
        for operation in parked:
            if isinstance(operation, DelayedFetch) and operation.params.replica_id in self.by_follower and not operation.is_completed:
                fetches.complete(operation)


def _is_awaited(partition: Partition, node_id: int) -> bool:
    follower = partition.followers.get(node_id)
    return partition.role is LEADER and follower is not None and follower.log_end_offset == UNKNOWN_OFFSET
