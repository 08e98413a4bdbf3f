"""KIP-848 groups of three libraries' members while their coordinator dies, and a leader, or the only broker: nobody loses a partition, and
nobody's epoch changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.clients.java_members import JavaConsumers
from tests.clients.members import ConfluentConsumerProtocolMember, Member, poll_until, share_all
from tests.clients.test_franz_go_groups import FranzGoMember, values
from tests.clients.test_group_failover import GROUP_TOPIC, SETTINGS, committed_offsets, coordinator_of, fail_over
from tests.clients.test_groups import COUNT, PARTITIONS, fill
from tests.clients.topics import create_topic, eventually
from tests.support.cluster import Cluster
from tests.support.messages import Stored
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

DESCRIBE_VERSION = 1


class Seen(NamedTuple):
    """A group as its coordinator describes it: epochs, and each member's id, epoch and partitions."""

    state: str
    group_epoch: int
    assignment_epoch: int
    members: list[tuple[str, int, list[int]]]


def described(answer: Any) -> Seen:
    (group,) = answer.groups
    assert group.error_code == 0, group.error_message
    members = [
        (
            member.member_id,
            member.member_epoch,
            sorted(partition for each in member.assignment.topic_partitions for partition in each.partitions),
        )
        for member in group.members
    ]
    return Seen(group.group_state, group.group_epoch, group.assignment_epoch, sorted(members))


def describe(server: ServerProcess, group: str) -> Seen:
    with WireClient(server.host, server.port) as client:
        return described(client.request(ConsumerGroupDescribeRequest(group_ids=[group]), DESCRIBE_VERSION))


def settled(members: list[Member], coordinator: Callable[[], ServerProcess], group: str) -> Seen:
    """What the coordinator says of the group once all its members are where they are to be."""
    poll_until(members, lambda _: share_all(members, PARTITIONS))
    eventually(lambda: describe(coordinator(), group).state == "Stable")
    return describe(coordinator(), group)


class Fleet:
    """A member of each library in one group, and what they have read."""

    def __init__(self, server: Any, consumers: JavaConsumers, topic: str) -> None:
        self._server = server
        self._topic = topic
        self._written = 0
        self.java = consumers.join(server, [topic], topic)
        self.franz_go = FranzGoMember(server, topic, topic)
        self.members: list[Member] = [self.java, self.franz_go, ConfluentConsumerProtocolMember(server, topic, topic)]
        self.records: list[Stored] = []

    def work(self) -> None:
        """Read and commit what is written now."""
        fill(self._server, self._topic, first=self._written)
        self._written += COUNT
        self.records += poll_until(self.members, lambda read: len(read) >= COUNT)
        for member in self.members:
            member.commit()

    def has_read_each_once(self) -> bool:
        return values(self.records) == list(range(self._written))

    def shares(self) -> list[set[int]]:
        return [member.assignment() for member in self.members]

    def close(self) -> None:
        for member in self.members:
            member.close()


@pytest.fixture(scope="module")
def consumers() -> Iterator[JavaConsumers]:
    program = JavaConsumers()
    yield program
    program.close()


def assignments_logged(*servers: ServerProcess) -> int:
    return sum(server.log_path.read_text().count("group assigned ") for server in servers)


def test_a_group_goes_on_when_its_coordinator_and_then_a_leader_are_killed(tmp_path: Path, consumers: JavaConsumers) -> None:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        fleet = Fleet(cluster, consumers, "t")

        def coordinator() -> ServerProcess:
            return cluster.nodes[coordinator_of(cluster, "t")]

        before = settled(fleet.members, coordinator, "t")
        fleet.work()
        assignments, shares, events = assignments_logged(*cluster.nodes.values()), fleet.shares(), list(fleet.java.events)

        killed = coordinator_of(cluster, "t")
        fail_over(cluster, killed, GROUP_TOPIC, "t")
        fleet.work()
        assert describe(coordinator(), "t") == before
        cluster.start(killed)
        cluster.wait_in_sync(GROUP_TOPIC, "t")
        fail_over(cluster, cluster.partition("t", 0).leader_id, GROUP_TOPIC, "t")
        fleet.work()

        assert describe(coordinator(), "t") == before
        assert fleet.shares() == shares
        assert fleet.java.events == events
        assert fleet.has_read_each_once()
        assert assignments_logged(*cluster.nodes.values()) == assignments
        assert committed_offsets(cluster, "t", "t") == [3 * COUNT // PARTITIONS] * PARTITIONS
        fleet.close()


def test_a_group_goes_on_when_the_only_broker_is_killed_and_started_again(
    own_server: ServerProcess, topic_name: str, consumers: JavaConsumers
) -> None:
    create_topic(own_server, topic_name, partitions=PARTITIONS)
    fleet = Fleet(own_server, consumers, topic_name)
    before = settled(fleet.members, lambda: own_server, topic_name)
    fleet.work()
    assignments, shares, events = assignments_logged(own_server), fleet.shares(), list(fleet.java.events)

    own_server.restart(hard=True)
    fleet.work()

    assert describe(own_server, topic_name) == before
    assert fleet.shares() == shares
    assert fleet.java.events == events
    assert fleet.has_read_each_once()
    assert assignments_logged(own_server) == assignments
    fleet.close()
