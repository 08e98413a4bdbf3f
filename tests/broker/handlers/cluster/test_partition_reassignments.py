"""The way of the reassignment APIs there and back; what is decided is in tests/broker/controller/test_reassignments.py."""

from __future__ import annotations

from pathlib import Path

from broker.handlers.cluster import alter_partition_reassignments, list_partition_reassignments
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics
from tests.broker.metadata.room import context, creation, open_room

ERROR = KafkaError(ErrorCode.NOT_CONTROLLER, "why")


async def test_reassignments_are_answered_by_partition(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))
    partitions = [ReassignablePartition(partition_index=index, replicas=[1]) for index in (0, 1)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])

    answer = await alter_partition_reassignments.build(room.services)(context(0), request)
    listed = await list_partition_reassignments.build(room.services)(context(0), ListPartitionReassignmentsRequest(topics=None))

    codes = [each.error_code for each in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


def test_an_error_of_the_request_is_told_for_the_whole_and_for_what_was_asked() -> None:
    partitions = [ReassignablePartition(partition_index=3)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    listing = ListPartitionReassignmentsRequest(topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=[3])])

    answer = alter_partition_reassignments.error_response(request, ERROR)
    listed = list_partition_reassignments.error_response(listing, ERROR)

    assert (answer.error_code, answer.error_message) == (listed.error_code, listed.error_message) == (ErrorCode.NOT_CONTROLLER, "why")
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_CONTROLLER
    assert listed.topics[0].partitions[0].partition_index == 3
