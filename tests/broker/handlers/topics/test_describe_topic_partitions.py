from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.topics import describe_topic_partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.broker.metadata.room import Room, context, creation, open_room


@pytest.fixture
async def room(tmp_path: Path) -> Room:
    room = await open_room(tmp_path)
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        await room.client.create_topics(creation(name, partitions, 1))
    return room


def _ask(room: Room, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer: Any = describe_topic_partitions.build(room.services)(context(0), request)
    return answer


def _shape(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in answer.topics]


async def test_without_names_all_topics_are_described_in_order(room: Room) -> None:
    answer = _ask(room)

    assert _shape(answer) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert answer.next_cursor is None


async def test_pages_join_up_to_the_whole(room: Room) -> None:
    described: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        answer = _ask(room, limit=2, cursor=cursor)
        described += [(name, index) for name, indexes in _shape(answer) for index in indexes]
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)

    assert described == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


async def test_asked_topics_that_are_missing_are_answered(room: Room) -> None:
    answer = _ask(room, "a", "zz", "b d")

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", 0),
        ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("zz", 0), ("a", -1)])
async def test_a_cursor_that_cannot_be_is_refused_for_every_topic(room: Room, cursor: tuple[str, int]) -> None:
    with pytest.raises(KafkaError) as refused:
        _ask(room, "a", cursor=cursor)
    answer = describe_topic_partitions.error_response(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")]), refused.value)

    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", ErrorCode.INVALID_REQUEST)]
