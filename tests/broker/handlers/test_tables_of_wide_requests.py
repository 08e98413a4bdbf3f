"""No request fills one dict or set with all that it names: to grow it would hold the loop for 3 to 10 ms (broker/spread_dict.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.controller.topic_selection import find_duplicates
from broker.deferred import Deferred
from broker.handlers import (
    alter_replica_log_dirs,
    delete_groups,
    delete_records,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    produce,
)
from broker.spread_dict import DICT_KEYS_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.framing import SmallFrameBuffer
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.groups.harness import GroupHandlers
from tests.broker.groups.transcript import Transcript
from tests.broker.metadata.room import context as room_context
from tests.broker.metadata.room import creation, open_room
from tests.broker.replication.moving import Moving
from tests.broker.replication.world import context

COUNT = DICT_KEYS_MAX * 5 // 4
NAMES = [f"n{number}" for number in range(COUNT)]
INDEXES = range(COUNT)


def own_buffer() -> memoryview:
    """Records as those of a large frame are given: valid as long as they are referenced."""
    return memoryview(SmallFrameBuffer(100))


WORLD_REQUESTS: dict[str, tuple[Any, int, int, Callable[[], Any]]] = {
    "AlterReplicaLogDirs": (
        alter_replica_log_dirs,
        34,
        2,
        lambda: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/d", topics=[AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in NAMES])]
        ),
    ),
    "DeleteRecords, topics": (
        delete_records,
        21,
        2,
        lambda: DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition()]) for name in NAMES]),
    ),
    "DeleteRecords, partitions": (
        delete_records,
        21,
        2,
        lambda: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=index) for index in INDEXES])]
        ),
    ),
    "Fetch": (
        fetch,
        1,
        12,
        lambda: FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=name, partitions=[FetchPartition()]) for name in NAMES]),
    ),
    "ListOffsets": (
        list_offsets,
        2,
        5,
        lambda: ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition()]) for name in NAMES]
        ),
    ),
    "Produce": (
        produce,
        0,
        9,
        lambda: ProduceRequest(
            acks=1, topic_data=[TopicProduceData(name=name, partition_data=[PartitionProduceData(records=own_buffer())]) for name in NAMES]
        ),
    ),
    "Produce, twice named": (
        produce,
        0,
        9,
        lambda: ProduceRequest(
            acks=1,
            topic_data=[TopicProduceData(name=name, partition_data=[PartitionProduceData(records=own_buffer())] * 2) for name in NAMES],
        ),
    ),
}
ROOM_REQUESTS: dict[str, tuple[Any, int, Callable[[], Any]]] = {
    "DescribeConfigs": (
        describe_configs,
        4,
        lambda: DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=NAMES)]),
    ),
    "DescribeTopicPartitions": (
        describe_topic_partitions,
        0,
        lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]),
    ),
    "Metadata, names": (
        metadata,
        9,
        lambda: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False),
    ),
    "Metadata, ids": (
        metadata,
        12,
        lambda: MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=(number + 2).to_bytes(16)) for number in INDEXES]),
    ),
}


def tables_of(work: Any) -> Iterator[tuple[str, int]]:
    """What the generator, and those that it goes on with, keep in dicts and sets: the name of the variable and the size."""
    while isinstance(work, GeneratorType) and work.gi_frame is not None:
        for name, value in work.gi_frame.f_locals.items():
            owned = {name: value, **{f"{name}.{field}": held for field, held in getattr(value, "__dict__", {}).items()}}
            for place, held in owned.items():
                if isinstance(held, (dict, set, frozenset)):
                    yield f"{work.gi_frame.f_code.co_name}: {place}", len(held)
        work = work.gi_yieldfrom


def run_and_watch(work: Any) -> tuple[Any, dict[str, int]]:
    """What `work` returns, and each table's largest size."""
    largest: dict[str, int] = {}
    assert isinstance(work, GeneratorType)
    awaited: Any = None
    while True:
        try:
            awaited = work.send(awaited.value if isinstance(awaited, Deferred) else None)
        except StopIteration as e:
            return e.value, largest
        for place, size in tables_of(work):
            largest[place] = max(size, largest.get(place, 0))


def too_large(largest: dict[str, int]) -> dict[str, int]:
    return {place: size for place, size in largest.items() if size > DICT_KEYS_MAX}


@pytest.mark.parametrize("name", WORLD_REQUESTS)
def test_partitions_are_not_kept_in_one_table(name: str) -> None:
    handler, key, version, make = WORLD_REQUESTS[name]

    _, largest = run_and_watch(handler.build(Moving().world.services())(context(key, version), make()))

    assert not too_large(largest)


@pytest.mark.parametrize("name", ROOM_REQUESTS)
async def test_names_are_not_kept_in_one_table(tmp_path: Path, name: str) -> None:
    handler, version, make = ROOM_REQUESTS[name]
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))

    _, largest = run_and_watch(handler.build(room.services)(room_context(version), make()))

    assert not too_large(largest)
    await room.close()


def test_names_that_are_compared_with_each_other_are_not_kept_in_one_table() -> None:
    duplicates, largest = run_and_watch(find_duplicates(NAMES * 2, str))

    assert list(duplicates) == NAMES
    assert not too_large(largest)


def test_groups_are_not_kept_in_one_table() -> None:
    response, largest = run_and_watch(GroupHandlers().send(describe_groups, 5, DescribeGroupsRequest(groups=NAMES)))

    assert [group.group_id for group in response.groups] == NAMES
    assert not too_large(largest)


def test_groups_to_delete_are_not_kept_in_one_table() -> None:
    response, largest = run_and_watch(GroupHandlers().send(delete_groups, 2, DeleteGroupsRequest(groups_names=[*NAMES, *NAMES])))

    assert [result.group_id for result in response.results] == NAMES
    assert not too_large(largest)


def test_topics_of_offsets_to_delete_are_not_kept_in_one_table() -> None:
    script = Transcript()
    script.commit(1)
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition()]) for name in NAMES]

    response, largest = run_and_watch(
        GroupHandlers(script).send(offset_delete, 0, OffsetDeleteRequest(group_id="g", topics=[*topics, *topics]))
    )

    assert [topic.name for topic in response.topics] == NAMES
    assert not too_large(largest)


def test_topics_of_a_refused_commit_are_not_kept_in_one_table() -> None:
    topics = [OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition()]) for name in NAMES]
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    response, largest = run_and_watch(offset_commit.error_response(OffsetCommitRequest(topics=topics), error))  # type: ignore[arg-type]

    assert [topic.name for topic in response.topics] == NAMES
    assert not too_large(largest)
