"""What is checked and answered is in tests/broker/controller/test_topic_control.py; here is the way there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.topics import delete_topics
from config.server import ServerConfig
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.broker.metadata.room import context, creation, open_room


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_deleted_topic_is_gone_when_it_is_answered(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 2, 1))
    request = (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1_000)
        if version >= 6
        else DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)
    )

    answer: Any = await delete_topics.build(room.services)(context(version), request)

    decoded, _ = decode(DeleteTopicsResponse, version, encode(answer, version))
    assert [(topic.name, topic.error_code) for topic in decoded.responses] == [("t", 0)]
    assert room.cache.topics == {}


async def test_disabled_deletion_is_answered_for_every_topic(tmp_path: Path) -> None:
    room = await open_room(tmp_path, ServerConfig(delete_topic_enable=False))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t"), DeleteTopicState(topic_id=bytes(15) + b"\x01")])

    with pytest.raises(KafkaError) as refused:
        await delete_topics.build(room.services)(context(6), request)
    answer = delete_topics.error_response(request, refused.value)

    assert [(topic.name, topic.error_code) for topic in answer.responses] == [
        ("t", ErrorCode.TOPIC_DELETION_DISABLED),
        (None, ErrorCode.TOPIC_DELETION_DISABLED),
    ]
