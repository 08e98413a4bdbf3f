"""The quota of partitions that a client has the controller create and delete (KIP-599), counted where the active controller is.

The bucket holds eleven windows of a second: with 1 partition a second, 11 tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.security.quotas.quota_limits import QuotaScope
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.metadata.room import Room, context, open_room

STRICT = {"create": 6, "delete": 5, "add": 3}
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = await open_room(tmp_path)
    room.local.mutation_quotas.set_limit(QuotaScope("ANONYMOUS", ""), 1.0)
    yield room
    await room.close()


async def create(room: Room, *topics: tuple[str, int], version: int = STRICT["create"], validate_only: bool = False) -> Any:
    asked = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
    return await room.local.create_topics(CreateTopicsRequest(topics=asked, validate_only=validate_only), context(version))


async def delete(room: Room, *names: str, version: int = STRICT["delete"]) -> Any:
    return await room.local.delete_topics(DeleteTopicsRequest(topic_names=list(names)), version, context(version))


async def add(room: Room, name: str, count: int, version: int = STRICT["add"]) -> Any:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])
    return await room.local.create_partitions(request, context(version))


def errors(results: Any) -> list[tuple[str, int]]:
    return [(result.name, result.error_code) for result in results]


async def test_topics_are_refused_once_tokens_are_missing(room: Room) -> None:
    """As in Kafka the one that takes more than there is gets through."""
    response = await create(room, ("a", 8), ("b", 10), ("c", 1))

    assert errors(response.topics) == [("a", 0), ("b", 0), ("c", EXCEEDED)]
    assert response.topics[2].error_message is None
    assert response.throttle_time_ms == 7000
    assert sorted(room.cache.topics) == ["a", "b"]


async def test_deletions_and_new_partitions_take_tokens_too(room: Room) -> None:
    await create(room, ("a", 4), ("b", 4))

    added = await add(room, "a", 9)
    deleted = await delete(room, "b")

    assert errors(added.results) == [("a", 0)]
    assert added.throttle_time_ms == 0
    assert errors(deleted.responses) == [("b", EXCEEDED)]
    assert deleted.throttle_time_ms == 2000
    assert "b" in room.cache.topics


async def test_new_partitions_are_refused(room: Room) -> None:
    await create(room, ("a", 12))

    response = await add(room, "a", 13)

    assert errors(response.results) == [("a", EXCEEDED)]
    assert len(room.cache.topics["a"].partitions) == 12


@pytest.mark.parametrize("what", ["create", "delete", "add"])
async def test_older_versions_are_done_and_told_to_wait(room: Room, what: str) -> None:
    await create(room, ("a", 11))
    calls = {
        "create": lambda: create(room, ("b", 3), version=STRICT["create"] - 1),
        "delete": lambda: delete(room, "a", version=STRICT["delete"] - 1),
        "add": lambda: add(room, "a", 14, version=STRICT["add"] - 1),
    }

    response = await calls[what]()

    assert response.throttle_time_ms == {"create": 3000, "delete": 11_000, "add": 3000}[what]
    results = next(getattr(response, name) for name in ("topics", "responses", "results") if hasattr(response, name))
    assert [result.error_code for result in results] == [0]


async def test_what_is_refused_for_another_reason_takes_no_tokens(room: Room) -> None:
    response = await create(room, ("/", 100), ("a", 11), ("b", 1), ("c", 1))

    assert errors(response.topics) == [("/", ErrorCode.INVALID_TOPIC_EXCEPTION), ("a", 0), ("b", 0), ("c", EXCEEDED)]


async def test_validation_takes_tokens_as_in_kafka(room: Room) -> None:
    await create(room, ("a", 12), validate_only=True)

    assert errors((await create(room, ("b", 1))).topics) == [("b", EXCEEDED)]


async def test_what_brokers_create_themselves_does_not_count(room: Room) -> None:
    asked = CreateTopicsRequest(topics=[CreatableTopic(name="__consumer_offsets", num_partitions=50, replication_factor=1)])
    await room.local.create_topics(asked, None, is_automatic=True)

    assert errors((await create(room, ("a", 1))).topics) == [("a", 0)]
