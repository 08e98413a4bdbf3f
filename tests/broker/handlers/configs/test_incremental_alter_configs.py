"""What is checked and answered is in tests/broker/controller/test_config_control.py; here is the way there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.configs import alter_configs, incremental_alter_configs
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages import alter_configs as older
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.metadata.room import context, creation, open_room


def _setting(kind: int, name: str, key: str, value: str | None, operation: int = 0) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    return IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])])


@pytest.mark.parametrize("version", [0, 1])
async def test_a_topic_config_is_in_effect_when_it_is_answered(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))
    told: list[tuple[str, ...]] = []
    room.cache.subscribe(lambda delta: told.append(delta.changed_topic_configs))

    answer: Any = await incremental_alter_configs.build(room.services)(context(version), _setting(2, "t", "retention.ms", "5"))

    decoded, _ = decode(IncrementalAlterConfigsResponse, version, encode(answer, version))
    assert [(each.resource_name, each.error_code) for each in decoded.responses] == [("t", 0)]
    assert room.cache.log_config("t").retention_ms == 5
    assert told[-1] == ("t",)


async def test_a_broker_default_holds_for_topics_without_their_own(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("own", 1, 1, retention_ms="5"))
    await room.client.create_topics(creation("default", 1, 1))
    handle: Any = incremental_alter_configs.build(room.services)

    await handle(context(1), _setting(4, "", "log.retention.ms", "100"))
    for_all = [room.cache.log_config(name).retention_ms for name in ("own", "default")]
    await handle(context(1), _setting(4, "1", "log.retention.ms", "200"))
    for_this_broker = room.cache.log_config("default").retention_ms
    await handle(context(1), _setting(4, "1", "log.retention.ms", None, operation=1))

    assert (for_all, for_this_broker) == ([5, 100], 200)
    assert room.cache.log_config("default").retention_ms == 100


async def test_a_stored_config_that_cannot_be_read_does_not_stop_the_broker(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))
    room.cache.state.configs[2, "t"] = {"segment.bytes": "1", "retention.ms": "9"}

    assert (room.cache.log_config("t").segment_bytes, room.cache.log_config("t").retention_ms) == (1024**3, 9)


@pytest.mark.parametrize(("value", "operation", "missing"), [("/tmp/kafka-logs,/x,/y", 0, "/x, /y"), ("/x", 2, "/x")])
async def test_a_broker_refuses_to_cordon_what_is_not_its_own(tmp_path: Path, value: str, operation: int, missing: str) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))
    settings = [
        _setting(4, "1", "cordoned.log.dirs", value, operation),
        *(_setting(2, name, "retention.ms", "5") for name in ("t", "nope")),
    ]
    request = IncrementalAlterConfigsRequest(resources=[resource for each in settings for resource in each.resources])

    answer: Any = await incremental_alter_configs.build(room.services)(context(1), request)

    own, topic, nope = [(each.resource_name, each.error_code, each.error_message) for each in answer.responses]
    why = f"requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {missing}"
    assert own == ("1", ErrorCode.INVALID_REQUEST, why)
    assert topic == ("t", ErrorCode.NONE, None) and nope[:2] == ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert room.cache.log_config("t").retention_ms == 5


async def test_the_older_api_is_checked_the_same_way(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    configs = [older.AlterableConfig(name="cordoned.log.dirs", value="*,/tmp/kafka-logs")]
    request = older.AlterConfigsRequest(resources=[older.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)])

    answer: Any = await alter_configs.build(room.services)(context(2), request)

    why = "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values"
    assert [(each.error_code, each.error_message) for each in answer.responses] == [(ErrorCode.INVALID_REQUEST, why)]


async def test_among_very_many_resources_too(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    request = _setting(4, "1", "cordoned.log.dirs", "/x")
    request.resources[:0] = [resource for n in range(2_500) for resource in _setting(2, f"nope-{n}", "retention.ms", "5").resources]

    answer: Any = await incremental_alter_configs.build(room.services)(context(1), request)

    codes = [each.error_code for each in answer.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2_500 + [ErrorCode.INVALID_REQUEST]


async def test_what_is_appended_is_checked_with_what_is_there(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.cache.state.configs[4, "1"] = {"cordoned.log.dirs": "/tmp/kafka-logs"}

    answer: Any = await incremental_alter_configs.build(room.services)(context(1), _setting(4, "1", "cordoned.log.dirs", "*", operation=2))

    assert answer.responses[0].error_message.endswith("When cordoned.log.dirs is set to *, it must not contain other values")


async def test_a_broker_that_comes_twice_is_refused_for_that(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    request = _setting(4, "1", "cordoned.log.dirs", "/x")
    request.resources += _setting(4, "1", "log.retention.ms", "5").resources

    answer: Any = await incremental_alter_configs.build(room.services)(context(1), request)

    assert {each.error_message for each in answer.responses} == {"Each resource must appear at most once."}
