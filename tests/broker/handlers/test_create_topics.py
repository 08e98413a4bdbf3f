"""What is checked and answered is in tests/broker/metadata/test_topic_control.py; here is the way there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers import create_topics
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreateTopicsResponse
from tests.broker.metadata.room import context, creation, open_room


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
