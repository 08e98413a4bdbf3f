"""What an operator reads of topics that come, go and change: what, who and how."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.configs import alter_client_quotas, incremental_alter_configs
from broker.handlers.topics import create_partitions, create_topics, delete_topics, metadata
from broker.metadata.change_log import LOOKED_AT_CONFIGS_MAX, ChangeLog
from broker.observability.limited_log import EVENT_LINES_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.uuids import uuid_to_text
from tests.broker.metadata.room import Room, context, creation, open_room
from tests.support.clock import ManualClock

WHO = "principal=User:ANONYMOUS client=127.0.0.1 client_id=client"


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.cluster")


async def call(room: Room, handler: Any, version: int, request: Any) -> Any:
    return await handler.build(room.services)(context(version), request)


def topic_id(room: Room, name: str) -> str:
    return uuid_to_text(room.cache.topics[name].topic_id)


async def test_a_created_topic_is_told_with_what_was_asked_for_and_by_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)

    await call(room, create_topics, 7, creation("orders", 3, 1, retention_ms="1000"))

    facts = f"topic=orders id={topic_id(room, 'orders')} partitions=3 replication_factor=1"
    assert caplog.messages == [f'topic created {facts} configs="retention.ms=1000" how=explicit {WHO}']


async def test_a_topic_that_a_client_only_asked_for_is_told_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)

    metadata.build(room.services)(context(9), request)
    while not caplog.messages:
        await asyncio.sleep(0)

    (message,) = caplog.messages
    assert "t" in room.cache.topics
    assert message.endswith(f"partitions=1 replication_factor=1 how=auto {WHO}")


async def test_a_coordinator_s_topic_is_told_as_internal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)

    room.client.ensure_internal_topic("__consumer_offsets")
    while not caplog.messages:
        await asyncio.sleep(0)

    (message,) = caplog.messages
    assert "__consumer_offsets" in room.cache.topics
    assert message.startswith("topic created topic=__consumer_offsets ") and message.endswith("how=internal")


async def test_a_refused_topic_is_told_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)

    await call(room, create_topics, 7, creation("a b", 1, 1))

    (message,) = caplog.messages
    assert message.startswith('topic not created topic="a b" error=INVALID_TOPIC_EXCEPTION reason=') and message.endswith(WHO)


async def test_a_request_that_is_refused_whole_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)

    with pytest.raises(KafkaError):
        await call(room, create_topics, 7, creation("t", 20_000, 1))

    (message,) = caplog.messages
    assert message.startswith("topics not created error=POLICY_VIOLATION reason=") and message.endswith(WHO)


async def test_what_is_only_validated_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)

    await call(room, create_topics, 7, creation("t", 1, 1, validate_only=True))

    assert caplog.messages == []


async def test_deletions_additions_and_changes_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)
    await call(room, create_topics, 7, creation("t", 1, 1))
    kept_id = topic_id(room, "t")
    caplog.clear()
    configs = [
        AlterableConfig(name="retention.ms", config_operation=0, value="5"),
        AlterableConfig(name="segment.ms", config_operation=1, value=None),
        AlterableConfig(name="cleanup.policy", config_operation=2, value="compact"),
    ]

    await call(
        room,
        create_partitions,
        3,
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=1_000),
    )
    await call(
        room,
        incremental_alter_configs,
        1,
        IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)]),
    )
    await call(room, delete_topics, 5, DeleteTopicsRequest(topic_names=["t", "none"], timeout_ms=1_000))

    assert caplog.messages[:2] == [
        f"partitions added topic=t partitions=4 {WHO}",
        f'config changed topic=t changes="retention.ms=5,segment.ms deleted,cleanup.policy+=compact" {WHO}',
    ]
    assert sorted(caplog.messages[2:]) == [
        f"topic deleted topic=t id={kept_id} {WHO}",
        f'topic not deleted topic=none error=UNKNOWN_TOPIC_OR_PARTITION reason="This server does not host this topic-partition." {WHO}',
    ]


async def test_a_refused_config_s_value_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)
    configs = [AlterableConfig(name="ssl.keystore.password", config_operation=0, value="secret")]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)

    await call(room, incremental_alter_configs, 1, IncrementalAlterConfigsRequest(resources=[resource]))

    (message,) = caplog.messages
    assert "config not changed resource_type=4 resource=1 configs=ssl.keystore.password error=INVALID_REQUEST" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("listener.name.x.ssl.keystore.password", "secret", "(redacted)"),
        ("listener.name.x.plain.sasl.jaas.config", 'Module required password="secret";', "(redacted)"),
        ("ssl.keystore.key", "secret", "(redacted)"),
        ("delegation.token.master.key", "secret", "(redacted)"),  # of unknown type: Kafka 3 has it
        ("listener.name.x.ssl.keystore.location", "/a.p12", "/a.p12"),
        ("log.retention.ms", "5", "5"),
    ],
)
def test_a_secret_of_a_broker_is_not_told(name: str, value: str, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    """CVE-2023-24619 of Redpanda: credentials were logged."""
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[AlterableConfig(name=name, value=value)])
    result = AlterConfigsResourceResponse(resource_type=4, resource_name="1")
    request, response = IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse(responses=[result])

    ChangeLog(ManualClock()).configs_altered(request, response, None)

    (message,) = caplog.messages
    assert f"{name}={shown}" in message
    assert "secret" not in message


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INVALID_CONFIG])
def test_of_very_many_configs_only_those_are_looked_at_that_a_line_has_room_for(error: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    looked_at: list[Any] = [AlterableConfig(name=f"name.{number}", value="x") for number in range(LOOKED_AT_CONFIGS_MAX)]
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=looked_at + [None] * 900)
    result = AlterConfigsResourceResponse(error_code=error, resource_type=2, resource_name="t")
    request, response = IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse(responses=[result])

    ChangeLog(ManualClock()).configs_altered(request, response, None)

    (message,) = caplog.messages
    assert "name.0" in message
    assert f"name.{LOOKED_AT_CONFIGS_MAX - 1}" not in message


async def test_a_change_is_told_also_when_its_client_has_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)
    room.executor.is_held = True
    asking = asyncio.ensure_future(call(room, create_topics, 7, creation("t", 1, 1)))
    await asyncio.sleep(0)
    asking.cancel()

    room.executor.release()
    while "t" not in room.cache.topics:
        await asyncio.sleep(0)

    assert caplog.messages[0].startswith("topic created topic=t ")


async def test_many_topics_are_a_few_lines_and_a_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(500)]

    await call(room, create_topics, 7, CreateTopicsRequest(topics=topics))
    room.clock.advance(60_000)

    assert len(caplog.messages) == EVENT_LINES_MAX + 1
    assert caplog.messages[-1] == f"topic created: {500 - EVENT_LINES_MAX} more lines were left out in the last 60 s"


async def test_changed_and_refused_quotas_are_told_with_their_entity(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)
    both = [EntityData(entity_type="user", entity_name="a b"), EntityData(entity_type="client-id", entity_name=None)]
    ops = [OpData(key="producer_byte_rate", value=1048576.0), OpData(key="request_percentage", remove=True)]

    await call(room, alter_client_quotas, 1, AlterClientQuotasRequest(entries=[EntryData(entity=both, ops=ops)]))
    refused = EntryData(entity=both[:1], ops=[OpData(key="bad", value=1.0)])
    await call(room, alter_client_quotas, 1, AlterClientQuotasRequest(entries=[refused]))
    await call(room, alter_client_quotas, 1, AlterClientQuotasRequest(entries=[EntryData(entity=both, ops=ops)], validate_only=True))

    assert caplog.messages == [
        'client quotas changed entity="client-id=<default>,user=a b" '
        f'changes="producer_byte_rate=1048576,request_percentage removed" {WHO}',
        f'client quotas not changed entity="user=a b" error=INVALID_REQUEST reason="Invalid configuration key bad" {WHO}',
    ]
