"""Whether a node may be sent work: for load balancers and orchestrators, beside the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.quorum.raft_state import Candidate, Prospective
from broker.quorum.voters import NO_NODE

if TYPE_CHECKING:
    from broker.metadata.metadata_cache import MetadataCache
    from broker.quorum.raft import Raft


def why_not_ready(metadata: MetadataCache, raft: Raft, *, is_broker: bool) -> str:
    """One line; "" if the node is ready: it knows the metadata quorum's leader, and a broker is registered and not fenced, so that it leads
    partitions and clients are told of it."""
    if raft.active_leader_id == NO_NODE or isinstance(raft.state.role, Prospective | Candidate):  # who stands for election remembers one
        return "the metadata quorum has no leader that this node knows"
    if not is_broker:
        return ""
    broker = metadata.brokers.get(metadata.node_id)
    if broker is None:
        return "this broker is not registered"
    if broker.is_fenced:
        return "this broker is fenced: the controller gets no heartbeats, or it is stopping or starting"
    return ""
