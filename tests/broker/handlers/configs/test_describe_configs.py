"""The comparison with a real broker, field by field, is in tests/broker/metadata/test_with_kafka.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.configs import describe_configs
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.broker.metadata.room import Room, context, creation, open_room
from tests.support.turns import finished

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
async def room(tmp_path: Path) -> Room:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1, retention_ms="77"))
    return room


def _ask(room: Room, kind: int, name: str, keys: list[str] | None = None, **fields: Any) -> DescribeConfigsResponse:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer: Any = finished(describe_configs.build(room.services)(context(4), DescribeConfigsRequest(resources=[resource], **fields)))
    return answer


async def test_only_asked_configs_are_told(room: Room) -> None:
    configs = _ask(room, TOPIC, "t", ["retention.ms", "nope"]).results[0].configs

    assert [(config.name, config.value, config.config_source) for config in configs] == [("retention.ms", "77", 1)]


@pytest.mark.parametrize("keys", [None, []])
async def test_no_keys_means_all(room: Room, keys: list[str] | None) -> None:
    assert len(_ask(room, TOPIC, "t", keys).results[0].configs) > 30


async def test_synonyms_and_documentation_are_told_when_asked_for(room: Room) -> None:
    plain = _ask(room, TOPIC, "t", ["segment.bytes"]).results[0].configs[0]
    full = _ask(room, TOPIC, "t", ["segment.bytes"], include_synonyms=True, include_documentation=True).results[0].configs[0]

    assert (plain.synonyms, plain.documentation) == ([], None)
    assert [(synonym.name, synonym.source) for synonym in full.synonyms] == [("log.segment.bytes", 5)]
    assert full.documentation


async def test_secrets_are_not_told(room: Room) -> None:
    config = _ask(room, BROKER, "1", ["ssl.keystore.password"]).results[0].configs[0]

    assert (config.value, config.is_sensitive) == (None, True)


@pytest.mark.parametrize(
    ("kind", "name", "error", "message"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (
            TOPIC,
            "a b",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (LOGGER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 7"),
        (METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
    ],
)
async def test_resources_that_are_not_here(room: Room, kind: int, name: str, error: ErrorCode, message: str) -> None:
    result = _ask(room, kind, name).results[0]

    assert (result.error_code, result.error_message, result.configs) == (error, message, [])


async def test_an_unknown_resource_type_fails_the_whole_request(room: Room) -> None:
    with pytest.raises(KafkaError):
        _ask(room, 99, "t")


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_can_be_written_and_read(room: Room, version: int) -> None:
    answer = _ask(room, BROKER, "1", include_synonyms=True, include_documentation=True)

    decoded, _ = decode(DescribeConfigsResponse, version, encode(answer, version))

    assert [config.name for config in decoded.results[0].configs] == [config.name for config in answer.results[0].configs]


async def test_internal_segment_bytes_is_told_for_itself(room: Room) -> None:
    await room.client.create_topics(creation("small", 1, 1, internal_segment_bytes="100000"))

    configs = _ask(room, TOPIC, "small", ["internal.segment.bytes", "segment.bytes"]).results[0].configs

    assert {config.name: config.value for config in configs} == {"internal.segment.bytes": "100000", "segment.bytes": "1073741824"}
    assert room.cache.log_config("small").segment_bytes == 100_000


async def test_a_listeners_config_for_all_brokers_is_told_as_what_it_is(room: Room) -> None:
    key = "listener.name.plaintext.num.network.threads"
    change = AlterableConfig(name=key, config_operation=0, value="3")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
    await room.client.incremental_alter_configs(IncrementalAlterConfigsRequest(resources=[resource]))

    config = _ask(room, BROKER, "", [key]).results[0].configs[0]

    assert (config.value, config.is_sensitive, config.read_only, config.config_type) == ("3", False, True, 3)
