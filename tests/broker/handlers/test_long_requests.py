"""Requests with many elements are answered in pieces, between which others are served; what the same thing costs twice has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.configs import describe_configs, incremental_alter_configs
from broker.handlers.groups import describe_groups, find_coordinator, list_groups, offset_commit, offset_fetch
from broker.handlers.produce_fetch import fetch, offset_for_leader_epoch, produce
from broker.handlers.topics import create_partitions, create_topics, delete_topics, describe_topic_partitions, metadata
from broker.loop.turns import ELEMENTS_AT_ONCE
from broker.network.answer_size import ANSWER_BYTES_MAX
from protocol.apis import APIS
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.groups.harness import GroupHandlers
from tests.broker.metadata.room import context, creation, open_room
from tests.broker.replication.world import World
from tests.support.turns import finished, run

COUNT = 2_000
ERROR_BYTES = int(ErrorCode.UNKNOWN_SERVER_ERROR).to_bytes(2, "big", signed=True)
APIS_BY_RESPONSE = {api.response_class: api for api in APIS.values()}
NAMES = [f"n{number}" for number in range(COUNT)]


def _offset_fetch_of_topics() -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in NAMES])


def _offset_fetch_of_groups() -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES])


def _offset_fetch_of_partitions() -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(COUNT)))
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])


GROUP_REQUESTS: dict[str, tuple[Any, int, Callable[[], Any]]] = {
    "FindCoordinator": (find_coordinator, 4, lambda: FindCoordinatorRequest(coordinator_keys=NAMES)),
    "DescribeGroups": (describe_groups, 5, lambda: DescribeGroupsRequest(groups=NAMES)),
    "OffsetFetch, topics": (offset_fetch, 1, _offset_fetch_of_topics),
    "OffsetFetch, groups": (offset_fetch, 8, _offset_fetch_of_groups),
    "OffsetFetch, partitions": (offset_fetch, 8, _offset_fetch_of_partitions),
}
METADATA_REQUESTS: dict[str, tuple[Any, int, Callable[[], Any]]] = {
    "Metadata, missing": (
        metadata,
        9,
        lambda: MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False),
    ),
    "Metadata, missing ids": (
        metadata,
        12,
        lambda: MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=(number + 1).to_bytes(16, "big")) for number in range(COUNT)],
            allow_auto_topic_creation=False,
        ),
    ),
    "Metadata, many partitions": (metadata, 9, lambda: MetadataRequest(topics=[MetadataRequestTopic(name="large")])),
    "Metadata, all": (metadata, 9, lambda: MetadataRequest(topics=None)),
    "DescribeTopicPartitions, missing": (
        describe_topic_partitions,
        0,
        lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]),
    ),
    "DescribeTopicPartitions, many partitions": (
        describe_topic_partitions,
        0,
        lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name="large")]),
    ),
    "DescribeConfigs, missing": (
        describe_configs,
        4,
        lambda: DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]),
    ),
    "DescribeConfigs, one topic": (
        describe_configs,
        4,
        lambda: DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="large")] * COUNT),
    ),
}


@pytest.mark.parametrize("name", GROUP_REQUESTS)
def test_requests_about_many_groups_go_in_turns(name: str) -> None:
    handler, version, make = GROUP_REQUESTS[name]

    outcome = GroupHandlers().send(handler, version, make())

    assert isinstance(outcome, GeneratorType)
    assert run(outcome)[1] >= COUNT - ELEMENTS_AT_ONCE


ERROR_RESPONSES: dict[str, tuple[Any, Callable[[], Any]]] = {
    "CreatePartitions": (create_partitions, lambda: CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name) for name in NAMES])),
    "CreateTopics": (create_topics, lambda: CreateTopicsRequest(topics=[CreatableTopic(name=name) for name in NAMES])),
    "DeleteTopics, names": (delete_topics, lambda: DeleteTopicsRequest(topic_names=NAMES)),
    "DeleteTopics": (delete_topics, lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES])),
    "FindCoordinator": (find_coordinator, lambda: FindCoordinatorRequest(coordinator_keys=NAMES)),
    "Fetch, topics": (
        fetch,
        lambda: FetchRequest(topics=[FetchTopic(topic=name, partitions=[FetchPartition()]) for name in NAMES]),
    ),
    "Fetch": (fetch, lambda: FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()] * COUNT)])),
    "DescribeConfigs": (describe_configs, lambda: DescribeConfigsRequest(resources=[DescribeConfigsResource()] * COUNT)),
    "DescribeGroups": (describe_groups, lambda: DescribeGroupsRequest(groups=NAMES)),
    "DescribeTopicPartitions": (describe_topic_partitions, lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest()] * COUNT)),
    "IncrementalAlterConfigs": (
        incremental_alter_configs,
        lambda: IncrementalAlterConfigsRequest(resources=[AlterConfigsResource()] * COUNT),
    ),
    "Metadata": (metadata, lambda: MetadataRequest(topics=[MetadataRequestTopic(name="t")] * COUNT)),
    "OffsetCommit": (
        offset_commit,
        lambda: OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()] * COUNT)]),
    ),
    "OffsetFetch, topics": (offset_fetch, _offset_fetch_of_topics),
    "OffsetFetch, groups": (offset_fetch, _offset_fetch_of_groups),
    "Produce": (
        produce,
        lambda: ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData()] * COUNT)]),
    ),
}


@pytest.mark.parametrize("name", ERROR_RESPONSES)
def test_the_error_of_a_large_request_is_told_in_turns(name: str) -> None:
    handler, make = ERROR_RESPONSES[name]

    outcome = handler.error_response(make(), KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    assert isinstance(outcome, GeneratorType)
    response, _ = run(outcome)
    version = (
        APIS_BY_RESPONSE[type(response)].max_version
        if isinstance(response, FindCoordinatorResponse) or (isinstance(response, OffsetFetchResponse) and response.groups)
        else APIS_BY_RESPONSE[type(response)].min_version
    )
    assert encode(response, version).count(ERROR_BYTES) >= COUNT


def test_a_config_among_very_many_keys_is_described_and_no_other_is(tmp_path: Path) -> None:
    async def test() -> None:
        room = await open_room(tmp_path)
        await room.client.create_topics(creation("t", 1, 1))
        keys = [*NAMES, "retention.ms"]
        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=keys)

        outcome = describe_configs.build(room.services)(context(4), DescribeConfigsRequest(resources=[resource]))

        (result,) = finished(outcome).results
        assert [config.name for config in result.configs] == ["retention.ms"]
        await room.close()

    asyncio.run(test())


@pytest.mark.parametrize("name", METADATA_REQUESTS)
async def test_requests_about_many_topics_go_in_turns(tmp_path: Path, name: str) -> None:
    handler, version, make = METADATA_REQUESTS[name]
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("large", COUNT, 1))

    outcome = handler.build(room.services)(context(version), make())

    assert isinstance(outcome, GeneratorType)
    assert run(outcome)[1] >= COUNT - ELEMENTS_AT_ONCE
    await room.close()


def test_many_leader_epochs_go_in_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    asked = [OffsetForLeaderPartition(partition=number) for number in range(COUNT)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=asked)])

    outcome = offset_for_leader_epoch.build(world.services())(context(4), request)

    assert isinstance(outcome, GeneratorType)
    assert run(outcome)[1] >= COUNT - ELEMENTS_AT_ONCE


def test_many_groups_are_listed_in_turns() -> None:
    handlers = GroupHandlers()
    _commit(handlers, *(f"g{number}" for number in range(COUNT)))

    outcome = handlers.send(list_groups, 4, ListGroupsRequest())

    assert isinstance(outcome, GeneratorType)
    response, pieces_count = run(outcome)
    assert len(response.groups) == COUNT
    assert pieces_count >= COUNT - ELEMENTS_AT_ONCE


async def test_a_topic_that_goes_while_it_is_described_does_no_harm(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("large", COUNT, 1))
    outcome = metadata.build(room.services)(context(9), MetadataRequest(topics=None))

    room.cache.topics.clear()
    response = finished(outcome)

    assert [len(topic.partitions) for topic in response.topics] == [COUNT]
    await room.close()


async def test_one_resource_named_often_is_answered_each_time_up_to_a_limit(tmp_path: Path) -> None:
    """4,000 names in 20 KB made an answer of 213 MB."""
    room = await open_room(tmp_path)
    resources = [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)] * 4_000
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)

    response = finished(describe_configs.build(room.services)(context(4), request))

    told = [result for result in response.results if result.error_code == ErrorCode.NONE]
    refused = response.results[len(told) :]
    assert {result.error_code for result in refused} == {ErrorCode.POLICY_VIOLATION}
    assert len({id(result.configs) for result in told}) == 1, "described once"
    size_bytes = len(encode(DescribeConfigsResponse(results=told[:1]), 4))
    assert ANSWER_BYTES_MAX * 0.8 < len(told) * size_bytes < ANSWER_BYTES_MAX * 1.2
    await room.close()


def test_offsets_of_one_group_asked_for_often_have_a_limit() -> None:
    handlers = GroupHandlers()
    _commit(handlers, "g", metadata="m" * 4_000)
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 20_000

    response = finished(handlers.send(offset_fetch, 8, OffsetFetchRequest(groups=groups)))

    told = [group for group in response.groups if group.error_code == ErrorCode.NONE]
    assert {group.error_code for group in response.groups[len(told) :]} == {ErrorCode.POLICY_VIOLATION}
    assert ANSWER_BYTES_MAX * 0.9 < len(told) * 4_000 < ANSWER_BYTES_MAX


def _commit(handlers: GroupHandlers, *group_ids: str, metadata: str = "") -> None:
    """One offset for each group."""
    for group_id in group_ids:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=metadata)
        request = OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
        handlers.script.coordinator.commit_offsets(request, 8)
