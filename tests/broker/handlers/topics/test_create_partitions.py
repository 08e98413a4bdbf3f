"""What is checked and answered is in tests/broker/controller/test_topic_control.py; here is the way there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.topics import create_partitions
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from tests.broker.metadata.room import context, creation, open_room


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_are_in_the_metadata_when_they_are_answered(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 2, 1))
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)], timeout_ms=1_000)

    answer: Any = await create_partitions.build(room.services)(context(version), request)

    decoded, _ = decode(CreatePartitionsResponse, version, encode(answer, version))
    assert [(topic.name, topic.error_code) for topic in decoded.results] == [("t", 0)]
    assert [partition.leader for partition in room.cache.topics["t"].partitions] == [1] * 5


def test_an_error_of_the_request_is_told_for_every_topic() -> None:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t"), CreatePartitionsTopic(name="u")])

    answer = create_partitions.error_response(request, KafkaError(ErrorCode.POLICY_VIOLATION, "too many"))

    assert [(topic.name, topic.error_code) for topic in answer.results] == [(name, ErrorCode.POLICY_VIOLATION) for name in "tu"]
