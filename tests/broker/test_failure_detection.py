"""Whole brokers notice that one of them is gone, soon and by proof, and a wrong proof costs no record. In virtual time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.quorum.test_cluster_on_simulation import CLIENT_PORT, CONTROLLER_PORT, NODE_IDS, WHO_LEADS, Cluster, cluster, run
from tests.broker.replication.world import batch, values
from tests.simulation.connection import ClientConnection, LostError

SOON_S = 0.5  # of virtual time; the session timeout is 9 s, the fetch timeout 2 s
REJOINED_S = 4.0  # two heartbeats


class Led(NamedTuple):
    leader_id: int
    leader_epoch: int
    isr: frozenset[int]


class Writer:
    """Writes to one topic of replication factor 3 and min.insync.replicas 1, and reads it."""

    def __init__(self, made: Cluster, topic: str) -> None:
        self.made = made
        self.topic = topic
        self.acked: list[str] = []

    async def led(self, asked: int) -> Led:
        """The partition as that node knows it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        for partition in (await self.made.ask(asked, request, 9)).topics[0].partitions:
            return Led(partition.leader_id, partition.leader_epoch, frozenset(partition.isr_nodes))
        return Led(-1, -1, frozenset())

    async def write(self, node_id: int, value: str, connection: ClientConnection | None = None) -> ErrorCode:
        data = PartitionProduceData(index=0, records=batch(value, timestamp=self.made.nodes[node_id].clock.now_ms()))
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name=self.topic, partition_data=[data])])
        response = await (self.made.ask(node_id, request, 9) if connection is None else connection.send(request, 9))
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.NONE:
            self.acked.append(value)
        return error

    async def until_written(self, node_id: int, value: str, within_s: float) -> None:
        async def is_written() -> bool:
            return await self.write(node_id, value) is ErrorCode.NONE

        await self.made.until(is_written, f"{value} is acked by node {node_id}", within_s)

    async def read(self, node_id: int) -> list[str]:
        wanted = FetchTopic(topic=self.topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
        response = await self.made.ask(node_id, FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[wanted]), 11)
        return values(response.responses[0].partitions[0].records)


async def writer_to(made: Cluster, *, led_by_controller: bool) -> tuple[Writer, int, int]:
    """A writer to a partition that all have in sync, its leader, and the active controller."""
    await made.all_live()
    controller_id = await made.leader()
    for number in range(20):
        writer = Writer(made, f"t{number}")
        await made.create(1, writer.topic, replicas_count=3)
        for node_id in NODE_IDS:

            async def is_in_sync(node_id: int = node_id, writer: Writer = writer) -> bool:
                return (await writer.led(node_id)).isr == frozenset(NODE_IDS)

            await made.until(is_in_sync, "all are in sync")
        leader_id = (await writer.led(1)).leader_id
        if (leader_id == controller_id) == led_by_controller:
            return writer, leader_id, controller_id
    raise AssertionError("no topic has the leader that is wanted")


@pytest.mark.parametrize(("seed", "led_by_controller"), [(21, False), (22, True), (23, True)])
def test_another_leads_soon_after_a_leader_was_killed_also_the_active_controller(seed: int, led_by_controller: bool) -> None:
    with cluster(seed) as made:

        async def test() -> None:
            writer, leader_id, _ = await writer_to(made, led_by_controller=led_by_controller)
            assert await writer.write(leader_id, "before") is ErrorCode.NONE
            left = [node_id for node_id in NODE_IDS if node_id != leader_id]

            made.nodes[leader_id].kill()

            async def is_led_anew() -> bool:
                led = [await writer.led(node_id) for node_id in left]
                return all(each.leader_id in left and each.isr == frozenset(left) for each in led)

            await made.until(is_led_anew, "another leads", SOON_S)
            new_leader_id = (await writer.led(left[0])).leader_id
            await writer.until_written(new_leader_id, "after", SOON_S)
            assert await writer.read(new_leader_id) == ["before", "after"]

            made.nodes[leader_id].start()
            await made.all_live()

        run(made, test())


def test_a_killed_broker_that_is_back_at_once_is_registered_without_waiting_for_its_old_session() -> None:
    with cluster(24) as made:

        async def test() -> None:
            await made.all_live()
            controller_id = await made.leader()
            killed_id = next(node_id for node_id in NODE_IDS if node_id != controller_id)
            made.nodes[killed_id].kill()
            made.nodes[killed_id].start()

            async def serves() -> bool:
                response = await made.ask(killed_id, DescribeClusterRequest(), 0)
                return killed_id in {broker.broker_id for broker in response.brokers}

            await made.until(serves, "it serves", REJOINED_S)

        run(made, test())


@pytest.mark.parametrize("seed", [25, 26])
def test_a_broker_that_was_fenced_though_it_lives_rejoins_and_nothing_is_lost(seed: int) -> None:
    """Its listener is closed and its connection to the controller was reset: to the controller it looks as a dead one does."""
    with cluster(seed) as made:

        async def test() -> None:
            writer, leader_id, controller_id = await writer_to(made, led_by_controller=False)
            epoch = (await writer.led(controller_id)).leader_epoch
            host = f"node{leader_id}"
            kept = await ClientConnection.open(made.network, "client", host, CLIENT_PORT)
            assert await writer.write(leader_id, "before", kept) is ErrorCode.NONE

            made.network.close_port(host, CLIENT_PORT)
            reset(made, host, f"node{controller_id}")
            unsure: list[str] = []
            for number in range(50):
                await _write_to_old_leader(writer, leader_id, f"meanwhile-{number}", kept, unsure)
            led = await writer.led(controller_id)
            assert led.leader_id != leader_id and led.leader_epoch > epoch, "it was fenced"

            await made.until(lambda: _is_unfenced(made, controller_id, leader_id), "it is unfenced", REJOINED_S)
            await made.until(lambda: _is_whole(writer, controller_id), "it is in sync again")
            made.network.open_port(host, CLIENT_PORT)
            await writer.until_written(led.leader_id, "after", SOON_S)
            kept.close()

            stored = await writer.read(led.leader_id)
            assert [value for value in stored if value not in unsure] == writer.acked
            assert len(set(stored)) == len(stored)

        run(made, test())


def reset(made: Cluster, one: str, other: str) -> None:
    """Both ends learn at once that their connections are gone."""
    made.network.reset_between(one, other)
    made.network.reset_between(other, one)


async def _write_to_old_leader(writer: Writer, leader_id: int, value: str, kept: ClientConnection, unsure: list[str]) -> None:
    try:
        if await writer.write(leader_id, value, kept) is not ErrorCode.NONE:
            unsure.append(value)
    except LostError:
        unsure.append(value)


async def _is_unfenced(made: Cluster, asked: int, node_id: int) -> bool:
    response = await made.ask(asked, DescribeClusterRequest(), 0)
    return node_id in {broker.broker_id for broker in response.brokers}


async def _is_whole(writer: Writer, asked: int) -> bool:
    return (await writer.led(asked)).isr == frozenset(NODE_IDS)


def test_without_fast_fencing_a_killed_leader_is_replaced_by_the_timeouts() -> None:
    with cluster(27, settings={"barnabas.fast.fencing": "false"}) as made:

        async def test() -> None:
            writer, leader_id, _ = await writer_to(made, led_by_controller=False)
            left = [node_id for node_id in NODE_IDS if node_id != leader_id]
            killed_s = made.loop.time()
            made.nodes[leader_id].kill()

            async def is_led_anew() -> bool:
                return (await writer.led(left[0])).leader_id in left

            await made.until(is_led_anew, "another leads")
            assert made.loop.time() - killed_s > 5.0

        run(made, test())


def test_a_leader_of_the_quorum_whose_controller_listener_is_closed_is_replaced_and_follows() -> None:
    with cluster(28) as made:

        async def test() -> None:
            await made.all_live()
            leader_id = await made.leader()
            host = f"node{leader_id}"
            left = tuple(node_id for node_id in NODE_IDS if node_id != leader_id)

            made.network.close_port(host, CONTROLLER_PORT)
            for node_id in left:
                reset(made, host, f"node{node_id}")

            async def is_led_anew() -> bool:
                return any([await _says_it_leads(made, node_id) for node_id in left])

            await made.until(is_led_anew, "another leads the quorum", SOON_S)
            made.network.open_port(host, CONTROLLER_PORT)
            await made.all_live()
            await made.create(leader_id, "after")
            assert await made.leader() in left

        run(made, test())


async def _says_it_leads(made: Cluster, node_id: int) -> bool:
    response: Any = await made.ask(node_id, WHO_LEADS, 1, CONTROLLER_PORT)
    return bool(response.topics[0].partitions[0].error_code == ErrorCode.NONE)
