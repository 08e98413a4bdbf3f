"""What is checked and answered is in tests/broker/controller/test_topic_control.py; here is the way there and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from broker.handlers.topics import create_topics
from broker.replication.replica_manager import ReplicaManager
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsResponse
from tests.broker.metadata.room import context, creation, open_room
from tests.support.doubles import stands_for


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_created_topic_is_in_the_metadata_when_it_is_answered(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)

    answer: Any = await create_topics.build(room.services)(context(version), creation("t", 2, 1))

    decoded, _ = decode(CreateTopicsResponse, version, encode(answer, version))
    assert [(topic.name, topic.error_code) for topic in decoded.topics] == [("t", 0)]
    assert len(room.cache.topics["t"].partitions) == 2


async def test_too_much_at_once_is_an_error_of_every_topic(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    request = creation("t", 20_000, 1)

    with pytest.raises(KafkaError) as refused:
        await create_topics.build(room.services)(context(7), request)
    answer = create_topics.error_response(request, refused.value)

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", ErrorCode.POLICY_VIOLATION)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_no_time_is_a_timeout_and_nothing_is_created(tmp_path: Path, timeout_ms: int) -> None:
    room = await open_room(tmp_path)
    request = creation("t", 1, 1)
    request.timeout_ms = timeout_ms

    with pytest.raises(KafkaError) as refused:
        await create_topics.build(room.services)(context(7), request)

    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "t" not in room.cache.topics


async def test_partitions_that_take_long_are_waited_for_no_longer_than_20_s(tmp_path: Path) -> None:
    """The client's own timeout would end the request, and it would be sent again."""
    room = await open_room(tmp_path)
    waiting: list[Any] = []

    @stands_for(ReplicaManager)
    class SlowReplicas:
        def when_made(self, topics: Iterable[str], callback: Callable[[], None]) -> None:
            waiting.append((list(topics), callback))

    services = room.services._replace(replica_manager=cast("ReplicaManager", SlowReplicas()))
    answer = asyncio.ensure_future(create_topics.build(services)(context(7), creation("t", 1, 1)))
    while not waiting:
        await asyncio.sleep(0)
    room.clock.advance(19_999)
    await asyncio.sleep(0)
    is_early = answer.done()
    room.clock.advance(1)

    response = await answer
    assert not is_early
    assert (waiting[0][0], response.topics[0].error_code) == (["t"], 0)
