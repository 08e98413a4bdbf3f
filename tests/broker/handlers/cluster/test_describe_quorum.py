"""What DescribeQuorum refuses; what it tells of the metadata log comes from the quorum's leader."""

from __future__ import annotations

from pathlib import Path

from broker.handlers.cluster import describe_quorum
from broker.loop.turns import ELEMENTS_AT_ONCE
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from tests.broker.metadata.room import context, open_room
from tests.support.turns import run

NAMES = [f"missing-{number}" for number in range(2_000)]


async def test_only_the_metadata_logs_quorum_is_described(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    partitions = [DescribeQuorumRequestPartitionData(partition_index=7)]
    request = DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=name, partitions=partitions) for name in NAMES])

    answer, pieces_count = run(describe_quorum.build(room.services)(context(2), request))

    assert pieces_count >= len(NAMES) - ELEMENTS_AT_ONCE
    for version in range(3):
        decoded, _ = decode(DescribeQuorumResponse, version, encode(answer, version))
        answered = [(topic.topic_name, each.partition_index, each.error_code) for topic in decoded.topics for each in topic.partitions]
        assert answered == [(name, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in NAMES], version
    await room.close()
