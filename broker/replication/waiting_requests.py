"""The requests that wait for partitions: produces, fetches, deletions of records, and fetch sessions that are notified of changes.

Code that changes a partition's offsets or state calls `wake`. Owner: the ReplicaManager.
"""

from __future__ import annotations

from broker.loop.clock import Clock
from broker.replication.fetch.fetch_data import FetchablePartition
from broker.replication.isr.new_leader_followers import NewLeaderFollowers
from broker.replication.partition_role import DELETED
from broker.replication.purgatory import Purgatory


class WaitingRequests:
    """See the module's docstring."""

    def __init__(self, clock: Clock) -> None:
        self.produces = Purgatory(clock)
        self.fetches = Purgatory(clock)
        self.record_deletions = Purgatory(clock)
        self.new_leader_followers = NewLeaderFollowers(clock, self.fetches)

    def is_watched(self, partition: FetchablePartition) -> bool:
        """Whether a produce, a fetch or a fetch session waits for the partition to change."""
        return partition in self.fetches.watchers or bool(partition.sessions) or partition in self.produces.watchers

    def wake(self, partition: FetchablePartition) -> None:
        """Try the partition's waiting requests: the high watermark has moved, or its state has changed."""
        if partition in self.produces.watchers:
            self.produces.notify(partition)
        if self.record_deletions.size:
            self.record_deletions.notify(partition)
        fetches = self.fetches
        if partition in fetches.watchers:
            fetches.notify(partition)
        for session in tuple(partition.sessions):
            waiting = session.mark_changed(partition)
            if waiting is not None and waiting.try_complete(partition):
                fetches.complete(waiting)
            if partition.role is DELETED and (target := session.watched.get(partition)) is not None:
                session.unwatch(target)  # the session of an idle client would keep the partition and its log in memory
