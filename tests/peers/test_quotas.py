"""Clients over their quotas get the same answers from Barnabas and from Apache Kafka: the same throttle times by the same bytes, the same
topics refused; and their connections are muted for that time.

Bytes are counted at the clocks of two processes, but all within the first of eleven windows, so that the formula gives one number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.support.process import ServerProcess
from tests.support.quorum import until
from tests.support.wire import CLIENT_ID, WireClient

TOPIC = "metered"
BATCH_SIZE = 10_000
PRODUCE_VERSION, FETCH_VERSION = 9, 12
WINDOW_MS = 10_000
"""Of the complete windows."""

Make = Callable[..., ServerProcess]


class Metered:
    """A server with a topic and a client that quotas limit."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.client = WireClient(server.host, server.port)
        created = self.client.request(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]), 5)
        assert [topic.error_code for topic in created.topics] == [0]
        until(lambda: self.produce(1) is not None and not self.produce_error, "the topic's leader")

    def limit(self, key: str, value: float) -> None:
        ops = [OpData(key=key, value=value)]
        entity = [EntityData(entity_type="client-id", entity_name=CLIENT_ID)]
        answer = self.client.request(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=ops)]), 1)
        assert [entry.error_code for entry in answer.entries] == [0]
        asked = DescribeClientQuotasRequest(components=[ComponentData(entity_type="client-id", match_type=0, match=CLIENT_ID)])
        until(lambda: any(each.key == key for e in self.client.request(asked, 1).entries for each in e.values), "the quota")
        time.sleep(0.5)  # Kafka's quota managers hear of it a moment after the answers

    def produce(self, size: int) -> Any:
        batch = bytes(build_batch([SimpleRecord(None, bytes(size), (), 0)]))
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        answer = self.client.request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), PRODUCE_VERSION)
        self.produce_error = answer.responses[0].partition_responses[0].error_code
        return answer

    def fetch(self, offset: int) -> tuple[int, int]:
        """The throttle time and the bytes of records."""
        asked = FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=BATCH_SIZE + 150)])
        answer = self.client.request(FetchRequest(topics=[asked], max_wait_ms=100, min_bytes=1, session_epoch=-1), FETCH_VERSION)
        return answer.throttle_time_ms, sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)

    def blocked_ms(self) -> float:
        """How long the next request waits for its answer."""
        started = time.monotonic()
        self.client.request(MetadataRequest(topics=[]), 9)
        return (time.monotonic() - started) * 1000


@pytest.fixture(params=["barnabas", "kafka"])
def metered(request: pytest.FixtureRequest) -> Metered:
    make: Make = request.getfixturevalue(f"make_{request.param}")
    return Metered(make())


def test_a_producer_is_told_and_held(metered: Metered) -> None:
    """One request of 10,000 bytes and a little more: (O - T) / T x 10 s."""
    metered.limit("producer_byte_rate", 900.0)

    throttle_time_ms = metered.produce(BATCH_SIZE).throttle_time_ms

    assert (BATCH_SIZE / 9000 - 1) * WINDOW_MS < throttle_time_ms < ((BATCH_SIZE + 400) / 9000 - 1) * WINDOW_MS
    assert metered.blocked_ms() > throttle_time_ms * 0.9


def test_a_consumer_gets_nothing_while_it_is_over_its_quota(metered: Metered) -> None:
    offsets = [metered.produce(BATCH_SIZE).responses[0].partition_responses[0].base_offset for _ in range(2)]
    metered.limit("consumer_byte_rate", 1100.0)

    got = metered.fetch(offsets[0])
    over = metered.fetch(offsets[1])

    assert got[0] == 0 and got[1] > BATCH_SIZE
    assert over[1] == 0
    assert (2 * BATCH_SIZE / 11_000 - 1) * WINDOW_MS < over[0] < (2 * (BATCH_SIZE + 300) / 11_000 - 1) * WINDOW_MS


def test_mutations_over_the_quota_are_refused(metered: Metered) -> None:
    """One partition in ten seconds: what is missing is not there again before the test's end. Each request has a connection of its own,
    for those before it are muted."""
    metered.limit("controller_mutation_rate", 0.1)

    def ask(message: Any, version: int) -> Any:
        with WireClient(metered.server.host, metered.server.port) as client:
            return client.request(message, version)

    def create(name: str, count: int, version: int) -> tuple[int, str | None, int]:
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        answer = ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)
        return answer.topics[0].error_code, answer.topics[0].error_message, answer.throttle_time_ms

    assert create("a", 14, 7) == (0, None, 0)  # a strict quota lets one through that takes more than there is
    code, message, throttle_time_ms = create("b", 1, 7)
    assert (code, message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    assert 100_000 < throttle_time_ms < 129_000
    deleted = ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 5)
    assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=TOPIC, count=9, assignments=None)], timeout_ms=10_000)
    refused = ask(grown, 3)
    assert refused.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    older = ask(grown, 2)

    assert older.results[0].error_code == 0
    assert older.throttle_time_ms > throttle_time_ms
