"""OffsetCommit's answers: which partitions exist, which error goes where."""

from typing import Any

import pytest

from broker.handlers import offset_commit
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tests.broker.groups.harness import GroupHandlers, over_the_wire, versions


def request(**topics: list[int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions],
            )
            for name, partitions in topics.items()
        ],
    )


def errors(response: Any) -> dict[str, dict[int, int]]:
    """Topic → partition → error; a topic answered twice would hide its first answer from clients."""
    assert len({topic.name for topic in response.topics}) == len(response.topics)
    return {topic.name: {found.partition_index: found.error_code for found in topic.partitions} for topic in response.topics}


@pytest.mark.parametrize("version", versions(8))
def test_offsets_are_committed_with_every_version(version: int):
    handlers = GroupHandlers()

    response = handlers.call(offset_commit, version, request(t=[0, 1]))

    assert errors(response) == {"t": {0: 0, 1: 0}}
    handlers.script.fetch()
    handlers.script.expect_last("fetch t-0=5 t-1=5")


def test_partitions_that_do_not_exist_are_refused_and_the_others_committed():
    handlers = GroupHandlers()

    response = handlers.call(offset_commit, 8, request(t=[0, 2, -1], nope=[0]))

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(response) == {"t": {0: 0, 2: unknown, -1: unknown}, "nope": {0: unknown}}
    handlers.script.fetch()
    handlers.script.expect_last("fetch t-0=5")


def test_request_of_unknown_partitions_only_asks_no_coordinator():
    handlers = GroupHandlers()
    handlers.script.coordinator.on_resigned(0)

    response = handlers.call(offset_commit, 8, request(nope=[0]))

    assert errors(response) == {"nope": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_group_error_is_told_for_every_partition_that_exists():
    handlers = GroupHandlers()
    handlers.script.coordinator.on_resigned(0)

    response = handlers.call(offset_commit, 8, request(t=[0, 7]))

    assert errors(response) == {"t": {0: ErrorCode.NOT_COORDINATOR, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_answer_waits_for_the_commit():
    handlers = GroupHandlers()
    handlers.script.log.is_holding = True

    waiting = handlers.send(offset_commit, 8, request(t=[0, 7]))
    assert not waiting.is_done
    handlers.script.log.commit()

    assert errors(over_the_wire(waiting.value, 8)) == {"t": {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}


def test_a_topic_without_partitions_is_told_only_if_it_does_not_exist():
    handlers = GroupHandlers()

    alone = handlers.call(offset_commit, 8, request(t=[]))
    beside_others = handlers.call(offset_commit, 8, request(t=[], nope=[]))

    assert errors(alone) == {}
    assert errors(beside_others) == {"nope": {}}
