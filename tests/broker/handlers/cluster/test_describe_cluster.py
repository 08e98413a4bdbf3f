from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.cluster import describe_cluster
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.broker.metadata.room import CLUSTER_ID, Room, context, open_room, registration


@pytest.fixture
async def room(tmp_path: Path) -> Room:
    room = await open_room(tmp_path)
    room.cache.apply_committed(registration(2, rack="r", is_fenced=True))
    return room


def _ask(room: Room, **fields: Any) -> DescribeClusterResponse:
    answer: Any = describe_cluster.build(room.services)(context(2), DescribeClusterRequest(**fields))
    return answer


async def test_the_cluster_is_its_id_its_controller_and_its_live_brokers(room: Room) -> None:
    answer = _ask(room, include_cluster_authorized_operations=True)

    assert (answer.cluster_id, answer.controller_id, answer.cluster_authorized_operations) == (CLUSTER_ID, 1, 8096)
    assert [(broker.broker_id, broker.host, broker.port, broker.is_fenced) for broker in answer.brokers] == [(1, "localhost", 9092, False)]


async def test_fenced_brokers_are_told_when_asked_for(room: Room) -> None:
    answer = _ask(room, include_fenced_brokers=True)

    assert [(broker.broker_id, broker.rack, broker.is_fenced) for broker in answer.brokers] == [(1, None, False), (2, "r", True)]


@pytest.mark.parametrize(("endpoint_type", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)])
async def test_only_brokers_are_described(room: Room, endpoint_type: int, error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        _ask(room, endpoint_type=endpoint_type)

    assert refused.value.code is error
