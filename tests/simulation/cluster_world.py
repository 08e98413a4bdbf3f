"""One simulated run of a cluster: three or five whole brokers that replicate, their clients, the faults that befall them, and the checks.

Beside what one broker must keep (tests/simulation/world.py), the watch checks after every event what a cluster must; at the end all
replicas are in sync again and equal.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.clients import Client, Producer
from tests.simulation.cluster_nemesis import CLUSTER_PROFILES, ClusterNemesis
from tests.simulation.cluster_watch import ClusterWatch
from tests.simulation.consumers import Consumer
from tests.simulation.group import GroupMember
from tests.simulation.history import Key
from tests.simulation.node import Node
from tests.simulation.world import FLUSHED, PLAIN, PORT, World
from tests.support.history_checker import Position

CONTROLLER_PORT = 9093
REPLICAS_COUNT = 3
SETTLE_MAX_S = 60.0  # after the clients came to rest every replica is in sync by then
WATCHED_PARTITIONS_COUNT = 2


class ClusterWorld(World):
    """All parts of one run of `NODES_COUNT` nodes, each broker and controller."""

    NODES_COUNT = 3
    OPTIONS = " --nodes 3"

    def __init__(self, seed: int, *, keep_all: bool = False) -> None:
        super().__init__(seed, keep_all=keep_all)
        self.watch = ClusterWatch({node.host: node for node in self.nodes}, self.history)

    # -- what it is made of ------------------------------------------------------------------------------------------

    def _make_nodes(self) -> list[Node]:
        settings = self._draw_settings()
        node_ids = range(1, self.NODES_COUNT + 1)
        voters = ",".join(f"{node_id}@node{node_id}:{CONTROLLER_PORT}" for node_id in node_ids)
        return [self._make_node(node_id, {**settings, "controller.quorum.voters": voters}) for node_id in node_ids]

    def _make_node(self, node_id: int, settings: dict[str, str]) -> Node:
        host = f"node{node_id}"
        own = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{host}:{PORT},CONTROLLER://{host}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
        }
        return Node(self.loop, self.network, host, f"{self.seed}:{host}", {**settings, **own})

    def _draw_profile(self) -> str:
        return self._draw.choice(list(CLUSTER_PROFILES))

    def _draw_settings(self) -> dict[str, str]:
        draw = self._draw
        return {
            **super()._draw_settings(),
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(REPLICAS_COUNT),
            "default.replication.factor": str(REPLICAS_COUNT),
            "broker.heartbeat.interval.ms": "300",
            "broker.session.timeout.ms": str(draw.choice((1_000, 2_000))),
            "replica.lag.time.max.ms": str(draw.choice((700, 3_000))),
            "replica.fetch.wait.max.ms": "300",
            "controller.quorum.fetch.timeout.ms": str(draw.choice((600, 1_500))),
            "controller.quorum.election.timeout.ms": "400",
            "controller.quorum.election.backoff.max.ms": "300",
            "controller.quorum.request.timeout.ms": "600",
        }

    def _make_nemesis(self) -> ClusterNemesis:
        names = [client.name for client in self.clients]
        return ClusterNemesis(self.loop, self.network, self.nodes, names, self.history, self._stream("nemesis"))

    def _fault_kinds(self) -> list[str]:
        return list(CLUSTER_PROFILES[self.profile])

    def _make_clients(self) -> list[Client]:
        draw = self._draw
        clients: list[Client] = []
        for index in range(draw.randint(1, 2)):
            pause_s = draw.choice((0.03, 0.06))
            clients.append(self._client(Producer, f"producer{index}", keys=self.keys, acks=-1, depth=draw.choice((1, 3)), pause_s=pause_s))
        if draw.random() < 0.5:
            clients.append(self._client(Consumer, "consumer0", keys=self.keys, max_bytes=draw.choice((500, 10_000))))
        for index in range(draw.randint(0, 2)):
            commit_share = draw.choice((0.3, 1.0))
            clients.append(
                self._client(GroupMember, f"member{index}", group="g", keys=self.keys, commit_share=commit_share, max_bytes=2_000)
            )
        return clients

    async def _create_topics(self) -> None:
        draw = self._draw
        shared = {"internal.segment.bytes": str(draw.choice((8_000, 100_000)))}
        self.history.durable_topics.add(FLUSHED)
        await self.admin.create(FLUSHED, WATCHED_PARTITIONS_COUNT, {**shared, "flush.messages": "1"})
        await self.admin.create(PLAIN, WATCHED_PARTITIONS_COUNT, shared)

    # -- the run -----------------------------------------------------------------------------------------------------

    def _run(self) -> dict[str, list[Any]]:
        with self.watch.watching():
            return super()._run()

    async def _read_everything(self) -> dict[Key, list[Position]]:
        await self._settle()
        return await super()._read_everything()

    async def _settle(self) -> None:
        """All replicas are in sync, and equal as far as they are committed."""
        deadline_s = self.loop.time() + SETTLE_MAX_S
        while True:
            unsettled = self._find_unsettled()
            if not unsettled:
                break
            if self.loop.time() > deadline_s:
                self.history.find("unsettled", unsettled[:5])
                return
            await asyncio.sleep(0.05)
        self.loop.note("world", "all replicas are in sync")
        for key, replicas in self._replicas().items():
            start_offset = max(partition.log.log_start_offset for partition in replicas.values())
            end_offset = min(partition.log.high_watermark for partition in replicas.values())
            logs = {host: self.watch.batches(partition, host, start_offset, end_offset) for host, partition in replicas.items()}
            first_host, *others = sorted(logs)
            for host in others:
                if logs[host] != logs[first_host]:
                    differing = sorted(set(logs[host]) ^ set(logs[first_host]))[:4]
                    self.history.find("replicas-differ", (key, first_host, host, differing))

    def _find_unsettled(self) -> list[Any]:
        """What is not in its place yet: nodes whose metadata is behind, replicas that are not in sync, leaders that are nowhere."""
        heard = {host: publisher.heard for host, publisher in self.watch.publishers.items()}
        found: list[Any] = [] if len(heard) == len(self.nodes) and len(set(heard.values())) == 1 else [heard]
        for key, replicas in self._replicas().items():
            leaders = [partition for partition in replicas.values() if partition.is_leader]
            ends = {(each.log.high_watermark, each.log.log_end_offset) for each in replicas.values()}
            if len(leaders) != 1 or len(leaders[0].isr) != REPLICAS_COUNT or len(replicas) != REPLICAS_COUNT or len(ends) != 1:
                found.append((key, sorted(replicas), [partition.isr for partition in leaders], sorted(ends)))
        return found

    def _replicas(self) -> dict[Key, dict[str, Any]]:
        """The replicas of the topics that clients write to, of living nodes, by partition and host."""
        found: dict[Key, dict[str, Any]] = {key: {} for key in self.keys}
        for (_, host), partition in self.watch.replicas.items():
            key = (partition.topic, partition.partition)
            if key in found:
                found[key][host] = partition
        return found


class FiveNodesWorld(ClusterWorld):
    NODES_COUNT = 5
    OPTIONS = " --nodes 5"
