"""Produce 13: topics by their ids. What older versions are answered is in test_produce.py."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import produce
from broker.handlers.produce_fetch.produce_answers import ProduceAnswers
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from broker.observability.limited_log import LimitedLog
from broker.replication.delayed_produce import PartitionAppendResult
from config.server import ServerConfig
from protocol import codec
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.stored.metadata_records import RemoveTopicRecord, TopicRecord
from tests.broker.handlers.produce_fetch.test_produce import PRODUCE_KEY, read_response
from tests.broker.replication.world import World, batch, completed, context
from tests.support.clock import ManualClock
from tests.support.services import request_context

VERSION = 13
UNKNOWN, ALSO_UNKNOWN = b"?" * 16, b"!" * 16


def request(*topics: tuple[bytes, list[int]], acks: int = 1) -> ProduceRequest:
    data = [
        TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=index, records=batch("1")) for index in indexes])
        for topic_id, indexes in topics
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)


class Producer:
    """Keeps its handler, as a broker does, and with it the templates of its answers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._handle: Any = produce.build(world.services())

    def send(self, asked: ProduceRequest) -> list[tuple[bytes, int, int]]:
        """Topic id, partition and error of each answer, as a client reads them."""
        outcome = completed(self._handle(request_context(PRODUCE_KEY, VERSION, now_ms=self._world.clock.now_ms()), asked))
        if isinstance(outcome, list):
            response = read_response(outcome, VERSION)
        else:
            response = codec.decode(ProduceResponse, VERSION, codec.encode(outcome, VERSION))[0]
        return [(topic.topic_id, each.index, each.error_code) for topic in response.responses for each in topic.partition_responses]


def test_a_topic_is_found_by_its_id(tmp_path: Path) -> None:
    world = World(tmp_path)
    topic_id = world.create_topic("a")

    assert Producer(world).send(request((topic_id, [0]))) == [(topic_id, 0, 0)]

    assert world.partition("a", 0).log.log_end_offset == 1


def test_unknown_ids_are_answered_each_on_its_own(tmp_path: Path) -> None:
    world = World(tmp_path)
    topic_id = world.create_topic("a")

    answers = Producer(world).send(request((UNKNOWN, [0, 1]), (topic_id, [0, 9]), (ALSO_UNKNOWN, [0])))

    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert answers == [
        (UNKNOWN, 0, unknown),
        (UNKNOWN, 1, unknown),
        (topic_id, 0, 0),
        (topic_id, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ALSO_UNKNOWN, 0, unknown),
    ]


def test_a_topic_that_is_gone_is_unknown(tmp_path: Path) -> None:
    world = World(tmp_path)
    producer = Producer(world)
    topic_id = world.create_topic("a")
    producer.send(request((topic_id, [0])))
    world.delete_topic("a")

    assert producer.send(request((topic_id, [0]))) == [(topic_id, 0, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_topic_that_was_made_anew_is_answered_by_its_new_id() -> None:
    """Answers are made by templates, which are kept."""
    metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=ServerConfig())
    answers = ProduceAnswers(metadata, LimitedLog(logging.getLogger("test"), ManualClock()))
    told = []

    for topic_id in (UNKNOWN, ALSO_UNKNOWN):
        metadata.apply_committed([TopicRecord(name="a", topic_id=topic_id)])
        answer = answers.respond([PartitionAppendResult("a", 0)], context(PRODUCE_KEY, VERSION))
        assert isinstance(answer, list)
        told.append(read_response(answer, VERSION).responses[0].topic_id)
        metadata.apply_committed([RemoveTopicRecord(topic_id=topic_id)])

    assert told == [UNKNOWN, ALSO_UNKNOWN]


def test_many_partitions_are_found_by_their_topics_ids(tmp_path: Path) -> None:
    world = World(tmp_path)
    ids = [world.create_topic(f"t{number}", partitions=2) for number in range(50)]

    answers = Producer(world).send(request(*((topic_id, [0, 1]) for topic_id in ids), (UNKNOWN, [0])))

    assert answers == [*((topic_id, index, 0) for topic_id in ids for index in (0, 1)), (UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_an_unknown_id_without_an_answer_closes_the_connection(tmp_path: Path) -> None:
    world = World(tmp_path)

    with pytest.raises(DecodeError):
        Producer(world).send(request((UNKNOWN, [0]), acks=0))
