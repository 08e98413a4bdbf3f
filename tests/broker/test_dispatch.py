"""Requests of very many elements: decoded, run and encoded in turns, answered as on the direct path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from broker.dispatch import LARGE_FRAME_SIZE, KafkaApis
from broker.loop.turns import SLICE_US
from broker.metadata.cluster_state import RESOURCE_BROKER
from broker.network.context import CloseConnection, ConnectionFacts, ListenerFacts
from broker.network.request_pipeline import RequestPipeline
from protocol import codec
from protocol.apis import APIS
from protocol.errors import DecodeError, ErrorCode
from protocol.framing import keep
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.file_slice import FileSlice
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import World, batch
from tests.support.wire import frame

FETCH_KEY, PRODUCE_KEY, DESCRIBE_CONFIGS_KEY = 1, 0, 32
MANY = 2_000


class Server:
    """One connection's pipeline over the real dispatch and handlers, and a loop by hand."""

    def __init__(self, root: Path, loop: TurnLoop | None = None) -> None:
        self.world = World(root)
        self.loop = loop or TurnLoop()
        self.apis = KafkaApis(self.world.services(), self.loop.turns)
        self.sent: list[bytes] = []
        self.errors: list[BaseException] = []
        self.pipeline = self.connect()

    def connect(self) -> RequestPipeline:
        facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        return RequestPipeline(
            start=lambda view: self.apis.handle(view, facts),
            send=self._send,
            on_ready=lambda: None,
            on_error=self.errors.append,
            schedule=self.loop.call_soon,
        )

    def _send(self, chunks: Any) -> None:
        self.sent.append(b"".join(chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks))
        for chunk in chunks:
            if isinstance(chunk, FileSlice):
                chunk.release()

    def offer(self, message: Any, version: int, *, cut: int = 0) -> None:
        key = next(key for key, api in APIS.items() if api.request_class is type(message))
        body = codec.encode(message, version)
        self.pipeline.offer(keep(memoryview(bytearray(frame(key, version, body[: len(body) - cut])))))

    def answers(self, key: int, version: int) -> list[Any]:
        position = 8 + APIS[key].response_header_version(version)
        return [codec.decode(APIS[key].response_class, version, answer, position)[0] for answer in self.sent]


def large_fetch(count: int = MANY) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=100) for index in range(count)]
    return FetchRequest(session_epoch=-1, topics=[FetchTopic(topic="nobody", partitions=partitions)])


def large_produce(topic: str, count: int, **fields: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch("x" * 200, **fields)) for index in range(count)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def test_a_large_request_lets_others_be_served_and_is_answered_whole(tmp_path: Path) -> None:
    server = Server(tmp_path)

    server.offer(large_fetch(), 12)
    assert not server.sent
    turns_count = server.loop.run()

    (response,) = server.answers(FETCH_KEY, 12)
    partitions = response.responses[0].partitions
    assert [partition.partition_index for partition in partitions] == list(range(MANY))
    assert {partition.error_code for partition in partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert turns_count > 2 * MANY // 64 // 4, "handler and encoding each take turns"


def test_an_answer_that_is_quickly_made_is_encoded_in_turns_if_it_has_many_elements(tmp_path: Path) -> None:
    """The configs of a broker that is named often are described once; encoding them 600 times took half a second."""
    server = Server(tmp_path, TurnLoop(SLICE_US // 1_000))
    broker = DescribeConfigsResource(resource_type=RESOURCE_BROKER, resource_name=str(server.world.services().metadata.node_id))

    server.offer(DescribeConfigsRequest(resources=[broker] * 600), 4)
    assert not server.sent
    turns_count = server.loop.run()

    (response,) = server.answers(DESCRIBE_CONFIGS_KEY, 4)
    assert len(response.results) == 600 and len(response.results[0].configs) > 200
    assert turns_count > 1


def test_its_answer_is_byte_for_byte_that_of_the_direct_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path)
    server.offer(large_fetch(), 12)
    server.loop.run()

    monkeypatch.setattr("broker.dispatch.LARGE_FRAME_SIZE", 1 << 30)
    server.offer(large_fetch(), 12)
    server.loop.run()

    assert len(server.sent) == 2
    assert server.sent[0] == server.sent[1]


def test_a_large_request_that_ends_too_early_closes_the_connection(tmp_path: Path) -> None:
    server = Server(tmp_path)

    with pytest.raises(DecodeError):
        server.offer(large_fetch(), 12, cut=1)


def test_a_bug_in_a_large_produce_closes_the_connection_as_in_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(tmp_path)
    monkeypatch.setattr(server.world.replica_manager.produce_path, "append_now", lambda *arguments: 1 / 0)

    server.offer(large_produce("nobody", 300), 9)
    server.loop.run()

    assert [type(error) for error in server.errors] == [CloseConnection]


def test_a_connection_that_closes_ends_its_large_request_where_it_stands(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.world.create_topic("a", partitions=300)
    server.offer(large_produce("a", 300), 9)
    while not server.world.partition("a", 0).log.log_end_offset:
        server.loop.turn()

    server.pipeline.close()
    server.loop.run()

    assert server.world.partition("a", 299).log.log_end_offset == 0
    assert len(server.loop.turns) == 0


def test_a_produce_behind_a_large_one_waits_for_its_appends(tmp_path: Path) -> None:
    """Sequences depend on it: the second would be out of order."""
    server = Server(tmp_path)
    server.world.create_topic("a", partitions=300)
    producer = {"producer_id": 7, "producer_epoch": 0}
    server.offer(large_produce("a", 300, base_sequence=0, **producer), 9)
    later = PartitionProduceData(index=299, records=batch("later", base_sequence=1, **producer))
    server.offer(ProduceRequest(acks=1, topic_data=[TopicProduceData(name="a", partition_data=[later])]), 9)

    server.loop.run()

    codes = [each.error_code for answer in server.answers(PRODUCE_KEY, 9) for each in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE] * 301
    assert server.world.partition("a", 299).log.log_end_offset == 2


def test_a_large_frame_of_few_elements_is_answered_at_once(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.world.create_topic("a")
    data = PartitionProduceData(index=0, records=batch("x" * 2 * LARGE_FRAME_SIZE))

    server.offer(ProduceRequest(acks=1, topic_data=[TopicProduceData(name="a", partition_data=[data])]), 9)

    assert len(server.sent) == 1
    assert not server.loop.scheduled


def test_a_connection_that_closes_gives_the_segments_back_whatever_its_fetch_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.dispatch.LARGE_FRAME_SIZE", 100)
    for module in ("fetch", "fetch_answers"):
        monkeypatch.setattr(f"broker.handlers.produce_fetch.{module}.ELEMENTS_AT_ONCE", 8)
    server = Server(tmp_path)
    server.world.create_topic("a", partitions=100)
    for index in range(100):
        server.world.produce("a", batch("x"), index=index)
    asked = large_fetch(100)
    asked.topics[0].topic = "a"
    turns_before = 0
    while not server.sent:
        server.pipeline.close()
        server.loop.run()
        server.pipeline = server.connect()
        turns_before += 1
        server.offer(asked, 12)
        for _ in range(turns_before):
            server.loop.turn()

    for partition in server.world.replica_manager.partitions():
        partition.log.close()

    assert turns_before > 5
    assert not [path for path in open_files() if path.startswith(str(tmp_path))]


def open_files() -> list[str]:
    paths = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return [os.readlink(path) for path in paths if os.path.exists(path)]


def test_responses_have_the_versions_they_were_asked_in(tmp_path: Path) -> None:
    server = Server(tmp_path)
    for version in (4, 11, 13):
        server.offer(large_fetch(), version)
        server.loop.run()

    assert len(server.sent) == 3
    for version, answer in zip((4, 11, 13), server.sent, strict=True):
        response, end = codec.decode(FetchResponse, version, answer, 8 + APIS[FETCH_KEY].response_header_version(version))
        assert end == len(answer)
        assert len(response.responses[0].partitions) == MANY
