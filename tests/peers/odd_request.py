"""What the tables of odd requests are made with."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch

NOW_MS = time.time_ns() // 1_000_000
UNKNOWN_ID = bytes(range(16))
INT32_MAX = 2**31 - 1


Row = tuple[str, Any, int]
"""A request's name, its message and the version it is sent in."""


@dataclass(frozen=True, slots=True)
class OddRequest:
    """`name` is the test's; `message` goes to both servers in `version`."""

    name: str
    message: Any
    version: int


def batch(*keys: bytes | None, timestamp: int = NOW_MS, **fields: Any) -> memoryview:
    """A batch of one record for each key."""
    records = [SimpleRecord(key=key, value=b"value", timestamp=timestamp) for key in keys or (b"key",)]
    return memoryview(build_batch(records, **fields))


def produce(topic: str, records: Any, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)


def committing(
    group: str, name: str, *positions: tuple[int, int], epoch: int = -1, metadata: str | None = "", **fields: Any
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )
        for index, offset in positions
    ]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=name, partitions=partitions)], **fields)
