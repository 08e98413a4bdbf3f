"""Whether each broker that is fenced for its silence was silent: neither the controller nor anybody else can have had an answer from it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from broker.controller.silence_reports import SilenceReports
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import Node

LOOK_INTERVAL_S = 0.05
QUESTION_S = 0.4
"""Longer than the controller's own question is open."""
ANSWERED_S = 5.0
"""A broker that answered another one for so long was not silent to it: no question is open for longer."""

Pair = frozenset[str]


class SilenceJudge:
    """Owner: the world. It keeps since when each two nodes run, and hear each other in a network that is not slow."""

    def __init__(self, loop: SimulatedLoop, nodes: list[Node], network: SimulatedNetwork, history: History) -> None:
        self._loop = loop
        self._nodes = {node.host: node for node in nodes}
        self._network = network
        self._history = history
        self._since_s: dict[Pair, float] = {}

    async def run(self) -> None:
        hosts = list(self._nodes)
        while True:
            for index, first in enumerate(hosts):
                for second in hosts[index + 1 :]:
                    if self._are_together(first, second):
                        self._since_s.setdefault(frozenset((first, second)), self._loop.time())
                    else:
                        self._since_s.pop(frozenset((first, second)), None)
            await asyncio.sleep(LOOK_INTERVAL_S)

    @contextmanager
    def watching(self) -> Iterator[None]:
        maybe_fence, judge = SilenceReports._maybe_fence, self._judge

        def fence_and_tell(self: SilenceReports, node_id: int, epoch: int) -> None:
            before = self._not_before_ms.get(node_id)
            maybe_fence(self, node_id, epoch)
            if self._not_before_ms.get(node_id) != before:
                judge(f"node{self._node_id}", f"node{node_id}")

        with patch.object(SilenceReports, "_maybe_fence", fence_and_tell):
            yield

    def _judge(self, controller: str, fenced: str) -> None:
        now_s = self._loop.time()
        self._loop.trace.cover("silence proven")
        for host, node in self._nodes.items():
            together_s = now_s - self._since_s.get(frozenset((host, fenced)), now_s)
            longest_s = QUESTION_S if host == controller else ANSWERED_S
            if host != fenced and (node.is_broker or host == controller) and together_s > longest_s:
                self._history.find("fenced-unjustly", (round(now_s, 3), fenced, controller, host, round(together_s, 3)))

    def _are_together(self, first: str, second: str) -> bool:
        network = self._network
        are_running = self._nodes[first].is_running and self._nodes[second].is_running
        return are_running and network.slowness == 1.0 and network.is_open(first, second) and network.is_open(second, first)
