"""Groups of stock consumers while their coordinator and their leaders die or stop: no commit is lost, and nobody joins anew."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.clients.members import MEMBERS, poll_until, share_all
from tests.clients.test_groups import COUNT, PARTITIONS, fill
from tests.clients.test_java_groups import verifiable_consumer
from tests.support.cluster import Cluster
from tests.support.wire import WireClient

GROUP_TOPIC = "__consumer_offsets"
SETTINGS = {
    "broker.session.timeout.ms": "2000",  # far below the members' 15 s, also where a crash is not noticed at once
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        yield cluster


def coordinator_of(cluster: Cluster, group: str) -> int:
    """As every running broker says it, once they agree."""

    def agreed() -> int:
        answers = set()
        for node_id in cluster.running:
            node = cluster.nodes[node_id]
            (found,) = cluster.ask_node(node_id, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6).coordinators
            assert found.error_code or (found.host, found.port) == (node.host, cluster.nodes[found.node_id].port)
            answers.add(found.node_id)
        (answer,) = answers if len(answers) == 1 else (-1,)
        return answer if answer in cluster.running else 0

    return cluster.wait_for(agreed, f"a coordinator of {group}")


def committed_offsets(cluster: Cluster, group: str, topic: str) -> list[int]:
    coordinator = coordinator_of(cluster, group)

    def read() -> list[int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (answer,) = cluster.ask_node(coordinator, request, 8).groups
        offsets = {each.partition_index: each.committed_offset for each in answer.topics[0].partitions} if answer.topics else {}
        return [offsets[index] for index in sorted(offsets)]

    return cluster.wait_for(read, f"offsets of {group} in {topic}")


def rebalances(cluster: Cluster, group: str) -> int:
    """How many generations the group had, as the brokers' logs tell."""
    logs = [node.log_path.read_text() for node in cluster.nodes.values()]
    return sum(log.count(f"group rebalanced group={group} ") for log in logs)


def fail_over(cluster: Cluster, node_id: int, *topics: str) -> None:
    """kill -9 of the node; returns when another one leads each of its partitions. It comes back meanwhile."""
    cluster.kill(node_id)
    cluster.wait_for(
        lambda: all(each.leader_id not in (node_id, -1) for topic in cluster.metadata(*topics).topics for each in topic.partitions),
        f"other leaders than {node_id}",
    )


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python"])
def test_a_group_goes_on_when_its_coordinator_and_then_a_leader_are_killed(cluster: Cluster, name: str) -> None:
    cluster.create_topic("t", partitions=PARTITIONS)
    members = [MEMBERS[name](cluster, "t", "g") for _ in range(2)]
    poll_until(members, lambda _: share_all(members, PARTITIONS))
    fill(cluster, "t")
    records = poll_until(members, lambda read: len(read) >= COUNT)
    for member in members:
        member.commit()
    before = rebalances(cluster, "g")
    shares = [member.assignment() for member in members]
    assert committed_offsets(cluster, "g", "t") == [COUNT // PARTITIONS] * PARTITIONS

    killed = coordinator_of(cluster, "g")
    fail_over(cluster, killed, GROUP_TOPIC, "t")
    assert committed_offsets(cluster, "g", "t") == [COUNT // PARTITIONS] * PARTITIONS
    fill(cluster, "t", first=COUNT)
    records += poll_until(members, lambda read: len(read) >= COUNT)
    for member in members:
        member.commit()
    cluster.start(killed)
    cluster.wait_in_sync(GROUP_TOPIC, "t")

    fail_over(cluster, cluster.partition("t", 0).leader_id, GROUP_TOPIC, "t")
    fill(cluster, "t", first=2 * COUNT)
    records += poll_until(members, lambda read: len(read) >= COUNT)
    for member in members:
        member.commit()

    assert committed_offsets(cluster, "g", "t") == [3 * COUNT // PARTITIONS] * PARTITIONS
    assert sorted(int(record.value or b"") for record in records) == list(range(3 * COUNT))
    assert [member.assignment() for member in members] == shares
    assert rebalances(cluster, "g") == before
    for member in members:
        member.close()


def test_a_group_goes_on_through_a_rolling_restart(cluster: Cluster) -> None:
    """Each broker hands its leaderships over before it stops, and with them its groups."""
    cluster.create_topic("t", partitions=PARTITIONS)
    members = [MEMBERS["confluent-kafka"](cluster, "t", "g") for _ in range(2)]
    poll_until(members, lambda _: share_all(members, PARTITIONS))
    before = rebalances(cluster, "g")

    for number, node_id in enumerate(cluster.nodes):
        assert cluster.stop(node_id) == {node_id: 0}
        fill(cluster, "t", first=number * COUNT)
        poll_until(members, lambda read: len(read) >= COUNT)
        for member in members:
            member.commit()
        cluster.start(node_id)
        cluster.wait_in_sync(GROUP_TOPIC, "t")

    assert committed_offsets(cluster, "g", "t") == [3 * COUNT // PARTITIONS] * PARTITIONS
    assert rebalances(cluster, "g") == before
    for member in members:
        member.close()


def test_a_member_that_waits_for_others_is_told_when_its_coordinator_stops(tmp_path: Path) -> None:
    """Its JoinGroup is parked; the coordinator moves elsewhere while its broker still serves."""
    with Cluster(tmp_path, settings=SETTINGS | {"group.initial.rebalance.delay.ms": "60000"}) as cluster:
        cluster.create_topic("t")
        coordinator = coordinator_of(cluster, "g")
        node = cluster.nodes[coordinator]
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        request = JoinGroupRequest(
            group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
        )

        with WireClient(node.host, node.port) as client, ThreadPoolExecutor(1) as threads:
            cluster.wait_for(lambda: _is_coordinator_of(client, "g"), "the coordinator to have loaded")
            client.send(request, 3)  # v4 asks twice
            cluster.wait_for(lambda: _has_member(cluster, coordinator, "g"), "the member to wait for others")
            stopping = threads.submit(cluster.stop, coordinator)
            answer = client.receive()

        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        assert stopping.result() == {coordinator: 0}
        assert coordinator_of(cluster, "g") != coordinator


def _has_member(cluster: Cluster, coordinator: int, group: str) -> bool:
    (described,) = cluster.ask_node(coordinator, DescribeGroupsRequest(groups=[group]), 5).groups
    return bool(described.members)


def _is_coordinator_of(client: WireClient, group: str) -> bool:
    heartbeat = HeartbeatRequest(group_id=group, generation_id=0, member_id="nobody")
    error: int = client.request(heartbeat, 3).error_code
    return error == ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_wait_for_as_many_brokers_as_their_topic_has_replicas(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings=SETTINGS)
    try:
        cluster.start(1, 2)

        def answer(node_id: int) -> tuple[int, int]:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            (found,) = cluster.ask_node(node_id, request, 6).coordinators
            return found.error_code, found.node_id

        for node_id in (1, 2, 1, 2):
            assert answer(node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        cluster.wait_for(lambda: "cannot be created" in cluster.log_tails(), "the log to say why")

        cluster.start(3)

        assert coordinator_of(cluster, "g") in cluster.nodes
        assert {len(each.replica_nodes) for each in cluster.metadata(GROUP_TOPIC).topics[0].partitions} == {3}
    finally:
        cluster.close()


def test_a_java_member_goes_on_when_its_coordinator_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=PARTITIONS)
    with verifiable_consumer(cluster, "t", "CooperativeStickyAssignor") as member:
        member.wait_for(1, "partitions_assigned")
        fill(cluster, "t")
        member.wait_for(COUNT, "record_data")
        before = rebalances(cluster, "t")

        fail_over(cluster, coordinator_of(cluster, "t"), GROUP_TOPIC, "t")
        fill(cluster, "t", first=COUNT)
        member.wait_for(2 * COUNT, "record_data")
        cluster.wait_for(lambda: committed_offsets(cluster, "t", "t") == [2 * COUNT // PARTITIONS] * PARTITIONS, "the last commit")

        assert sorted(int(value) for value in member.values()) == list(range(2 * COUNT))
        assert rebalances(cluster, "t") == before
