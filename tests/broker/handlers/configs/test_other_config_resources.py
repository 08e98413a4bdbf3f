"""Configs of groups, client metrics subscriptions and loggers: set, described and listed as by Kafka. All answers of Apache Kafka 4.3.1."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.configs import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages import alter_configs as replacing
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.broker.metadata.room import Room, context, creation, open_room
from tests.support.turns import finished

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
async def room(tmp_path: Path) -> Room:
    return await open_room(tmp_path)


@pytest.fixture
def levels() -> Iterator[None]:
    """Puts the loggers' levels back."""
    kept = {name: logging.getLogger(name).level for name in ("", "barnabas.controller", "barnabas.groups")}
    yield
    for name, level in kept.items():
        logging.getLogger(name).setLevel(level)


async def alter(room: Room, *resources: tuple[int, str, list[tuple[str, int, str | None]]], **fields: Any) -> list[tuple[int, str | None]]:
    asked = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in configs],
        )
        for kind, name, configs in resources
    ]
    handle: Any = incremental_alter_configs.build(room.services)
    answer = await handle(context(1), IncrementalAlterConfigsRequest(resources=asked, **fields))
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [(kind, name) for kind, name, _ in resources]
    return [(each.error_code, each.error_message) for each in answer.responses]


def describe(room: Room, kind: int, name: str, *keys: str) -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    answer: Any = finished(describe_configs.build(room.services)(context(4), request))
    assert answer.results[0].error_code == 0
    return {config.name: config for config in answer.results[0].configs}


async def test_a_group_has_what_is_set_on_it_over_the_broker_s(room: Room) -> None:
    before = describe(room, GROUP, "g")
    assert await alter(room, (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")])) == [(0, None)]
    after = describe(room, GROUP, "g", "consumer.session.timeout.ms")["consumer.session.timeout.ms"]

    assert len(before) == 17
    assert (before["consumer.session.timeout.ms"].value, before["consumer.session.timeout.ms"].config_source) == ("45000", 5)
    assert (after.value, after.config_source, after.config_type, after.read_only) == ("50000", 8, 3, False)
    assert [(each.name, each.value, each.source) for each in after.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert all(config.documentation for config in before.values())


async def test_a_subscription_is_replaced_as_a_whole(room: Room) -> None:
    await alter(room, (METRICS, "m", [("interval.ms", SET, "100"), ("metrics", SET, "org.apache.,x")]))
    shown = {name: (config.value, config.config_source) for name, config in describe(room, METRICS, "m").items()}
    entries = [replacing.AlterableConfig(name="interval.ms", value="200")]
    request = replacing.AlterConfigsRequest(
        resources=[replacing.AlterConfigsResource(resource_type=METRICS, resource_name="m", configs=entries)]
    )
    replaced: Any = alter_configs.build(room.services)
    answer = await replaced(context(2), request)

    assert shown == {"interval.ms": ("100", 7), "match": ("", 5), "metrics": ("org.apache.,x", 7)}
    assert [each.error_code for each in answer.responses] == [0]
    assert {name: config.value for name, config in describe(room, METRICS, "m").items()} == {
        "interval.ms": "200",
        "match": "",
        "metrics": "",
    }


@pytest.mark.parametrize(
    ("version", "types", "listed"),
    [
        (0, [], [("m", 16)]),
        (1, [], [("g", 32), ("m", 16), ("1", 8), ("1", 4), ("t", 2)]),
        (1, [GROUP, TOPIC], [("g", 32), ("t", 2)]),
        (1, [LOGGER], [("1", 8)]),
    ],
)
async def test_what_has_configs_is_listed(room: Room, version: int, types: list[int], listed: list[tuple[str, int]]) -> None:
    await room.client.create_topics(creation("t", 1, 1))
    await alter(room, (METRICS, "m", [("interval.ms", SET, "100")]), (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")]))

    answer: Any = finished(list_config_resources.build(room.services)(context(version), ListConfigResourcesRequest(resource_types=types)))

    decoded, _ = decode(ListConfigResourcesResponse, version, encode(answer, version))
    assert [(each.resource_name, each.resource_type) for each in decoded.config_resources] == listed


async def test_another_type_is_not_listed(room: Room) -> None:
    answer: Any = finished(list_config_resources.build(room.services)(context(1), ListConfigResourcesRequest(resource_types=[2, 99])))

    assert answer == ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.usefixtures("levels")
async def test_a_logger_has_its_level_under_kafka_s_name_and_ours(room: Room) -> None:
    answers = await alter(room, (LOGGER, "1", [("kafka.controller", SET, "WARN")]), (TOPIC, "gone", [("retention.ms", SET, "1")]))
    shown = describe(room, LOGGER, "1")

    assert [error for error, _ in answers] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert logging.getLogger("barnabas.controller").level == logging.WARNING
    assert [(shown[name].value, shown[name].config_source) for name in ("kafka.controller", "barnabas.controller")] == [("WARN", 6)] * 2
    assert "root" in shown


@pytest.mark.usefixtures("levels")
async def test_a_level_that_is_removed_is_that_of_the_root(room: Room) -> None:
    await alter(room, (LOGGER, "1", [("root", SET, "ERROR"), ("org.apache.kafka.coordinator.group", SET, "TRACE")]))
    fine = describe(room, LOGGER, "1", "barnabas.groups")["barnabas.groups"].value
    await alter(room, (LOGGER, "1", [("org.apache.kafka.coordinator.group", DELETE, None)]))

    assert fine == "TRACE"
    assert describe(room, LOGGER, "1", "barnabas.groups")["barnabas.groups"].value == "ERROR"


@pytest.mark.parametrize(
    ("name", "configs", "error", "message"),
    [
        ("1", [("root", SET, "WARN"), ("nope", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger nope does not exist!"),
        (
            "1",
            [("root", SET, "info")],
            ErrorCode.INVALID_CONFIG,
            "Cannot set the log level of root to info as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ("1", [("root", DELETE, "")], ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ("1", [("root", APPEND, "INFO")], ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [("root", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : root"),
        ("", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: "),
        ("2", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2"),
    ],
)
@pytest.mark.usefixtures("levels")
async def test_levels_that_cannot_be(room: Room, name: str, configs: list[Any], error: ErrorCode, message: str) -> None:
    before = logging.getLogger().level

    assert await alter(room, (LOGGER, name, configs)) == [(error, message)]

    assert logging.getLogger().level == before


@pytest.mark.usefixtures("levels")
async def test_a_level_can_be_tried_out(room: Room) -> None:
    before = logging.getLogger().level

    assert await alter(room, (LOGGER, "1", [("root", SET, "FATAL")]), validate_only=True) == [(0, None)]

    assert logging.getLogger().level == before
