"""LeaderFailureWatch: lets a voter notice that the process of the quorum's leader is gone or silent, without waiting for the fetch timeout.

When this node's connection to the leader has ended, it probes the leader's address and that of the broker in the leader's process: if this
node is elected, it can fence that broker at once. A SilenceWatch notices a leader that does not answer. Only a majority without an answer
elects another leader, because a voter that has one grants no pre-vote. No counterpart in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from broker.cluster.quorum_peers import QuorumPeers
from broker.metadata.cluster_state import ClusterState
from broker.metadata.watched_brokers import is_silence_noticed
from broker.quorum.driver import QuorumDriver
from broker.quorum.voters import Address

logger = logging.getLogger("barnabas.quorum")


class LeaderFailureWatch:
    """`prove` calls back once it is proven that the process at an address is gone; `find_broker` returns the address of a registered
    broker."""

    def __init__(
        self,
        quorum: QuorumDriver,
        prove: Callable[[Address, Callable[[], None]], None],
        find_broker: Callable[[int], Address | None],
    ) -> None:
        self._quorum = quorum
        self._prove = prove
        self._find_broker = find_broker

    def watch(self, peers: QuorumPeers) -> None:
        peers.on_connection_ended = self._connection_ended

    def _connection_ended(self, address: Address) -> None:
        quorum = self._quorum
        if not quorum.is_voter or quorum.leader_address != address:
            return
        leader_id, epoch = quorum.leader_id, quorum.epoch

        def proven() -> None:
            if (quorum.leader_id, quorum.epoch) == (leader_id, epoch):
                logger.warning("the process of node %d is gone, which led epoch %d of the metadata quorum", leader_id, epoch)
                quorum.leader_has_failed(leader_id)

        self._prove(address, proven)
        broker_address = self._find_broker(leader_id)
        if broker_address is not None:
            self._prove(broker_address, lambda: None)


class LeaderSilence:
    """The targets of a voter's SilenceWatch, and the reaction to a silent leader. `state` is the metadata that this node knows."""

    def __init__(self, quorum: QuorumDriver, state: ClusterState, *, node_id: int) -> None:
        self._quorum = quorum
        self._state = state
        self._node_id = node_id

    def find_targets(self) -> Mapping[int, Address]:
        """Returns the leader, if it is another node and all nodes support silence reports."""
        quorum = self._quorum
        leader_id, address = quorum.leader_id, quorum.leader_address
        if not quorum.is_voter or address is None or leader_id == self._node_id or leader_id not in self._state.kept.controllers:
            return {}
        return {leader_id: address} if is_silence_noticed(self._state) else {}

    def on_change(self, silent: frozenset[int]) -> None:
        leader_id = self._quorum.leader_id
        if leader_id in silent:
            logger.warning("node %d does not answer, which leads epoch %d of the metadata quorum", leader_id, self._quorum.epoch)
            self._quorum.leader_has_failed(leader_id)
