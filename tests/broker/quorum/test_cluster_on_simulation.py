"""Three whole brokers form a metadata quorum over the (simulated) wire: one leads, every broker answers, a killed leader is replaced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from tests.simulation.connection import ClientConnection, LostError
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import Node
from tests.simulation.trace import Trace

CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
WAIT_MAX_S = 60.0  # of virtual time
ELECTION_MAX_S = 6.0  # the fetch timeout of 2 s, and a second round of elections
RETURN_MAX_S = 0.5  # of all nodes; an election timeout alone is 1 to 2 s
BROKER_RESOURCE = 4
FETCHED_WITHIN_MS = 2_000  # the fetch timeout
NODE_IDS = (1, 2, 3)
WHO_LEADS = DescribeQuorumRequest(
    topics=[DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()])]
)


class Cluster:
    """Nodes on one simulated loop, and a client that asks them."""

    def __init__(self, seed: int, roles: dict[int, str], settings: dict[str, str] | None = None) -> None:
        self.settings = settings or {}
        self.loop = SimulatedLoop(Trace(keep_all=True))
        self.network = SimulatedNetwork(self.loop, random.Random(seed))
        self.voters = ",".join(f"{node_id}@node{node_id}:{CONTROLLER_PORT}" for node_id, role in roles.items() if "controller" in role)
        self.nodes = {node_id: self._node(seed, node_id, role) for node_id, role in roles.items()}

    def _node(self, seed: int, node_id: int, roles: str) -> Node:
        host = f"node{node_id}"
        listeners = {"broker": f"PLAINTEXT://{host}:{CLIENT_PORT}", "controller": f"CONTROLLER://{host}:{CONTROLLER_PORT}"}
        settings = {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners[role] for role in roles.split(",")),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.voters,
            "log.dirs": "/data",
            "barnabas.auto.format": "true",
            "barnabas.busy.poll.us": "0",
            **self.settings,
        }
        return Node(self.loop, self.network, host, f"{seed}:{node_id}", settings)

    async def ask(self, node_id: int, request: Any, version: int, port: int = CLIENT_PORT) -> Any:
        """Raises LostError."""
        connection = await ClientConnection.open(self.network, "client", f"node{node_id}", port)
        try:
            return await connection.send(request, version)
        finally:
            connection.close()

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str, within_s: float = WAIT_MAX_S) -> None:
        deadline_s = self.loop.time() + within_s
        while True:
            try:
                if await is_so():
                    return
            except LostError:
                pass
            assert self.loop.time() < deadline_s, f"not within {within_s} s: {what}"
            await asyncio.sleep(0.05)

    async def all_live(self, node_ids: tuple[int, ...] = NODE_IDS) -> None:
        """Every broker is unfenced, and every broker knows it."""

        async def knows(node_id: int) -> bool:
            response = await self.ask(node_id, DescribeClusterRequest(), 0)
            return {broker.broker_id for broker in response.brokers} == set(node_ids)

        for node_id in node_ids:
            await self.until(lambda node_id=node_id: knows(node_id), f"node {node_id} knows {node_ids}")  # type: ignore[misc]

    async def create(self, node_id: int, name: str, within_s: float = WAIT_MAX_S, *, replicas_count: int = 1) -> None:
        async def is_created() -> bool:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=replicas_count)
            response = await self.ask(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=2_000), 5)
            return response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        await self.until(is_created, f"node {node_id} creates {name}", within_s)

    async def seen(self, node_id: int, names: set[str]) -> None:
        async def are_seen() -> bool:
            response = await self.ask(node_id, MetadataRequest(topics=None), 9)
            return {topic.name for topic in response.topics} == names

        await self.until(are_seen, f"node {node_id} shows {names}")

    async def leader(self, among: tuple[int, ...] = NODE_IDS) -> int:
        """The node that leads the metadata quorum, as it says itself."""
        found: list[int] = []

        async def is_found() -> bool:
            for node_id in among:
                response = await self.ask(node_id, WHO_LEADS, 1, CONTROLLER_PORT)
                partition = response.topics[0].partitions[0]
                if partition.error_code == ErrorCode.NONE:
                    found.append(partition.leader_id)
            return bool(found)

        await self.until(is_found, "a leader", ELECTION_MAX_S)
        assert len(found) == 1, f"more than one leads: {found}"
        return found[0]


@contextmanager
def cluster(seed: int, roles: dict[int, str] | None = None, settings: dict[str, str] | None = None) -> Iterator[Cluster]:
    made = Cluster(seed, roles or dict.fromkeys(NODE_IDS, "broker,controller"), settings)
    try:
        for node in made.nodes.values():
            node.start()
        yield made
        assert not made.loop.errors
    finally:
        for node in made.nodes.values():
            node.kill()
        made.loop.close()


def run(made: Cluster, test: Awaitable[None]) -> None:
    made.loop.run_until_complete(asyncio.wait_for(test, 600))


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_asked_of_any_broker_is_seen_on_all(seed: int) -> None:
    with cluster(seed) as made:

        async def test() -> None:
            await made.all_live()
            for node_id in NODE_IDS:
                await made.create(node_id, f"by-{node_id}")
            for node_id in NODE_IDS:
                await made.seen(node_id, {"by-1", "by-2", "by-3"})
            await made.ask(3, DeleteTopicsRequest(topic_names=["by-1"], timeout_ms=2_000), 5)
            for node_id in NODE_IDS:
                await made.seen(node_id, {"by-2", "by-3"})

        run(made, test())


@pytest.mark.parametrize("seed", [4, 5])
def test_a_killed_leader_is_replaced_and_comes_back_as_a_follower(seed: int) -> None:
    with cluster(seed) as made:

        async def test() -> None:
            await made.all_live()
            await made.create(1, "before")
            killed = await made.leader()
            left = tuple(node_id for node_id in NODE_IDS if node_id != killed)

            made.nodes[killed].kill()
            assert await made.leader(left) in left
            for node_id in left:
                await made.create(node_id, f"by-{node_id}", ELECTION_MAX_S)
            made.nodes[killed].start()

            await made.all_live()
            await made.create(killed, "after")
            for node_id in NODE_IDS:
                await made.seen(node_id, {"before", "after", *(f"by-{node_id}" for node_id in left)})

        run(made, test())


@pytest.mark.parametrize("seed", [7, 8])
def test_a_cluster_that_died_as_a_whole_serves_soon_after_its_start(seed: int) -> None:
    """There is nobody whose silence, or whose session's end, it would have to wait for."""
    with cluster(seed, settings={"min.insync.replicas": "2"}) as made:

        async def takes_records() -> bool:
            for node_id in NODE_IDS:
                partitions = [topic.partitions[0] for topic in (await made.ask(node_id, MetadataRequest(topics=None), 9)).topics]
                if not partitions or partitions[0].leader_id < 0 or len(partitions[0].isr_nodes) < 2:
                    return False
            return True

        async def test() -> None:
            await made.all_live()
            await made.create(1, "t", replicas_count=3)
            await made.until(takes_records, "a leader and its followers")
            for node in made.nodes.values():
                node.kill()

            for node in made.nodes.values():
                node.start()

            await made.until(takes_records, "a leader and its followers again", RETURN_MAX_S)

        run(made, test())


@pytest.mark.parametrize("seed", [11])
def test_a_paused_leader_is_replaced_and_nobody_waits_for_it(seed: int) -> None:
    """Also a broker that has just asked it for something."""
    with cluster(seed) as made:

        async def test() -> None:
            await made.all_live()
            paused = await made.leader()
            left = [node_id for node_id in NODE_IDS if node_id != paused]

            made.nodes[paused].pause()
            for node_id in left:
                await made.create(node_id, f"by-{node_id}", ELECTION_MAX_S)
            made.nodes[paused].resume()

            for node_id in NODE_IDS:
                await made.seen(node_id, {f"by-{node_id}" for node_id in left})
            await made.create(paused, "after")

        run(made, test())


def test_the_isr_follows_its_members_through_any_leader_s_proposals() -> None:
    """A killed replica leaves the ISR, be it by its leader's proposal or by its fencing, and comes back to it."""
    with cluster(14) as made:

        async def has_isr(asked: int, *node_ids: int) -> bool:
            response = await made.ask(asked, MetadataRequest(topics=None), 9)
            return [set(topic.partitions[0].isr_nodes) for topic in response.topics] == [set(node_ids)] * len(NODE_IDS)

        async def test() -> None:
            await made.all_live()
            for node_id in NODE_IDS:
                await made.create(node_id, f"by-{node_id}", replicas_count=3)
            await made.until(lambda: has_isr(1, 1, 2, 3), "all are in sync")
            killed = await made.leader()
            left = [node_id for node_id in NODE_IDS if node_id != killed]
            made.nodes[killed].kill()
            for node_id in left:
                await made.until(lambda node_id=node_id: has_isr(node_id, *left), "the killed one is out")  # type: ignore[misc]
            made.nodes[killed].start()
            for node_id in NODE_IDS:
                await made.until(lambda node_id=node_id: has_isr(node_id, 1, 2, 3), "all are in sync again")  # type: ignore[misc]

        run(made, test())


def test_the_leader_tells_when_each_voter_has_fetched_by_the_wall_clock() -> None:
    with cluster(15) as made:

        async def test() -> None:
            await made.all_live()
            leader = await made.leader()
            response = await made.ask(leader, WHO_LEADS, 1, CONTROLLER_PORT)
            now_ms = made.nodes[leader].clock.now_ms()

            voters = response.topics[0].partitions[0].current_voters
            assert sorted(voter.replica_id for voter in voters) == list(NODE_IDS)
            for voter in voters:
                assert now_ms - FETCHED_WITHIN_MS < voter.last_fetch_timestamp <= now_ms
                assert now_ms - FETCHED_WITHIN_MS < voter.last_caught_up_timestamp <= now_ms

        run(made, test())


def test_each_broker_sets_its_own_config() -> None:
    with cluster(13) as made:

        async def test() -> None:
            await made.all_live()
            for node_id in NODE_IDS:
                change = AlterableConfig(name="log.retention.ms", config_operation=0, value=str(node_id * 1_000_000))
                resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(node_id), configs=[change])
                response = await made.ask(node_id, IncrementalAlterConfigsRequest(resources=[resource]), 1)
                assert response.responses[0].error_code == ErrorCode.NONE, response.responses[0].error_message

        run(made, test())


def test_all_start_again_with_what_was_committed() -> None:
    with cluster(7) as made:

        async def test() -> None:
            await made.all_live()
            await made.create(2, "kept")
            for node in made.nodes.values():
                node.kill()
            for node in made.nodes.values():
                node.start()

            await made.all_live()
            for node_id in NODE_IDS:
                await made.seen(node_id, {"kept"})

        run(made, test())


def test_without_a_majority_nothing_is_created() -> None:
    with cluster(8) as made:

        async def test() -> None:
            await made.all_live()
            made.nodes[1].kill()
            made.nodes[2].kill()
            topic = CreatableTopic(name="lost", num_partitions=1, replication_factor=1)
            with pytest.raises(LostError):
                await made.ask(3, CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5)
            await made.seen(3, set())

        run(made, test())


def test_every_broker_hands_out_producer_ids_of_its_own() -> None:
    with cluster(9) as made:

        async def test() -> None:
            await made.all_live()
            request = InitProducerIdRequest(transactional_id=None)
            ids = [(await made.ask(node_id, request, 1)).producer_id for node_id in NODE_IDS]
            assert len(set(ids)) == len(ids) and min(ids) >= 0

        run(made, test())


def test_brokers_that_are_no_controllers_follow_the_quorum_of_one_that_is_no_broker() -> None:
    with cluster(10, {1: "broker", 2: "broker", 3: "controller"}) as made:

        async def test() -> None:
            await made.all_live((1, 2))
            await made.create(1, "observed")
            for node_id in (1, 2):
                await made.seen(node_id, {"observed"})
            made.nodes[3].kill()
            made.nodes[3].start()
            await made.create(2, "again")
            await made.seen(1, {"observed", "again"})

        run(made, test())
