"""RackAwareReplicaSelector: consumers read from a replica in their own rack instead of the leader (KIP-392).

A leader asks it for each partition that a consumer with a rack fetches, and answers with the replica's id instead of records. It is
made only where `replica.selector.class` names it.

Source: org.apache.kafka.common.replica.RackAwareReplicaSelector, kafka.server.ReplicaManager.findPreferredReadReplica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metadata.metadata_cache import MetadataCache
    from broker.replication.fetch.fetch_data import FetchTarget, RackFetchParams
    from broker.replication.partition import Partition


class RackAwareReplicaSelector:
    """See the module's docstring. Keeps nothing."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def find_replica(self, partition: Partition, params: RackFetchParams, target: FetchTarget) -> int | None:
        """Returns the replica in the consumer's rack that has the requested offset and is the furthest caught up. None if that is the
        leader, which is this broker, or if there is none.

        Only members of the ISR qualify: a replica that lags would send the consumer back again and again. The broker must be unfenced
        and have the listener by which the consumer came."""
        if not partition.is_leader or self._is_in_rack(self._metadata.node_id, params):
            return None
        followers = [
            follower
            for follower in partition.followers.values()
            if follower.node_id in partition.isr
            and follower.log_start_offset <= target.fetch_offset <= follower.log_end_offset
            and self._is_in_rack(follower.node_id, params)
        ]
        if not followers:
            return None
        return max(followers, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, each.node_id)).node_id

    def _is_in_rack(self, node_id: int, params: RackFetchParams) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and broker.rack == params.rack_id and not broker.is_fenced and params.listener_name in broker.endpoints
