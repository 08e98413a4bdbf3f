"""The way of ElectLeaders and UnregisterBroker there and back; what is decided is in tests/broker/controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.cluster import elect_leaders, unregister_broker
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.metadata.room import context, creation, open_room


@pytest.mark.parametrize("version", range(3))
async def test_partitions_are_answered_in_every_version(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 2, 1))
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 7])])

    answer: Any = await elect_leaders.build(room.services)(context(version), request)

    decoded, _ = decode(ElectLeadersResponse, version, encode(answer, version))
    results = [(each.partition_id, each.error_code) for each in decoded.replica_election_results[0].partition_result]
    assert results == [(0, ErrorCode.ELECTION_NOT_NEEDED), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert decoded.error_code == 0


def test_an_error_of_the_request_is_told_for_the_whole_and_for_every_partition() -> None:
    request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0, 1])])

    answer = elect_leaders.error_response(request, KafkaError(ErrorCode.NOT_CONTROLLER))
    of_all = elect_leaders.error_response(ElectLeadersRequest(topic_partitions=None), KafkaError(ErrorCode.NOT_CONTROLLER))

    assert answer.error_code == of_all.error_code == ErrorCode.NOT_CONTROLLER
    assert [each.error_code for each in answer.replica_election_results[0].partition_result] == [ErrorCode.NOT_CONTROLLER] * 2


async def test_a_broker_that_is_not_registered_cannot_be_unregistered(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    request = UnregisterBrokerRequest(broker_id=9)

    with pytest.raises(KafkaError) as refused:
        await unregister_broker.build(room.services)(context(0), request)
    answer = unregister_broker.error_response(request, refused.value)

    assert (answer.error_code, answer.error_message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 9 is not currently registered")
