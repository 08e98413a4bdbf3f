"""What others do with KIP-848 groups: offsets, lists, descriptions, deletions, a group's own configs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.deletions import Deletions
from broker.handlers.groups import consumer_group_describe, consumer_group_heartbeat, describe_groups, list_groups, offset_fetch
from broker.loop.turns import at_once_or_in_turns
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.stored.metadata_records import ConfigRecord, FeatureLevelRecord
from tests.broker.groups.consumer.consumers import Consumers
from tests.broker.groups.harness import GroupHandlers
from tests.support.turns import started

GROUP_RESOURCE = 32


def with_a() -> Consumers:
    """a has all of t, in epoch 2."""
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.skip()
    return consumers


def handlers(consumers: Consumers) -> GroupHandlers:
    consumers.metadata.apply_committed([FeatureLevelRecord(name="group.version", feature_level=1)])
    return GroupHandlers(consumers)


# Offsets.


@pytest.mark.parametrize(
    ("name", "epoch", "version", "answer"),
    [
        ("a", 2, 9, "commit 5 OK"),
        ("a", 1, 9, "error STALE_MEMBER_EPOCH"),
        ("a", 3, 9, "error STALE_MEMBER_EPOCH"),
        ("b", 2, 9, "error UNKNOWN_MEMBER_ID"),
        ("", -1, 9, "error UNKNOWN_MEMBER_ID"),
        ("a", 2, 8, "error UNSUPPORTED_VERSION"),
    ],
)
def test_commit_needs_a_member_in_its_epoch(name: str, epoch: int, version: int, answer: str):
    consumers = with_a()

    consumers.commit(5, name, generation=epoch, version=version)

    assert consumers.lines[-1] == answer


def test_member_that_was_moved_on_may_commit_what_it_has_had_since_before():
    """KIP-1251: its commit was under way when its epoch changed."""
    consumers = with_a()
    consumers.join_consumer("b")
    consumers.settle("a", "b")

    consumers.commit(5, "a", generation=2, partition=0, version=9)
    consumers.commit(6, "b", generation=2, partition=1, version=9)

    consumers.expect("log: t-0=5", "commit 5 OK", "error STALE_MEMBER_EPOCH")


def test_tool_may_commit_when_nobody_is_in_the_group():
    consumers = with_a()
    consumers.leave_consumer("a")
    consumers.skip()

    consumers.commit(5)

    consumers.expect("log: t-0=5", "commit 5 OK")


def test_fetch_of_a_member_tells_its_epoch():
    consumers = with_a()
    consumers.commit(5, "a", generation=2, version=9)

    def fetch(**member: Any) -> tuple[int, list[int]]:
        group = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])], **member)
        answer = handlers(consumers).call(offset_fetch, 9, OffsetFetchRequest(groups=[group])).groups[0]
        return answer.error_code, [partition.committed_offset for topic in answer.topics for partition in topic.partitions]

    assert fetch(member_id="a", member_epoch=2) == (0, [5])
    assert fetch(member_id=None, member_epoch=-1) == (0, [5])
    assert fetch(member_id="a", member_epoch=1) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert fetch(member_id="b", member_epoch=2) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


# Lists and descriptions.


def test_group_is_listed_with_its_type_and_state():
    consumers = with_a()

    def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
        answer = handlers(consumers).call(list_groups, 5, ListGroupsRequest(**filters))
        return [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in answer.groups]

    assert listed() == listed(types_filter=["Consumer"]) == [("g", "consumer", "Stable", "consumer")]
    assert listed(types_filter=["classic"]) == listed(states_filter=["Reconciling"]) == []


def test_description_has_epochs_members_and_partitions():
    consumers = with_a()
    consumers.join_consumer("b")

    group = handlers(consumers).call(consumer_group_describe, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0]

    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == ("Reconciling", 3, 3, "uniform")
    shown = {
        member.member_id: [
            [(topic.topic_name, topic.partitions) for topic in assignment.topic_partitions]
            for assignment in (member.assignment, member.target_assignment)
        ]
        for member in group.members
    }
    assert shown == {"a": [[("t", [0, 1])], [("t", [0])]], "b": [[], [("t", [1])]]}
    assert {(member.client_id, member.client_host, member.member_type) for member in group.members} == {
        ("client-a", "/127.0.0.1", 1),
        ("client-b", "/127.0.0.1", 1),
    }


def test_description_has_partitions_that_are_still_to_be_given_up():
    consumers = with_a()
    consumers.join_consumer("b")
    consumers.beat("a")

    group = handlers(consumers).call(consumer_group_describe, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0]

    shown = {member.member_id: [topic.partitions for topic in member.assignment.topic_partitions] for member in group.members}
    assert (consumers.shares(), shown) == ({"a": "t:0", "b": "nothing"}, {"a": [[0, 1]], "b": []})


def test_what_is_not_committed_is_not_described():
    consumers = with_a()
    room = handlers(consumers)
    consumers.log.is_holding = True
    consumers.join_consumer("b")

    group = room.call(consumer_group_describe, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0]

    assert (group.group_state, group.group_epoch, [member.member_id for member in group.members]) == ("Stable", 2, ["a"])


def test_description_of_a_classic_kind_finds_no_classic_group():
    group = handlers(with_a()).call(describe_groups, 6, DescribeGroupsRequest(groups=["g"])).groups[0]

    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group.error_message == "Group g is not a classic group."


def test_protocol_is_not_served_before_its_feature_is_finalized():
    room = GroupHandlers(with_a())

    heartbeat = room.call(consumer_group_heartbeat, 1, ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2))
    described = room.call(consumer_group_describe, 1, ConsumerGroupDescribeRequest(group_ids=["g"]))

    assert heartbeat.error_code == described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


# Deletion and expiry.


def delete(consumers: Consumers) -> None:
    def show(error: ErrorCode) -> None:
        consumers._line(f"delete {error.name}")

    deletions = Deletions(consumers.coordinator.runtime.get_shard, consumers.coordinator._limited_log)
    consumers._call(lambda: started(at_once_or_in_turns(deletions.delete_group("g"))), show)


def test_only_an_empty_group_is_deleted_and_then_with_all_that_it_had():
    consumers = with_a()
    delete(consumers)
    consumers.expect("delete NON_EMPTY_GROUP")
    consumers.leave_consumer("a")
    consumers.commit(5)
    consumers.skip()

    delete(consumers)

    consumers.expect("log: t-0=deleted", "log: targets gone", "log: partition metadata gone", "log: group gone", "delete NONE")
    consumers.restart()
    assert consumers.coordinator.runtime.get_shard("g").machine.find_group("g") is None


def test_empty_group_goes_with_its_last_offset():
    consumers = Consumers(offsets_retention_ms=1000, offsets_retention_check_interval_ms=10_000)
    consumers.join_consumer("a")
    consumers.commit(5, "a", generation=2, version=9)
    consumers.leave_consumer("a")
    consumers.skip()

    consumers.advance(10_000)

    consumers.expect("log: t-0=deleted", "log: targets gone", "log: partition metadata gone", "log: group gone")


# A group's own configs.


def test_group_s_own_session_timeout_counts():
    consumers = Consumers()
    consumers.metadata.apply_committed(
        [ConfigRecord(resource_type=GROUP_RESOURCE, resource_name="g", name="consumer.session.timeout.ms", value="50000")]
    )
    consumers.join_consumer("a")
    consumers.skip()

    consumers.advance(49_999)
    consumers.expect()
    consumers.advance(1)

    assert "log: member a gone" in consumers.lines
