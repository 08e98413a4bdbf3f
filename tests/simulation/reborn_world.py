"""A cluster in which a topic is made anew while a broker that has had a replica of it is away or has just come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.cluster_nemesis import ClusterNemesis
from tests.simulation.connection import LostError
from tests.simulation.directed_worlds import RESTART_MAX_S, ScriptedNemesis, ScriptedWorld
from tests.simulation.node import Node
from tests.simulation.reborn import RebornClient

STEP_MAX_S = 15.0  # of a cluster in which two of three brokers are up
OLD_RECORDS_MAX, NEW_RECORDS_MAX = 12, 6


class RebornNemesis(ScriptedNemesis):
    """A broker's replica moves away while the broker is down, and the topic is deleted and made anew: with the broker's help, or without
    it until it gets a replica again, and leads."""

    client: RebornClient

    async def _attempt(self) -> bool:
        away = self._draw.choice(self._nodes)
        ids = [node.node_id for node in self._nodes]
        away_id = away.node_id
        others = [node_id for node_id in ids if node_id != away_id]
        is_made_there, is_back_first = self._draw.random() < 0.5, self._draw.random() < 0.5
        steps: list[Callable[[], Awaitable[bool]]] = [
            lambda: self.client.make([*others, away_id]),
            *[self.client.write] * self._draw.randint(1, OLD_RECORDS_MAX),
            lambda: self._in_sync(ids),
            lambda: self._kill(away),
            lambda: self.client.reassign(others),
            lambda: self._in_sync(others),
        ]
        returns = lambda: self._return(away)  # noqa: E731 - one of the steps
        steps += [returns, self.client.delete] if is_back_first or is_made_there else [self.client.delete]
        if is_made_there:
            steps.append(lambda: self.client.make([away_id, *others]))
        else:
            steps += [lambda: self.client.make(others), *[self.client.write] * self._draw.randint(1, NEW_RECORDS_MAX)]
            steps += [] if is_back_first else [returns]
            steps += [lambda: self.client.reassign([away_id, *others]), lambda: self._in_sync(ids), self.client.elect]
        for step in [*steps, self.client.write, self.client.read]:
            if not await self._insist(step):
                return False
        return True

    async def _insist(self, step: Callable[[], Awaitable[bool]]) -> bool:
        deadline_s = self._loop.time() + STEP_MAX_S
        while self._loop.time() < deadline_s:
            try:
                if await step():
                    return True
            except LostError:
                await self.client.back_off()
            await asyncio.sleep(0.05)
        return False

    async def _kill(self, node: Node) -> bool:
        node.kill()
        return True

    async def _return(self, node: Node) -> bool:
        node.start()
        other = next(each for each in self._nodes if each is not node)
        return await self._until(lambda: self._watch.is_known(node.host, other.host), RESTART_MAX_S)

    async def _in_sync(self, node_ids: list[int]) -> bool:
        """Whether these have the replicas, and all are in sync."""
        partition = await self.client.find_partition()
        return partition is not None and set(partition.replica_nodes) == set(partition.isr_nodes) == set(node_ids)


class RebornWorld(ScriptedWorld):
    """Three brokers and the topic, whose client does what the script says."""

    NEMESIS = RebornNemesis
    REBORN_SHARE = 1.0

    def _make_reborn(self) -> RebornClient | None:
        return self._client(  # type: ignore[no-any-return]
            RebornClient, "reborn-client", node_ids=self.shape.broker_ids, find_away=self._find_away, acts_by_itself=False
        )

    def _make_nemesis(self) -> ClusterNemesis:
        nemesis = super()._make_nemesis()
        assert isinstance(nemesis, RebornNemesis) and self.reborn is not None
        nemesis.client = self.reborn
        return nemesis
