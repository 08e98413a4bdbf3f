"""The same heartbeats to Apache Kafka and to Barnabas: the same answers, and the same bytes in `__consumer_offsets`.

What differs by nature is made the same: topic ids, which are random, times, and the order in which Kafka's hash maps have partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from broker.coordination.records import UnknownRecordTypeError
from broker.groups.record_table import GROUP_RECORDS
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

GROUP = "g"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.assignment.interval.ms": "0",
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


class Member:
    """A member that owns at once what it is told to own."""

    def __init__(self, client: WireClient, name: str, names: dict[bytes, str], lines: list[str]) -> None:
        self._client = client
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

    def beat(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(**({"group_id": GROUP, "member_id": self._name, "member_epoch": self._epoch} | fields))
        answer = self._client.request(request, 1)
        told = (answer.error_code, answer.error_message, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms)
        line = f"{self._name} {told}"
        if not answer.error_code:
            self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions
            line += f" {sorted((self._names[topic.topic_id], sorted(topic.partitions)) for topic in self._owned)}"
        self._lines.append(line)


def play(server: ServerProcess) -> tuple[list[str], list[str]]:
    """The answers, and what was stored."""
    client = WireClient(server.host, server.port)
    try:
        metadata = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("t", "u")]), 12)
        names = {topic.topic_id: topic.name for topic in metadata.topics}
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


def stored(server: ServerProcess, names: dict[bytes, str]) -> list[str]:
    """The group's records."""
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, exclude_internal_topics=False, consumer_timeout_ms=3000)
    partition = TopicPartition("__consumer_offsets", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    lines = [line for message in consumer if (line := _shown(message.key, message.value, names)) is not None]
    consumer.close()
    return lines


def _shown(key: bytes, value: bytes | None, names: dict[bytes, str]) -> str | None:
    try:
        record = GROUP_RECORDS.decode(key, value)
    except UnknownRecordTypeError:
        return None
    if getattr(record.key, "group_id", None) != GROUP:
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
        assert stored.assignment_timestamp > 0
        stored.assignment_timestamp = 1
    if hasattr(stored, "metadata_hash"):
        stored.metadata_hash = 1 if stored.metadata_hash else 0
    return f"{record.key} {stored}"


def test_heartbeats_are_answered_and_stored_as_by_kafka(servers: list[ServerProcess]):
    (answers, records), (our_answers, our_records) = (play(server) for server in servers)

    assert our_answers == answers
    assert sorted(our_records) == sorted(records)
