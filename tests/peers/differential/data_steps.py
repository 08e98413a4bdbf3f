"""What producers and consumers ask of a broker in the fuzzer of data.

Each step is a request but for MakeTopic. Topics are named without the namespace; times are milliseconds after BASE_MS.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import Any

from protocol.checksum import crc32c
from protocol.compression import Compression
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import CRC_START, SimpleRecord, build_batch
from tests.peers.differential.names import Names

BASE_MS = time.time_ns() // 1_000_000 - 600_000
"""Some minutes ago, the same for both brokers."""
TIMEOUT_MS = 10_000
FIRST_VERSION_WITH_IDS = 13
NO_EPOCH = -1

Partitions = tuple[tuple[str, int], ...]
"""Topics with an index each."""


@dataclass(frozen=True, slots=True)
class MakeTopic:
    """Makes the topic of that name, with what TOPICS says of it."""

    name: str


class Damage(Enum):
    """What is done to the bytes of a batch."""

    NONE = "none"
    CRC = "crc"
    MAGIC = "magic"
    LENGTH = "length"
    """The length in the header is too small for a batch."""
    CUT = "cut"
    """The last byte is missing."""
    TAIL = "tail"
    """Some bytes follow."""
    COUNT = "count"
    """The header says one record more; the CRC is right."""
    CODEC = "codec"
    """A compression codec that does not exist; the CRC is right."""
    LAST_OFFSET = "last offset"
    """The last offset delta in the header is one too large; the CRC is right."""
    BASE_OFFSET = "base offset"
    """It begins at offset 7."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A record for each of `keys`, at `at` and one millisecond later each. `producer` is id, epoch and first sequence."""

    keys: tuple[str | None, ...] = ("k",)
    size: int = 5
    at: int = 0
    step: int = 1
    compression: str = "none"
    producer: tuple[int, int, int] | None = None
    is_transactional: bool = False
    is_control: bool = False
    is_log_append_time: bool = False
    damage: Damage = Damage.NONE

    def data(self) -> bytes:
        records = [
            SimpleRecord(
                key=None if key is None else key.encode(), value=b"v" * self.size, timestamp=BASE_MS + self.at + number * self.step
            )
            for number, key in enumerate(self.keys)
        ]
        fields: dict[str, Any] = {}
        if self.producer is not None:
            fields = dict(zip(("producer_id", "producer_epoch", "base_sequence"), self.producer, strict=True))
        batch = build_batch(
            records,
            compression=Compression[self.compression.upper()],
            is_transactional=self.is_transactional,
            is_control=self.is_control,
            log_append_time_ms=BASE_MS if self.is_log_append_time else None,
            **fields,
        )
        return bytes(_damaged(batch, self.damage))


def _damaged(batch: bytearray, damage: Damage) -> bytearray:
    match damage:
        case Damage.CRC:
            batch[17] ^= 0x55
        case Damage.MAGIC:
            batch[16] = 7
        case Damage.LENGTH:
            batch[8:12] = (10).to_bytes(4, "big")
        case Damage.CUT:
            del batch[-1:]
        case Damage.TAIL:
            batch += b"12345"
        case Damage.COUNT:
            _add(batch, 57)
        case Damage.CODEC:
            batch[22] |= 7
            _add(batch, 57, 0)
        case Damage.LAST_OFFSET:
            _add(batch, 23)
        case Damage.BASE_OFFSET:
            batch[0:8] = (7).to_bytes(8, "big")
    return batch


def _add(batch: bytearray, position: int, more: int = 1) -> None:
    """To the int32 there; makes the CRC right."""
    value = int.from_bytes(batch[position : position + 4], "big", signed=True) + more
    batch[position : position + 4] = value.to_bytes(4, "big", signed=True)
    batch[17:CRC_START] = crc32c(bytes(batch[CRC_START:])).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Produce:
    """Each of `parts` is a topic, an index and batches."""

    parts: tuple[tuple[str, int, tuple[Batch, ...]], ...]
    acks: int = -1
    version: int = 9
    transactional_id: str | None = None

    def message(self, names: Names) -> ProduceRequest:
        topics = []
        for name, index, batches in self.parts:
            records = memoryview(bytearray(b"".join(batch.data() for batch in batches)))
            part = PartitionProduceData(index=index, records=records)
            topics.append(TopicProduceData(name=names.of(name), topic_id=names.topic_id(name), partition_data=[part]))
        return ProduceRequest(acks=self.acks, timeout_ms=TIMEOUT_MS, topic_data=topics, transactional_id=self.transactional_id)


class SessionEpoch(Enum):
    """What a fetch says of its session."""

    NONE = "none"
    NEW = "new"
    NEXT = "next"
    """The epoch that follows; none without a session."""
    AGAIN = "again"
    """The last one."""
    END = "end"
    UNKNOWN = "unknown"
    """The next epoch of a session that does not exist."""


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Of Fetch."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Fetch:
    partitions: tuple[FetchFrom, ...]
    version: int = 12
    max_bytes: int = 1 << 24
    min_bytes: int = 0
    isolation_level: int = 0
    session: SessionEpoch = SessionEpoch.NONE
    forgotten: Partitions = ()

    def message(self, names: Names, session_id: int = 0, session_epoch: int = NO_EPOCH) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=names.of(each.topic),
                topic_id=names.topic_id(each.topic),
                partitions=[
                    FetchPartition(
                        partition=each.partition,
                        fetch_offset=each.offset,
                        partition_max_bytes=each.max_bytes,
                        current_leader_epoch=each.leader_epoch,
                        last_fetched_epoch=each.last_fetched_epoch if self.version >= 12 else NO_EPOCH,
                    )
                ],
            )
            for each in self.partitions
        ]
        return FetchRequest(
            max_wait_ms=20,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics_data=[
                ForgottenTopic(topic=names.of(name), topic_id=names.topic_id(name), partitions=[index]) for name, index in self.forgotten
            ],
        )


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """`asked` are topics, indexes and times: below 0 Kafka's special ones, else after BASE_MS."""

    asked: tuple[tuple[str, int, int], ...]
    isolation_level: int = 0
    leader_epoch: int = NO_EPOCH
    version: int = 7

    def message(self, names: Names) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=names.of(name),
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index, timestamp=at if at < 0 else BASE_MS + at, current_leader_epoch=self.leader_epoch
                    )
                ],
            )
            for name, index, at in self.asked
        ]
        level = self.isolation_level if self.version >= 2 else 0
        return ListOffsetsRequest(replica_id=-1, topics=topics, isolation_level=level, timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class EpochEnds:
    """An OffsetForLeaderEpoch: topics, indexes, the current epoch and the one asked for."""

    asked: tuple[tuple[str, int, int, int], ...]
    version: int = 4

    def message(self, names: Names) -> OffsetForLeaderEpochRequest:
        topics = [
            OffsetForLeaderTopic(
                topic=names.of(name),
                partitions=[OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)],
            )
            for name, index, current, epoch in self.asked
        ]
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """`asked` are topics, indexes and offsets."""

    asked: tuple[tuple[str, int, int], ...]
    version: int = 2

    def message(self, names: Names) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(name=names.of(name), partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            for name, index, offset in self.asked
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class NewProducer:
    """An InitProducerId without transactional id."""

    producer: tuple[int, int] = (-1, -1)
    version: int = 5

    def message(self, names: Names) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=self.producer[0], producer_epoch=self.producer[1]
        )


@dataclass(frozen=True, slots=True)
class DescribeProducers:
    asked: Partitions
    version: int = 0

    def message(self, names: Names) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(name=names.of(name), partition_indexes=[index]) for name, index in self.asked])
