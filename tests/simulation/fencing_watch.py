"""Whether a broker that is silent is fenced in time, while the active controller has all it needs for that.

A broker is silent while its process is down or stands still, or the network keeps what it sends from the controller. The time counts only
while the same controller leads, runs, has a majority of the voters with it, and nothing is slow: else it begins anew.
"""

from __future__ import annotations

import asyncio

from tests.simulation.cluster_watch import ClusterWatch
from tests.simulation.history import History
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import Node

LOOK_INTERVAL_S = 0.1
SESSION_MAX_S = 2.0  # broker.session.timeout.ms
SPARE_S = 1.8  # a check of the sessions comes late by an eighth of one; the rest is for disks and the network
FENCED_MAX_S = SESSION_MAX_S + SPARE_S

Term = tuple[str, int, int]
"""Of the active controller: its host, which of its processes it is, its epoch."""


class FencingWatch:
    """Owner: the world. `are_votes_fixed`: every controller votes for the whole run."""

    def __init__(
        self, nodes: list[Node], network: SimulatedNetwork, watch: ClusterWatch, history: History, *, are_votes_fixed: bool
    ) -> None:
        self._nodes = {node.host: node for node in nodes}
        self._network = network
        self._watch = watch
        self._history = history
        self._are_votes_fixed = are_votes_fixed
        self._term: Term | None = None
        self._silent_since_s: dict[str, float] = {}
        self._heals_count = 0  # a link that was whole for a moment, between two looks, carries a heartbeat

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._are_votes_fixed:
            self._look(loop.time())
            await asyncio.sleep(LOOK_INTERVAL_S)

    def _look(self, now_s: float) -> None:
        term = self._find_term()
        if term is None or term != self._term or self._network.heals_count != self._heals_count:
            self._silent_since_s.clear()
        self._term, self._heals_count = term, self._network.heals_count
        if term is None:
            return
        controller = self._nodes[term[0]]
        brokers = self._watch.publishers[controller.host]._cache.state.brokers
        for host, node in self._nodes.items():
            broker = brokers.get(node.node_id)
            if broker is None or broker.is_fenced or self._hears(controller, node):
                self._silent_since_s.pop(host, None)
            elif now_s - self._silent_since_s.setdefault(host, now_s) > FENCED_MAX_S:
                self._history.find("never-fenced", (round(now_s, 3), host, controller.host, round(self._silent_since_s[host], 3)))

    def _find_term(self) -> Term | None:
        """Of the controller that is able to fence a broker now."""
        host = self._watch.controller_host
        if host is None or host not in self._watch.publishers or not self._nodes[host].is_running:
            return None
        controllers = [node for node in self._nodes.values() if node.is_controller]
        are_slow = self._network.slowness > 1 or any(node.is_ailing for node in controllers)
        followers_count = sum(node.is_running and self._are_connected(node, self._nodes[host]) for node in controllers)
        if are_slow or 2 * followers_count <= len(controllers):
            return None
        return host, self._nodes[host].starts_count, self._watch.controller_epoch

    def _hears(self, controller: Node, node: Node) -> bool:
        return node.is_running and self._are_connected(controller, node)

    def _are_connected(self, first: Node, second: Node) -> bool:
        return self._network.is_open(first.host, second.host) and self._network.is_open(second.host, first.host)
