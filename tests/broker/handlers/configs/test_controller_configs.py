"""Configs and loggers on controller listeners. All answers are those of Apache Kafka 4.3.1, by its controller listener."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.controller.configs import build_describe_configs, build_incremental_alter_configs
from broker.handlers.services import ControllerServices
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.broker.handlers.test_large_answers import services_of_controller
from tests.broker.metadata.room import Room, context, open_room
from tests.support.turns import finished

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND = 0, 1, 2
NAME = "org.apache.kafka.controller"


@pytest.fixture
def level() -> Iterator[logging.Logger]:
    """The logger behind NAME, whose level is put back."""
    logger = logging.getLogger("barnabas.controller")
    kept = logger.level
    yield logger
    logger.setLevel(kept)


async def alter(
    services: ControllerServices, *resources: tuple[int, str, list[tuple[str, int, str | None]]]
) -> list[tuple[int, int, str | None]]:
    asked = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in configs],
        )
        for kind, name, configs in resources
    ]
    handle: Any = build_incremental_alter_configs(services)
    answer = await handle(context(1), IncrementalAlterConfigsRequest(resources=asked))
    return [(each.resource_type, each.error_code, each.error_message) for each in answer.responses]


def describe(services: ControllerServices, kind: int, name: str, key: str) -> list[tuple[str, str | None]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    answer: Any = finished(build_describe_configs(services)(context(4), DescribeConfigsRequest(resources=[resource])))
    (result,) = answer.results
    assert result.error_code == ErrorCode.NONE
    return [(config.name, config.value) for config in result.configs]


class OtherLeads:
    """The controller of a node that does not lead."""

    async def incremental_alter_configs(self, *_arguments: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)


@pytest.fixture
async def room(tmp_path: Path) -> Room:
    return await open_room(tmp_path)


@pytest.mark.usefixtures("level")
async def test_a_logger_is_set_and_described(room: Room) -> None:
    services = services_of_controller(room, room.local)

    answers = await alter(services, (LOGGER, "1", [(NAME, SET, "DEBUG")]))

    assert answers == [(LOGGER, 0, None)]
    assert describe(services, LOGGER, "1", NAME) == [(NAME, "DEBUG")]


async def test_loggers_are_answered_behind_the_others(room: Room, level: logging.Logger) -> None:
    services = services_of_controller(room, room.local)

    answers = await alter(services, (LOGGER, "1", [(NAME, SET, "ERROR")]), (TOPIC, "none", [("retention.ms", SET, "1")]))

    assert answers == [(TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."), (LOGGER, 0, None)]
    assert level.level == logging.ERROR


async def test_a_node_that_does_not_lead_has_loggers_too(room: Room, level: logging.Logger) -> None:
    services = services_of_controller(room, OtherLeads())

    assert await alter(services, (LOGGER, "1", [(NAME, SET, "ERROR")])) == [(LOGGER, 0, None)]
    assert level.level == logging.ERROR


async def test_what_comes_twice_is_done_twice(room: Room, level: logging.Logger) -> None:
    """A broker refuses both."""
    services = services_of_controller(room, room.local)

    twice = await alter(services, (LOGGER, "1", [(NAME, SET, "DEBUG")]), (LOGGER, "1", [(NAME, SET, "ERROR")]))
    level_of_two = level.level
    keys = await alter(services, (LOGGER, "1", [(NAME, SET, "DEBUG"), (NAME, SET, "WARN")]))

    assert (twice, keys) == ([(LOGGER, 0, None)] * 2, [(LOGGER, 0, None)])
    assert (level_of_two, level.level) == (logging.ERROR, logging.WARNING)


@pytest.mark.parametrize(
    ("node", "change", "error", "message"),
    [
        ("7", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 7"),
        ("x", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        ("", (NAME, SET, "INFO"), ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: "),
        ("1", (NAME, APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ("1", ("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
    ],
)
async def test_changes_of_loggers_that_are_refused(
    room: Room, node: str, change: tuple[str, int, str | None], error: ErrorCode, message: str
) -> None:
    services = services_of_controller(room, room.local)

    assert await alter(services, (LOGGER, node, [change])) == [(LOGGER, error, message)]


async def test_a_controller_describes_its_node(room: Room) -> None:
    services = services_of_controller(room, room.local)

    assert describe(services, BROKER, "1", "log.segment.bytes") == [("log.segment.bytes", "1073741824")]
