"""The same heartbeats to Apache Kafka and to Barnabas: the same answers, and the same bytes in `__consumer_offsets`.

What differs by nature is made the same: topic ids, which are random, times, and the order in which Kafka's hash maps have partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from broker.coordination.records import UnknownRecordTypeError
from broker.groups.record_table import GROUP_RECORDS
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.stored.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode_assignment
from protocol.messages.stored.group_records import GroupMetadataValue
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.groups.consumer.consumers import topic_partitions
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

GROUP = "g"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    kafka_jars()
    running = [kind(tmp_path_factory.mktemp(kind.name), SETTINGS) for kind in (KafkaServer, BrokerProcess)]
    try:
        for server in running:
            server.start()
            admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
            admin.create_topics({"t": {"num_partitions": 3, "replication_factor": 1}, "u": {"num_partitions": 1, "replication_factor": 1}})
            admin.close()
            # A real client's search for its coordinator makes __consumer_offsets, and lasts until that is loaded.
            consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id="first")
            consumer.committed(TopicPartition("t", 0))
            consumer.close()
        yield running
    finally:
        for server in running:
            if server.is_running:
                server.kill()


class ClassicMember:
    """A member of the classic protocol. Its id is the server's to make; `ids` collects them."""

    def __init__(self, server: ServerProcess, name: str, group: str, lines: list[str], ids: dict[str, str]) -> None:
        self.client = WireClient(server.host, server.port)
        self._name = name
        self._group = group
        self._lines = lines
        self._ids = ids
        self._member_id = ""
        self._instance: str | None = None
        self.generation = -1

    def join(self, owned: str | None = None, instance: str | None = None) -> None:
        self._instance = instance
        subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=topic_partitions(owned or ""))
        answer = self.client.request(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                member_id=self._member_id,
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=encode_with_version(subscription, 1)) for name in ("range", "roundrobin")
                ],
            ),
            9,
        )
        self._member_id = answer.member_id or self._member_id
        self._ids[self._member_id] = self._name
        self.generation = answer.generation_id
        members = [member.member_id for member in answer.members]
        told = (
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            answer.leader,
            answer.member_id,
            members,
        )
        self._lines.append(f"{self._name} join {told}")

    def sync(self, **assignments: str) -> None:
        by_name = {name: member_id for member_id, name in self._ids.items()}
        answer = self.client.request(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self._member_id,
                group_instance_id=self._instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=by_name[name],
                        assignment=encode_with_version(ConsumerProtocolAssignment(assigned_partitions=topic_partitions(share)), 1),
                    )
                    for name, share in assignments.items()
                ],
            ),
            5,
        )
        assigned = [
            (topic.topic, sorted(topic.partitions))
            for topic in (decode_assignment(answer.assignment).assigned_partitions if answer.assignment else ())
        ]
        self._lines.append(f"{self._name} sync {(answer.error_code, answer.protocol_type, answer.protocol_name, sorted(assigned))}")

    def heartbeat(self, generation: int | None = None) -> None:
        generation = self.generation if generation is None else generation
        request = HeartbeatRequest(
            group_id=self._group, generation_id=generation, member_id=self._member_id, group_instance_id=self._instance
        )
        self._lines.append(f"{self._name} heartbeat {self.client.request(request, 4).error_code}")

    def leave(self, *others: str) -> None:
        members = [MemberIdentity(member_id=member_id, reason="so") for member_id in (self._member_id, *others)]
        answer = self.client.request(LeaveGroupRequest(group_id=self._group, members=members), 5)
        self._lines.append(f"{self._name} leave {answer.error_code} {[(member.member_id, member.error_code) for member in answer.members]}")


class Member:
    """A member that owns at once what it is told to own."""

    def __init__(self, client: WireClient, name: str, names: dict[bytes, str], lines: list[str], group: str = GROUP) -> None:
        self._client = client
        self._group = group
        self._name = name
        self._names = names
        self._lines = lines
        self._epoch = 0
        self._owned: list[HeartbeatTopicPartitions] = []

    def join(self, *topics: str, **fields: Any) -> None:
        self._owned, self._epoch = [], 0
        self.beat(rebalance_timeout_ms=60_000, subscribed_topic_names=list(topics), topic_partitions=[], **fields)

    def acknowledge(self) -> None:
        self.beat(topic_partitions=self._owned)

    def beat_until_assigned(self) -> None:
        """What a group reads by a regular expression is found in the background. The heartbeats on the way are not noted."""
        line_count, epoch = len(self._lines), self._epoch
        deadline = time.monotonic() + 20
        while self._epoch == epoch and time.monotonic() < deadline:
            time.sleep(0.05)
            self.beat()
        del self._lines[line_count:-1]

    def beat(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            **({"group_id": self._group, "member_id": self._name, "member_epoch": self._epoch} | fields)
        )
        answer = self._client.request(request, 1)
        told = (answer.error_code, answer.error_message, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms)
        line = f"{self._name} {told}"
        if not answer.error_code:
            self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions
            line += f" {sorted((self._names[topic.topic_id], sorted(topic.partitions)) for topic in self._owned)}"
        self._lines.append(line)


def topic_names(client: WireClient) -> dict[bytes, str]:
    metadata = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("t", "u")]), 12)
    return {topic.topic_id: topic.name for topic in metadata.topics}


def play(server: ServerProcess) -> tuple[list[str], list[str]]:
    """The answers, and what was stored."""
    client = WireClient(server.host, server.port)
    try:
        names = topic_names(client)
        answers: list[str] = []
        a, b, c = (Member(client, name, names, answers) for name in ("a", "b", "c"))
        _move_partitions(a, b, c)
        _refusals(a, b)
        _static_members(a, client, names, answers)
        a.beat(member_epoch=-1)
    finally:
        client.close()
    return answers, stored(server, names)


def _move_partitions(a: Member, b: Member, c: Member) -> None:
    # One topic each: of several, Kafka's assignor begins with the one that its hash map has first, by the topics' random ids.
    a.join("t")
    b.join("t")
    for _ in range(3):
        a.acknowledge()
        b.acknowledge()
    a.beat(subscribed_topic_names=["u"])
    for _ in range(3):
        a.acknowledge()
        b.acknowledge()
    c.join("t", server_assignor="range", rack_id="r")
    b.beat(member_epoch=-1)
    for _ in range(3):
        a.acknowledge()
        c.acknowledge()
    c.beat(member_epoch=-1)
    a.acknowledge()


def _refusals(a: Member, b: Member) -> None:
    a.beat(member_epoch=99)
    a.beat(member_epoch=1)
    b.beat(member_epoch=3)
    b.beat(member_epoch=-1)
    b.beat(member_epoch=-2)
    b.beat(member_epoch=-3)
    b.beat(member_epoch=0)
    b.beat(member_id=" ")
    b.join("t", server_assignor="no.such")
    b.beat(member_epoch=1, group_id="unknown")
    b.beat(member_epoch=-1, group_id="unknown")
    b.beat(member_epoch=1, instance_id="i")


def _static_members(a: Member, client: WireClient, names: dict[bytes, str], answers: list[str]) -> None:
    first, second = (Member(client, name, names, answers) for name in ("s1", "s2"))
    first.join("u", instance_id="s")
    a.acknowledge()
    second.join("u", instance_id="s")
    first.beat(member_epoch=-2, instance_id="s")
    second.join("u", instance_id="s")
    first.beat(instance_id="s")
    second.beat(instance_id="s")
    second.beat(member_epoch=-1, instance_id="s")


def stored(server: ServerProcess, names: dict[bytes, str], group: str = GROUP) -> list[str]:
    """The group's records."""
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, exclude_internal_topics=False, consumer_timeout_ms=3000)
    partition = TopicPartition("__consumer_offsets", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    lines = [line for message in consumer if (line := _shown(message.key, message.value, names, group)) is not None]
    consumer.close()
    return lines


def _shown(key: bytes, value: bytes | None, names: dict[bytes, str], group: str) -> str | None:
    try:
        record = GROUP_RECORDS.decode(key, value)
    except UnknownRecordTypeError:
        return None
    if group not in (getattr(record.key, "group_id", None), getattr(record.key, "group", None)):
        return None
    again = GROUP_RECORDS.encode(record, 0)
    assert (again.key, again.value) == (key, value), f"{record.key} is written otherwise"
    stored = record.value
    for field in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
        for topic in getattr(stored, field, ()):
            topic.topic_id = names[topic.topic_id].encode().ljust(16)
            topic.partitions = sorted(topic.partitions)
        getattr(stored, field, []).sort(key=lambda topic: topic.topic_id)
    if hasattr(stored, "assignment_timestamp"):
        stored.assignment_timestamp = 1 if stored.assignment_timestamp else 0
    for field in ("current_state_timestamp", "timestamp", "version"):
        if hasattr(stored, field):
            setattr(stored, field, 1)
    if isinstance(stored, GroupMetadataValue):
        stored.members.sort(key=lambda member: member.client_id)
    if hasattr(stored, "metadata_hash"):
        stored.metadata_hash = 1 if stored.metadata_hash else 0
    return f"{record.key} {stored}"


def test_heartbeats_are_answered_and_stored_as_by_kafka(servers: list[ServerProcess]):
    (answers, records), (our_answers, our_records) = (play(server) for server in servers)

    assert our_answers == answers
    assert sorted(our_records) == sorted(records)


# Groups that change their protocol.


def play_migration(server: ServerProcess) -> tuple[list[str], list[str]]:
    answers: list[str] = []
    ids: dict[str, str] = {}
    a, c, s = (ClassicMember(server, name, "m", answers, ids) for name in ("a", "c", "s"))
    names = topic_names(a.client)
    b = Member(a.client, "b", names, answers, "m")
    try:
        _upgrade(a, b)
        _downgrade(a, b)
        _join_classic(c, b)
        _downgrade_by_a_static_member(s, Member(a.client, "s1", names, answers, "m"))
    finally:
        for member in (a, c, s):
            member.client.close()

    def named(line: str) -> str:
        for member_id, name in ids.items():
            line = line.replace(member_id, name)
        return line

    return [named(line) for line in answers], [named(line) for line in stored(server, names, "m")]


def _upgrade(a: ClassicMember, b: Member) -> None:
    a.join()
    a.join()
    a.sync(a="t:0,1")
    a.heartbeat()
    b.join("t")
    a.heartbeat()
    a.sync()
    a.join("t:0,1")
    a.sync()
    a.heartbeat()
    a.heartbeat(generation=77)
    a.join("t:0")
    a.sync()
    a.heartbeat()
    b.beat()
    b.acknowledge()


def _downgrade(a: ClassicMember, b: Member) -> None:
    b.beat(member_epoch=-1)
    a.heartbeat()
    a.join()
    a.sync(a="t:0,1")
    a.heartbeat()
    a.leave("nobody")


def _join_classic(c: ClassicMember, b: Member) -> None:
    b.join("t")
    c.join()
    c.join()
    c.sync()
    c.heartbeat()
    b.acknowledge()
    b.acknowledge()
    c.heartbeat()
    c.join("")
    c.sync()
    c.heartbeat()
    c.leave("nobody")
    b.acknowledge()
    b.beat(member_epoch=-1)


def _downgrade_by_a_static_member(classic: ClassicMember, consumer: Member) -> None:
    consumer.join("t", instance_id="s")
    classic.join("", instance="s")
    classic.sync()
    classic.heartbeat()


def test_groups_change_their_protocol_as_by_kafka(servers: list[ServerProcess]):
    (answers, records), (our_answers, our_records) = (play_migration(server) for server in servers)

    assert our_answers == answers
    assert sorted(our_records) == sorted(records)


def play_lost_assignments(server: ServerProcess) -> list[str]:
    """a has all of t and keeps it while it rejoins. It joins again before it has handed in the assignment, which is lost then."""
    answers: list[str] = []
    ids: dict[str, str] = {}
    a = ClassicMember(server, "a", "l", answers, ids)
    b = Member(a.client, "b", topic_names(a.client), answers, "l")
    try:
        a.join()
        a.join()
        a.sync(a="t:0,1,2")
        a.join("")
        a.join("t:0,1,2")
        b.join("t")
        a.heartbeat()
        a.join("t:0,1,2")
        a.sync()
    finally:
        a.client.close()
    return answers


def partitions_in(line: str) -> set[int]:
    """Those of t that an answer gives."""
    return {int(digit) for digit in line.partition("('t', ")[2] if digit.isdigit()}


def test_partitions_of_an_assignment_that_was_lost_have_two_owners_for_a_moment_as_by_kafka(servers: list[ServerProcess]):
    """The first of the consumer protocol is given some at once; a, which has them all, learns it when it has joined again."""
    for server in servers:
        answers = play_lost_assignments(server)

        b_joins, a_beats, a_joins, a_syncs = answers[-4:]
        given = {line: partitions_in(line) for line in (b_joins, a_syncs)}
        assert b_joins.startswith("b (0, None, 'b', 4, ") and given[b_joins]
        assert a_beats == f"a heartbeat {ErrorCode.REBALANCE_IN_PROGRESS}"
        assert a_joins.startswith("a join (0, 4, ")
        assert given[a_syncs] == {0, 1, 2} - given[b_joins]


# Regular expressions.


def play_expressions(server: ServerProcess) -> tuple[list[str], list[str]]:
    answers: list[str] = []
    with WireClient(server.host, server.port) as client:
        names = topic_names(client)
        a, b = (Member(client, name, names, answers, "r") for name in ("a", "b"))
        b.join(subscribed_topic_regex="(")
        answers[-1] = answers[-1].split(",")[0]  # RE2's words are not RE2/J's
        a.join(subscribed_topic_regex="[s-t]|x")
        a.beat_until_assigned()
        b.join(subscribed_topic_regex="[s-t]|x")
        for _ in range(2):
            a.acknowledge()
            b.acknowledge()
        b.beat(subscribed_topic_regex="")
        b.beat(subscribed_topic_names=["u"])
        for _ in range(3):
            a.acknowledge()
            b.acknowledge()
        a.beat(member_epoch=-1)
        b.acknowledge()
    return answers, stored(server, names, "r")


def test_regular_expressions_are_resolved_as_by_kafka(servers: list[ServerProcess]):
    (answers, records), (our_answers, our_records) = (play_expressions(server) for server in servers)

    assert our_answers == answers
    assert sorted(our_records) == sorted(records)
