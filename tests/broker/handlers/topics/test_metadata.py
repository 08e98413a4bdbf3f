from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.topics import metadata
from broker.loop.deferred import Deferred
from broker.metadata.unreachable_brokers import LISTED_MS, UNREACHABLE_MS, UnreachableBrokers
from config.server import ServerConfig
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.stored.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.broker.metadata.room import CLUSTER_ID, Room, context, creation, open_room, registration


def _ask(
    room: Room,
    version: int,
    *names: str | None,
    listener: str = "PLAINTEXT",
    unreachable_brokers: UnreachableBrokers | None = None,
    **fields: Any,
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    services = room.services._replace(unreachable_brokers=unreachable_brokers)
    answer: Any = metadata.build(services)(context(version, listener), MetadataRequest(**({"topics": topics} | fields)))
    return answer


@pytest.fixture
async def room(tmp_path: Path) -> Room:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 2, 1))
    return room


async def test_a_topic_has_its_id_leaders_and_epochs(room: Room) -> None:
    answer = _ask(room, 12, "t")

    topic = answer.topics[0]
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", room.cache.topics["t"].topic_id)
    assert [
        (each.partition_index, each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes, each.offline_replicas)
        for each in topic.partitions
    ] == [
        (0, 1, 0, [1], [1], []),
        (1, 1, 0, [1], [1], []),
    ]
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 1)


@pytest.mark.parametrize(("listener", "host", "port"), [("PLAINTEXT", "localhost", 9092), ("INTERNAL", "broker-1", 19092)])
async def test_each_listener_is_told_its_own_address(room: Room, listener: str, host: str, port: int) -> None:
    answer = _ask(room, 12, listener=listener)

    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(1, host, port)]


@pytest.mark.parametrize(("version", "topics", "count"), [(0, [], 1), (1, None, 1), (1, [], 0), (12, None, 1), (12, [], 0)])
async def test_which_request_means_all_topics(room: Room, version: int, topics: list[MetadataRequestTopic] | None, count: int) -> None:
    assert len(_ask(room, version, topics=topics).topics) == count


async def test_missing_topics_without_auto_creation(room: Room) -> None:
    answer = _ask(room, 12, "nope", "b d", allow_auto_topic_creation=False)

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_a_missing_topic_is_created_behind_the_answer(room: Room) -> None:
    first = _ask(room, 9, "new")
    await room.client.create_topics(creation("other", 1, 1))  # committed after it

    assert first.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _ask(room, 9, "new").topics[0].error_code == 0


async def test_auto_creation_can_be_switched_off(tmp_path: Path) -> None:
    room = await open_room(tmp_path, ServerConfig(auto_create_topics_enable=False))

    _ask(room, 9, "new")
    await room.client.create_topics(creation("other", 1, 1))

    assert "new" not in room.cache.topics


async def test_topics_are_found_by_id(room: Room) -> None:
    topic_id, unknown = room.cache.topics["t"].topic_id, bytes(15) + b"\x09"

    answer = _ask(room, 12, topics=[MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(topic_id=unknown, name=None)])

    assert [(topic.name, topic.error_code, topic.topic_id) for topic in answer.topics] == [
        ("t", 0, topic_id),
        (None, ErrorCode.UNKNOWN_TOPIC_ID, unknown),
    ]


async def test_an_id_before_version_12_is_an_error_of_every_topic(room: Room) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(15) + b"\x09", name=None)])

    with pytest.raises(KafkaError) as refused:
        metadata.build(room.services)(context(10), request)
    answer = metadata.error_response(request, refused.value)

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("", ErrorCode.INVALID_REQUEST)]


async def test_authorized_operations_are_told_when_asked_for(room: Room) -> None:
    asked = _ask(room, 8, "t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
    not_asked = _ask(room, 8, "t")

    assert (asked.topics[0].topic_authorized_operations, asked.cluster_authorized_operations) == (3576, 8096)
    assert (not_asked.topics[0].topic_authorized_operations, not_asked.cluster_authorized_operations) == (-(2**31), -(2**31))


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
async def test_a_leader_without_the_listener(room: Room, version: int, error: ErrorCode) -> None:
    answer = _ask(room, version, "t", listener="EXTERNAL")

    assert [(each.error_code, each.leader_id, each.offline_replicas) for each in answer.topics[0].partitions] == [(error, -1, [1])] * 2
    assert answer.brokers == []


async def test_version_0_hides_replicas_that_are_not_alive(room: Room) -> None:
    room.cache.apply_committed(registration(2, is_fenced=True))
    partition = room.cache.topics["t"].partitions[0]
    room.cache.topics["t"].partitions[0] = type(partition)(1, 0, 0, (1, 2), (1,))

    old, new = _ask(room, 0, "t").topics[0].partitions[0], _ask(room, 1, "t").topics[0].partitions[0]

    assert (old.error_code, old.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])
    assert (new.error_code, new.replica_nodes, new.offline_replicas) == (0, [1, 2], [2])


@pytest.mark.parametrize("version", range(14))
async def test_every_version_can_be_written_and_read(room: Room, version: int) -> None:
    answer = _ask(room, version, "t", "new")

    decoded, _ = decode(MetadataResponse, version, encode(answer, version))

    assert [topic.name for topic in decoded.topics] == ["t", "new"]


async def another_broker_leads(room: Room) -> UnreachableBrokers:
    unreachable_brokers = UnreachableBrokers(room.clock, room.cache.brokers)
    room.cache.subscribe(unreachable_brokers.on_metadata_delta)
    room.cache.apply_committed(registration(2))
    topic_id = room.cache.topics["t"].topic_id
    room.cache.apply_committed([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2, replicas=[1, 2], isr=[1, 2])])
    return unreachable_brokers


def leaders(room: Room, unreachable_brokers: UnreachableBrokers) -> list[tuple[int, int]]:
    partitions = _ask(room, 12, "t", unreachable_brokers=unreachable_brokers).topics[0].partitions
    return [(each.error_code, each.leader_id) for each in partitions]


def listed(room: Room, unreachable_brokers: UnreachableBrokers) -> list[int]:
    return [broker.node_id for broker in _ask(room, 12, "t", unreachable_brokers=unreachable_brokers).brokers]


async def test_a_leader_whose_connection_has_ended_is_not_named_for_a_moment(room: Room) -> None:
    """Else librdkafka, which asks at once, looks again after a second."""
    unreachable_brokers = await another_broker_leads(room)
    assert leaders(room, unreachable_brokers) == [(0, 2), (0, 1)]

    unreachable_brokers.add(2)

    assert leaders(room, unreachable_brokers) == [(ErrorCode.LEADER_NOT_AVAILABLE, -1), (0, 1)]
    room.clock.advance(UNREACHABLE_MS)
    assert leaders(room, unreachable_brokers) == [(0, 2), (0, 1)]


@pytest.mark.parametrize(("shuts_down", "listed_then"), [(False, [1, 2]), (True, [1])])
async def test_a_broker_that_was_fenced_is_listed_a_little_longer_unless_it_shut_down(
    room: Room, shuts_down: bool, listed_then: list[int]
) -> None:
    """Else librdkafka forgets where its partitions go, for a second."""
    unreachable_brokers = await another_broker_leads(room)
    epoch = room.cache.brokers[2].epoch

    if shuts_down:
        room.cache.apply_committed([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, in_controlled_shutdown=1)])
    room.cache.apply_committed([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, fenced=1)])

    assert listed(room, unreachable_brokers) == listed_then
    room.clock.advance(LISTED_MS)
    assert listed(room, unreachable_brokers) == [1]


async def test_leaders_are_looked_at_before_they_are_named(room: Room) -> None:
    unreachable_brokers = await another_broker_leads(room)
    looked_at: list[int] = []
    looking = Deferred()

    def look(node_ids: Iterable[int]) -> Deferred:
        looked_at.extend(node_ids)
        return looking

    unreachable_brokers.probe = look
    services = room.services._replace(unreachable_brokers=unreachable_brokers)
    answer: Any = metadata.build(services)(context(12), MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert sorted(looked_at) == [1, 2]

    unreachable_brokers.add(2)
    looking.complete(None)
    with pytest.raises(StopIteration) as answered:
        while True:
            next(answer)

    assert [each.leader_id for each in answered.value.value.topics[0].partitions] == [-1, 1]
