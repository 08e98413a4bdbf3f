"""The steps of the fuzzer of data against one broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from protocol.errors import DecodeError, ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.fetch import FetchResponse
from protocol.records import iterate_headers, iterate_records
from tests.peers.differential import data_steps as steps
from tests.peers.differential.data_steps import BASE_MS, SessionEpoch
from tests.peers.differential.fuzzer import Connection, await_that, by_name, plain
from tests.peers.differential.names import Names
from tests.support.process import ServerProcess

STARTED_MS = time.time_ns() // 1_000_000
NOW_SPAN_MS = 7_200_000
"""A time that lies at most so long after STARTED_MS is the broker's clock's: no step says such a one."""
DEFAULTS = {"index.interval.bytes": "100"}
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "plain": (2, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "strict": (1, {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "10000000"}),
    "recent": (1, {"message.timestamp.before.max.ms": "10000000"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "small": (1, {"max.message.bytes": "300"}),
    "rolled": (1, {"internal.segment.bytes": "2000"}),
    "gzip": (1, {"compression.type": "gzip"}),
    "zstd": (1, {"compression.type": "zstd"}),
    "uncompressed": (1, {"compression.type": "uncompressed"}),
}
"""Partitions and configs of each."""
RECOMPRESSED = ("gzip", "zstd")
"""The codecs are not the same code."""
LEFT_OUT = {"topic_id", "port", "host", "error_message", "batch_index_error_message"}
EARLIEST, LATEST, LARGEST = -2, -1, -3
UNKNOWN_SESSION = 77


class DataSession:
    """See Session."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self._names = Names(namespace)
        self._server = server
        self._connection = Connection(server)
        self._made: list[str] = []
        self._session_id, self._session_epoch = 0, 0

    def close(self) -> None:
        names = [self._names.of(name) for name in self._made]
        self._connection.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=steps.TIMEOUT_MS), 5)
        self._connection.close()

    def run(self, step: Any) -> Any:
        match step:
            case steps.MakeTopic(name):
                return self._make(name)
            case steps.Fetch():
                return self._plain(self._fetch(step))
            case steps.Produce() if step.acks == 0:
                self._connection.tell(step.message(self._names), step.version)
                return self._plain(self._connection.ask(steps.ListOffsets(()).message(self._names), 7))
            case steps.NewProducer():
                return self._plain(self._new_producer(step), left_out={"producer_id"})
        return self._plain(self._connection.ask(step.message(self._names), step.version))

    def _new_producer(self, step: steps.NewProducer) -> Any:
        """Kafka answers that it loads until it has its first block of ids."""

        def ask() -> Any:
            return self._connection.ask(step.message(self._names), step.version)

        await_that(lambda: getattr(ask(), "error_code", 0) != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there are no producer ids")
        return ask()

    def _make(self, name: str) -> Any:
        """Returns once its partitions are led."""
        count, configs = TOPICS[name]
        topic = CreatableTopic(name=self._names.of(name), num_partitions=count, replication_factor=1)
        topic.configs = [CreatableTopicConfig(name=key, value=value) for key, value in {**DEFAULTS, **configs}.items()]
        answer = self._connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=steps.TIMEOUT_MS), 7)
        codes = [each.error_code for each in answer.topics]
        if codes == [0]:
            self._names.learn(answer.topics)
            self._made.append(name)
            await_that(lambda: self._is_led(name, count), f"{name} is not led")
        return codes

    def _is_led(self, name: str, count: int) -> bool:
        asked = steps.ListOffsets(tuple((name, index, LATEST) for index in range(count)))
        topics = self._connection.ask(asked.message(self._names), 7).topics
        return all(partition.error_code == 0 for topic in topics for partition in topic.partitions)

    def _fetch(self, step: steps.Fetch) -> Any:
        session_id, epoch = 0, -1
        match step.session:
            case SessionEpoch.NEW:
                epoch = 0
            case SessionEpoch.NEXT if self._session_id:
                session_id, epoch = self._session_id, self._session_epoch + 1
            case SessionEpoch.AGAIN if self._session_id:
                session_id, epoch = self._session_id, self._session_epoch
            case SessionEpoch.END:
                session_id, epoch = self._session_id, -1
            case SessionEpoch.UNKNOWN:
                session_id, epoch = UNKNOWN_SESSION, 1
        answer = self._connection.ask(step.message(self._names, session_id, epoch), step.version)
        if not isinstance(answer, FetchResponse):
            return answer
        if answer.error_code == 0 and step.version >= 7:
            self._session_id, self._session_epoch = answer.session_id, max(epoch, 0)
        answer.session_id = int(answer.session_id != 0)
        recompressed = {self._names.of(name) for name in RECOMPRESSED}
        for topic in answer.responses:
            topic.topic = name = self._names.by_id.get(topic.topic_id, topic.topic)
            for partition in topic.partitions:
                partition.records = _opened(bytes(partition.records or b""), "size_recompressed" if name in recompressed else "size")
        return answer

    # What others see.

    def describe(self) -> Any:
        every = [(name, index) for name in self._made for index in range(TOPICS[name][0])]
        if not every:
            return []
        producers = [TopicRequest(name=self._names.of(name), partition_indexes=[index]) for name, index in every]
        offsets = {
            str(at): self._connection.ask(steps.ListOffsets(tuple((*each, at) for each in every)).message(self._names), 7)
            for at in (EARLIEST, LATEST, LARGEST)
        }
        return self._plain({"offsets": offsets, "producers": self._connection.ask(DescribeProducersRequest(topics=producers), 0)})

    def log(self) -> Any:
        """Every batch with its records, and the segments of each partition."""
        return self._plain(
            {
                f"{self._names.of(name)}-{index}": {"records": self._everything(name, index), "segments": self._segments(name, index)}
                for name in self._made
                for index in range(TOPICS[name][0])
            },
        )

    def _everything(self, name: str, index: int) -> list[Any]:
        earliest = self._connection.ask(steps.ListOffsets(((name, index, EARLIEST),)).message(self._names), 7)
        offset = earliest.topics[0].partitions[0].offset
        found: list[Any] = []
        while True:
            answer = self._fetch(steps.Fetch((steps.FetchFrom(name, index, offset),)))
            batches = answer.responses[0].partitions[0].records["batches"]
            found += batches
            if not batches:
                return found
            offset = batches[-1]["header"]["last_offset"] + 1

    def _segments(self, name: str, index: int) -> list[str]:
        directory = self._server.data_dir / f"{self._names.of(name)}-{index}"
        return sorted(path.name for path in directory.glob("*.log"))

    def _plain(self, answer: Any, *, left_out: Any = (), in_order: Any = ("batches", "records")) -> Any:
        return _without_clock(by_name(plain(answer, left_out={*LEFT_OUT, *left_out}, in_order=in_order)))


def _opened(data: bytes, size: str) -> dict[str, Any]:
    """Whole batches with their records, and whether the last batch is cut."""
    batches, end = [], 0
    try:
        for position, header in iterate_headers(data):
            batches.append(_batch(data, position, header, size))
            end = position + header.size_bytes
    except DecodeError:
        pass  # the batch that is cut
    return {"batches": batches, "is_cut": end < len(data)}


def _batch(data: bytes, position: int, header: Any, size: str) -> dict[str, Any]:
    fields = header._asdict()
    del fields["crc"], fields["batch_length"]
    fields["last_offset"] = header.last_offset
    try:
        records: Any = [record._asdict() for record in iterate_records(data, position)]
    except DecodeError:
        records = "not to be read"
    return {"header": fields, size: header.size_bytes, "records": records}


def _without_clock(value: Any) -> Any:
    """Times of the broker's clock as "now"."""
    if isinstance(value, dict):
        return {key: _without_clock(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_clock(each) for each in value]
    is_now = isinstance(value, int) and STARTED_MS <= value <= STARTED_MS + NOW_SPAN_MS
    return "now" if is_now else value - BASE_MS if isinstance(value, int) and abs(value - BASE_MS) < 20_000_000 else value
