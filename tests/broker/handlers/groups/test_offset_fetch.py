"""OffsetFetch's answers by version."""

import pytest

from broker.handlers.groups import offset_fetch
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.groups.harness import GroupHandlers, over_the_wire, versions
from tests.broker.groups.transcript import Transcript
from tests.broker.loop.turn_loop import PIECES_PER_SLICE, TurnLoop
from tests.support.turns import started

VERY_MANY = 1_000
SINGLE_VERSIONS = [version for version in versions(9) if version < 8]
T_ID = b"t".ljust(16, b"\0")
BATCH_VERSIONS = [version for version in versions(9) if version >= 8]


def committed() -> GroupHandlers:
    """Group g has offset 5 in t-0, with metadata."""
    script = Transcript()
    script.commit(5, metadata="m")
    return GroupHandlers(script)


@pytest.mark.parametrize("version", SINGLE_VERSIONS)
def test_offset_comes_back_and_absence_is_minus_one(version: int):
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])

    response = committed().call(offset_fetch, version, request)

    (topic,) = response.topics
    assert [(found.committed_offset, found.metadata, found.error_code) for found in topic.partitions] == [(5, "m", 0), (-1, "", 0)]


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_groups_are_answered_each_on_its_own(version: int):
    topics = [OffsetFetchRequestTopics(name="t", topic_id=T_ID, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics), OffsetFetchRequestGroup(group_id="none", topics=topics)]

    response = committed().call(offset_fetch, version, OffsetFetchRequest(groups=groups))

    found = [(group.group_id, group.error_code, group.topics[0].partitions[0].committed_offset) for group in response.groups]
    assert found == [("g", 0, 5), ("none", 0, -1)]


@pytest.mark.parametrize("version", [2, 7])
def test_null_topics_mean_all(version: int):
    response = committed().call(offset_fetch, version, OffsetFetchRequest(group_id="g", topics=None))

    assert [(topic.name, [found.partition_index for found in topic.partitions]) for topic in response.topics] == [("t", [0])]


def test_group_error_is_told_for_each_partition_in_version_1():
    handlers = committed()
    handlers.script.coordinator.runtime.on_resigned(0)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])

    response = handlers.call(offset_fetch, 1, request)

    (found,) = response.topics[0].partitions
    assert (found.committed_offset, found.error_code) == (-1, ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize("version", [2, 7])
def test_group_error_is_told_once_from_version_2(version: int):
    handlers = committed()
    handlers.script.coordinator.runtime.on_resigned(0)

    response = handlers.call(offset_fetch, version, OffsetFetchRequest(group_id="g"))

    assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_stable_fetch_of_several_groups_waits_for_the_last():
    handlers = committed()
    handlers.script.log.is_holding = True
    handlers.script.commit(6)
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None), OffsetFetchRequestGroup(group_id="none", topics=None)]

    waiting = started(handlers.send(offset_fetch, 8, OffsetFetchRequest(groups=groups, require_stable=True)))
    assert not waiting.is_done
    handlers.script.log.commit()

    response = over_the_wire(waiting.value, 8)
    assert [group.group_id for group in response.groups] == ["g", "none"]
    assert response.groups[0].topics[0].partitions[0].committed_offset == 6


def test_stable_fetches_of_very_many_groups_are_woken_in_turns():
    """To wake 60,000 groups at once held the loop for more than a second."""
    handlers = committed()
    handlers.script.log.is_holding = True
    handlers.script.commit(6)
    names = ["g", *(f"none-{number}" for number in range(VERY_MANY))]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    loop = TurnLoop()
    answer = loop.turns.start(handlers.send(offset_fetch, 8, OffsetFetchRequest(groups=groups * 2, require_stable=True)))
    loop.run()

    handlers.script.log.commit()
    turns_count = loop.run()

    assert turns_count >= len(names) * 2 / PIECES_PER_SLICE
    response = over_the_wire(answer.take(), 8)
    assert [group.group_id for group in response.groups] == names * 2
    assert response.groups[len(names)].topics[0].partitions[0].committed_offset == 6


def test_who_waits_for_a_stable_fetch_of_very_many_groups_hears_that_the_coordinator_moved():
    handlers = committed()
    handlers.script.log.is_holding = True
    handlers.script.commit(6)
    groups = [OffsetFetchRequestGroup(group_id=f"none-{number}", topics=None) for number in range(VERY_MANY)]
    loop = TurnLoop()
    answer = loop.turns.start(handlers.send(offset_fetch, 8, OffsetFetchRequest(groups=groups, require_stable=True)))
    loop.run()

    handlers.script.coordinator.runtime.on_resigned(0)
    loop.run()

    assert {group.error_code for group in answer.take().groups} == {ErrorCode.NOT_COORDINATOR}


def test_request_for_no_group_is_answered():
    assert committed().call(offset_fetch, 8, OffsetFetchRequest(groups=[])).groups == []


def test_topics_are_named_by_their_ids_from_version_10():
    topics = [
        OffsetFetchRequestTopics(topic_id=T_ID, partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0]),
    ]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics), OffsetFetchRequestGroup(group_id="g", topics=None)]

    named, all_ = committed().call(offset_fetch, 10, OffsetFetchRequest(groups=groups)).groups

    assert [(topic.topic_id, [(each.committed_offset, each.error_code) for each in topic.partitions]) for topic in named.topics] == [
        (T_ID, [(5, 0), (-1, 0)]),
        (b"?" * 16, [(-1, ErrorCode.UNKNOWN_TOPIC_ID)]),
    ]
    assert [(topic.topic_id, topic.partitions[0].committed_offset) for topic in all_.topics] == [(T_ID, 5)]
