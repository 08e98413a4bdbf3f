"""LeaderFailureWatch: a voter notices that the process of the quorum's leader is gone, without waiting for the fetch timeout.

When this node's connection to the leader has ended, the leader's address is probed, and that of the broker in its process: if this node
is elected, it can fence that broker at once. No counterpart in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.cluster.quorum_peers import QuorumPeers
from broker.quorum.driver import QuorumDriver
from broker.quorum.voters import Address

logger = logging.getLogger("barnabas.quorum")


class LeaderFailureWatch:
    """`prove` calls back once it is proven that the process at an address is gone; `find_broker` is where a broker is registered."""

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
