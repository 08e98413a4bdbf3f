"""What is checked and answered is in tests/broker/controller/test_config_control.py; here is the way there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers import incremental_alter_configs
from protocol.codec import decode, encode
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
