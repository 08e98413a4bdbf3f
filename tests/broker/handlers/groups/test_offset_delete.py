"""OffsetDelete: which offsets may go, and what is answered where."""

from __future__ import annotations

from broker.handlers.groups import offset_delete
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.broker.groups.harness import GroupHandlers
from tests.broker.groups.transcript import Transcript, stable_group
from tests.support.turns import started

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def request(group: str = "g", **topics: list[int]) -> OffsetDeleteRequest:
    asked = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes])
        for name, indexes in topics.items()
    ]
    return OffsetDeleteRequest(group_id=group, topics=asked)


def delete(script: Transcript, group: str = "g", **topics: list[int]) -> OffsetDeleteResponse:
    response: OffsetDeleteResponse = GroupHandlers(script).call(offset_delete, 0, request(group, **topics))
    return response


def errors(response: OffsetDeleteResponse) -> dict[str, list[tuple[int, int]]]:
    assert response.error_code == 0
    return {topic.name: [(found.partition_index, found.error_code) for found in topic.partitions] for topic in response.topics}


def test_one_offset_is_deleted_and_the_other_kept() -> None:
    script = Transcript()
    script.commit(1)
    script.commit(2, partition=1)
    script.skip()

    assert errors(delete(script, t=[0])) == {"t": [(0, 0)]}

    script.fetch(0, 1)
    script.expect("log: t-0=deleted", "fetch t-0=-1 t-1=2")


def test_nothing_is_written_for_an_offset_that_is_not_there() -> None:
    script = Transcript()
    script.commit(1)
    script.skip()

    assert errors(delete(script, t=[1])) == {"t": [(1, 0)]}

    script.expect()


def test_what_does_not_exist_is_said_beside_what_does() -> None:
    script = Transcript()
    script.commit(1)
    script.create_topic("other")

    answered = errors(delete(script, t=[0, 7], gone=[0], empty=[], other=[]))

    assert answered == {"t": [(7, UNKNOWN), (0, 0)], "gone": [(0, UNKNOWN)], "empty": []}


def test_offsets_of_a_topic_that_members_read_stay() -> None:
    script = stable_group("a")
    script.create_topic("other")
    script.commit(1, "a", generation=1)

    assert errors(delete(script, t=[0], other=[0])) == {"t": [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)], "other": [(0, 0)]}


def test_members_of_another_protocol_keep_all_offsets() -> None:
    script = Transcript()
    script.join("a", protocol_type="connect")

    assert delete(script, t=[0]).error_code == ErrorCode.NON_EMPTY_GROUP


def test_errors_of_the_group_are_the_whole_answer() -> None:
    script = Transcript()

    assert delete(script, "", t=[0]) == OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    assert delete(script, "nobody", t=[0], gone=[0]) == OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    script.coordinator.runtime.on_resigned(0)
    assert delete(script, "g", gone=[0]) == OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)


def test_the_answer_waits_for_the_commit_and_tells_of_its_failure() -> None:
    script = Transcript()
    script.commit(1)
    script.log.is_holding = True

    reply = started(GroupHandlers(script).send(offset_delete, 0, request(t=[0])))

    assert not reply.is_done
    script.advance(script.config.commit_timeout_ms)
    assert reply.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_many_partitions_are_deleted_in_several_batches() -> None:
    script = Transcript()
    script.create_topic("wide", partitions=250)
    script.commit(1)

    assert errors(delete(script, wide=list(range(250)))) == {"wide": [(index, 0) for index in range(250)]}
