"""Groups that change their protocol while they have members, as `group.consumer.migration.policy` allows."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.groups.classic.classic_group import GroupState
from broker.groups.group_config import MigrationPolicy
from protocol.errors import ErrorCode
from protocol.messages.stored.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from protocol.messages.stored.version_prefix import encode_with_version
from tests.broker.groups.consumer.consumers import Consumers

ALL_OF_T = encode_with_version(ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[0, 1])]), 0)

SOFT_STATE = ("_refresh_deadline_ms", "_refresh_epoch")


def mixed(**config: Any) -> Consumers:
    """a, which speaks the classic protocol and has t:0, and b with t:1, which speaks the consumer protocol."""
    consumers = Consumers(**config)
    consumers.classic_group(a="t:0,1")
    consumers.join_consumer("b")
    consumers.join_classic("a", owned="t:0,1")
    consumers.sync("a", generation=1)
    consumers.join_classic("a", owned="t:0")
    consumers.sync("a", generation=2)
    consumers.settle("b")
    assert consumers.shares() == {consumers.member_ids["a"]: "t:0", "b": "t:1"}
    return consumers


def consumer_state(consumers: Consumers) -> dict[str, Any]:
    return {name: value for name, value in vars(consumers.group).items() if name not in SOFT_STATE}


def classic_state(consumers: Consumers) -> dict[str, Any]:
    group = consumers.groups["g"]
    members = [[getattr(member, name) for name in member.__slots__] for member in group.members.values()]
    return {name: value for name, value in vars(group).items() if name != "rebalance_reason"} | {"members": members}


# Classic to consumer.


def test_members_of_a_classic_group_stay_when_the_first_comes_that_speaks_the_consumer_protocol():
    consumers = Consumers()
    consumers.classic_group(a="t:0,1")
    batches = len(consumers.log.batches)

    consumers.join_consumer("b")

    assert len(consumers.log.batches) == batches + 1
    consumers.expect(
        "log: group deleted",
        "log: member a t classic",
        "log: group epoch=1",
        "log: target a t:0,1",
        "log: targets epoch=1",
        "log: assignment a STABLE epoch=1 after=1 owns t:0,1",
        "log: member b t",
        "log: group epoch=2",
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=2",
        "log: assignment b UNRELEASED_PARTITIONS epoch=2 after=0 owns nothing",
        "b epoch=2 owns nothing",
    )
    assert consumers.groups == {}


def test_classic_member_gives_up_what_others_are_to_have():
    consumers = Consumers()
    consumers.classic_group(a="t:0,1")
    consumers.join_consumer("b")
    consumers.skip()

    consumers.heartbeat("a", generation=1)
    consumers.expect("a heartbeat REBALANCE_IN_PROGRESS")
    consumers.join_classic("a", owned="t:0,1")
    consumers.expect(
        "log: member a t classic",
        "log: assignment a UNREVOKED_PARTITIONS epoch=1 after=1 owns t:0 revokes t:1",
        "a join generation=1 leader= protocol=range",
    )
    consumers.sync("a", generation=1)
    consumers.heartbeat("a", generation=1)
    consumers.expect("a sync assignment=t:0", "a heartbeat REBALANCE_IN_PROGRESS")
    consumers.join_classic("a", owned="t:0")
    consumers.expect(
        "log: member a t classic",
        "log: assignment a STABLE epoch=2 after=1 owns t:0",
        "a join generation=2 leader= protocol=range",
    )
    consumers.sync("a", generation=2)
    consumers.heartbeat("a", generation=2)
    consumers.expect("a sync assignment=t:0", "a heartbeat OK")
    consumers.beat("b")
    consumers.expect("log: assignment b STABLE epoch=2 after=2 owns t:1", "b epoch=2 owns t:1")


def test_member_in_the_middle_of_a_rebalance_is_sent_to_join_again():
    consumers = Consumers()
    consumers.classic_group(a="t:0,1")
    consumers.join_classic("c")
    consumers.heartbeat("a", generation=1)
    consumers.expect("a heartbeat REBALANCE_IN_PROGRESS")

    consumers.join_consumer("b")
    consumers.skip()
    consumers.advance(0)

    consumers.expect("c join REBALANCE_IN_PROGRESS")
    consumers.join_classic("c")
    consumers.expect_last("c join generation=2 leader= protocol=range")


def test_group_that_never_finished_a_rebalance_is_converted_without_assignments():
    consumers = Consumers(initial_rebalance_delay_ms=3000)
    consumers.join_classic("a")
    consumers.skip()

    consumers.join_consumer("b")

    consumers.expect_last(
        "log: assignment b STABLE epoch=1 after=0 owns t:1",
        "b epoch=1 owns t:1",
    )
    assert sorted(consumers.shares().values()) == ["nothing", "t:1"]


def test_static_member_is_upgraded_in_its_place():
    consumers = Consumers()
    consumers.join_classic("a1", instance="a")
    consumers.advance(0)
    consumers.sync("a1", instance="a", a1=ALL_OF_T)
    consumers.skip()

    consumers.join_consumer("a2", instance_id="a")

    assert consumers.shares() == {"a2": "t:0,1"}
    consumers.expect_last("log: assignment a2 STABLE epoch=1 after=0 owns t:0,1", "a2 epoch=1 owns t:0,1")


def test_converted_group_is_what_a_restart_finds():
    consumers = mixed()
    before = consumer_state(consumers)

    consumers.restart()

    assert consumer_state(consumers) == before
    assert list(consumers.coordinator.runtime.get_shard("g").machine.consumer_groups.subscribed_to("t")) == [consumers.group]
    consumers.heartbeat("a", generation=2)
    consumers.beat("b")
    consumers.expect("a heartbeat OK", "b epoch=2")


def test_uncommitted_upgrade_shows_the_classic_group():
    consumers = Consumers()
    consumers.classic_group(a="t:0", b="t:1")
    consumers.log.is_holding = True
    consumers.join_consumer("c")
    assert consumers.group.members

    assert not consumers.coordinator.is_consumer_group("g")
    consumers.log.commit()

    assert consumers.coordinator.is_consumer_group("g")
    assert consumers.coordinator.count_states() == {"Reconciling": 1}


def test_sessions_of_upgraded_members_begin_with_the_conversion():
    consumers = Consumers()
    consumers.classic_group(a="t:0", b="t:1")
    consumers.join_consumer("c")

    consumers.advance(9_999)
    assert len(consumers.group.members) == 3
    consumers.advance(1)

    assert list(consumers.group.members) == ["c"]


def test_refused_write_leaves_the_classic_group_to_the_next_attempt():
    consumers = Consumers()
    consumers.classic_group(a="t:0", b="t:1")
    consumers.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    consumers.join_consumer("c")
    consumers.expect("c COORDINATOR_NOT_AVAILABLE")
    assert list(consumers.groups) == ["g"]

    consumers.log.fail_with = None
    consumers.join_consumer("c")

    assert len(consumers.group.members) == 3


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_policy_may_refuse_the_upgrade(policy: MigrationPolicy):
    consumers = Consumers(migration_policy=policy)
    consumers.classic_group(a="t:0,1")

    consumers.join_consumer("b")

    consumers.expect("error GROUP_ID_NOT_FOUND")
    consumers.heartbeat("a")
    consumers.expect("a heartbeat OK")


def test_group_of_others_than_consumers_is_not_upgraded():
    consumers = Consumers()
    consumers.join("a", protocol_type="connect", protocols="sessioned")
    consumers.advance(0)
    consumers.skip()

    consumers.join_consumer("b")

    consumers.expect("error GROUP_ID_NOT_FOUND")


def test_assignor_with_data_of_its_own_keeps_its_group_classic():
    """What it told the members would be lost."""
    consumers = Consumers()
    consumers.join_classic("a")
    consumers.advance(0)
    consumers.sync("a", a=encode_with_version(ConsumerProtocolAssignment(user_data=b"data"), 0))
    consumers.skip()

    consumers.join_consumer("b")

    consumers.expect("error GROUP_ID_NOT_FOUND")


def test_refused_write_leaves_the_classic_group_as_it_was():
    consumers = Consumers()
    consumers.classic_group(a="t:0,1")

    consumers.join_consumer("b" * 40_000)

    consumers.expect_last(f"{'b' * 40_000} UNKNOWN_SERVER_ERROR")
    consumers.heartbeat("a")
    consumers.expect("a heartbeat OK")


# Members of the classic protocol in a consumer group.


def test_classic_member_joins_a_consumer_group():
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.skip()

    consumers.join_classic("b", version=5)
    consumers.expect("b join MEMBER_ID_REQUIRED")
    consumers.join_classic("b", version=5)

    consumers.expect(
        "log: member b t classic",
        "log: group epoch=3",
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=3",
        "log: assignment b UNRELEASED_PARTITIONS epoch=3 after=0 owns nothing",
        "b join generation=3 leader= protocol=range",
    )
    consumers.sync("b", generation=3)
    consumers.heartbeat("b", generation=3)
    consumers.expect("b sync assignment=nothing", "b heartbeat OK")
    consumers.settle("a")
    consumers.heartbeat("b", generation=3)
    consumers.expect("b heartbeat REBALANCE_IN_PROGRESS")


def test_classic_member_joins_no_consumer_group_where_migration_is_disabled():
    consumers = Consumers(migration_policy=MigrationPolicy.DISABLED)
    consumers.join_consumer("a")
    consumers.skip()

    consumers.join_classic("b")

    consumers.expect("b join INCONSISTENT_GROUP_PROTOCOL")


def test_classic_member_needs_a_protocol_that_the_other_classic_ones_have():
    consumers = mixed()

    consumers.join_classic("c", protocols="roundrobin")
    consumers.expect("c join INCONSISTENT_GROUP_PROTOCOL")
    consumers.join_classic("c", protocols="roundrobin,range")

    consumers.expect_last("c join generation=3 leader= protocol=roundrobin")


def test_requests_of_a_classic_member_are_checked():
    consumers = mixed()

    consumers.heartbeat("b", generation=2)
    consumers.heartbeat("nobody", generation=2)
    consumers.heartbeat("a", generation=1)
    consumers.sync("a", generation=1)
    consumers.sync("b", generation=2)
    consumers.heartbeat("a", generation=2, instance="x")

    consumers.expect(
        "error UNKNOWN_MEMBER_ID",
        "error UNKNOWN_MEMBER_ID",
        "error ILLEGAL_GENERATION",
        "error ILLEGAL_GENERATION",
        "error UNKNOWN_MEMBER_ID",
        "error UNKNOWN_MEMBER_ID",
    )


def test_sync_of_a_member_that_must_join_again_says_so():
    consumers = mixed()
    consumers.join_consumer("c")
    consumers.skip()

    consumers.sync("a", generation=2)

    consumers.expect("error REBALANCE_IN_PROGRESS")


def test_classic_member_has_its_own_session_timeout():
    consumers = mixed()
    consumers.heartbeat("a", generation=2)
    consumers.skip()

    consumers.advance(9_999)
    consumers.expect()
    consumers.advance(1)

    consumers.expect("log: assignment a gone", "log: target a gone", "log: member a gone", "log: group epoch=3")


@pytest.mark.parametrize("is_joined", [False, True])
def test_classic_member_that_does_not_join_or_sync_in_time_is_gone(*, is_joined: bool):
    consumers = mixed()
    consumers.join_consumer("c")
    consumers.heartbeat("a", generation=2)
    if is_joined:
        consumers.join_classic("a", owned="t:0")
    generation = 3 if is_joined else 2
    for _ in range(6):
        consumers.skip()
        consumers.heartbeat("a", generation=generation)
        consumers.beat("b")
        consumers.beat("c")
        consumers.advance(10_000 - 1)
    consumers.heartbeat("a", generation=generation)
    consumers.skip()

    consumers.advance(6)

    consumers.expect("log: assignment a gone", "log: target a gone", "log: member a gone", "log: group epoch=4")


def test_each_leaving_member_is_answered_for_itself():
    consumers = mixed()
    consumers.join_consumer("c")
    consumers.skip()

    consumers.leave("a", "nobody", "a")

    consumers.expect(
        "log: assignment a gone",
        "log: target a gone",
        "log: member a gone",
        "log: group epoch=4",
        "leave OK OK UNKNOWN_MEMBER_ID OK",
    )


def test_nobody_who_leaves_changes_nothing():
    consumers = mixed()

    consumers.leave("nobody")

    consumers.expect("leave OK UNKNOWN_MEMBER_ID")


def test_classic_member_commits_in_its_generation():
    consumers = mixed()

    consumers.commit(5, "a", generation=2)
    consumers.commit(6, "a", generation=3)

    consumers.expect("log: t-0=5", "commit 5 OK", "error ILLEGAL_GENERATION")


def test_classic_member_goes_on_until_a_new_epoch_is_assigned():
    """As in Kafka 4.3: before, it would join again and get what it has."""
    consumers = mixed()
    consumers.join_consumer("c", "u")
    consumers.join_classic("a", owned="t:0")
    consumers.settle("b")
    consumers.leave_consumer("c")
    consumers.skip()

    consumers.heartbeat("a", generation=3)
    consumers.sync("a", generation=3)
    consumers.expect("a heartbeat OK", "a sync assignment=t:0")
    consumers.beat("b")
    consumers.skip()
    consumers.heartbeat("a", generation=3)
    consumers.sync("a", generation=3)

    consumers.expect("a heartbeat REBALANCE_IN_PROGRESS", "error REBALANCE_IN_PROGRESS")


def test_classic_members_alone_join_again_for_a_new_epoch():
    """Nobody else would make the assignment: in Kafka 4.3.1 nobody reads t:1 until another member joins."""
    consumers = mixed(migration_policy=MigrationPolicy.UPGRADE)
    consumers.leave_consumer("b")
    consumers.skip()

    consumers.heartbeat("a", generation=2)
    consumers.join_classic("a", owned="t:0")

    consumers.expect_last(
        "a heartbeat REBALANCE_IN_PROGRESS",
        "log: target a t:0,1",
        "log: targets epoch=3",
        "log: assignment a STABLE epoch=3 after=2 owns t:0,1",
        "a join generation=3 leader= protocol=range",
    )


# Consumer to classic.


def test_group_is_classic_again_when_the_last_member_of_the_consumer_protocol_leaves():
    consumers = mixed()
    batches = len(consumers.log.batches)

    consumers.leave_consumer("b")

    assert len(consumers.log.batches) == batches + 1
    consumers.expect(
        "log: assignment a gone",
        "log: assignment b gone",
        "log: target a gone",
        "log: target b gone",
        "log: targets gone",
        "log: member a gone",
        "log: member b gone",
        "log: partition metadata gone",
        "log: group gone",
        "log: group generation=2 a=t:0",
        "b epoch=-1",
    )
    consumers.heartbeat("a", generation=2)
    consumers.expect("a heartbeat REBALANCE_IN_PROGRESS")
    consumers.join_classic("a")
    consumers.expect("a join generation=3 leader=a members=a protocol=range")


def test_group_that_became_classic_rebalances_under_the_next_coordinator_too():
    """What the member that has gone owned would be nobody's: the rebalance that its leaving began was in memory."""
    consumers = mixed()
    consumers.leave_consumer("b")

    consumers.restart()
    consumers.skip()

    assert list(consumers.groups) == ["g"]
    consumers.heartbeat("a", generation=2)
    consumers.expect("a heartbeat REBALANCE_IN_PROGRESS")
    consumers.join_classic("a")
    consumers.expect("a join generation=3 leader=a members=a protocol=range")


def test_group_that_has_rebalanced_since_it_became_classic_is_left_alone_by_the_next_coordinator():
    consumers = mixed()
    consumers.leave_consumer("b")
    consumers.join_classic("a")
    consumers.sync("a", generation=3, a=ALL_OF_T)

    consumers.restart()
    consumers.skip()

    consumers.heartbeat("a", generation=3)
    consumers.expect("a heartbeat OK")


def test_group_is_classic_again_when_the_last_session_of_the_consumer_protocol_ends():
    consumers = mixed()

    for _ in range(5):
        consumers.heartbeat("a", generation=2)
        consumers.advance(9_000)

    assert "log: group generation=2 a=t:0" in consumers.lines
    assert list(consumers.groups) == ["g"]


def test_conversion_that_a_session_led_to_and_the_log_refused_comes_later():
    consumers = mixed()
    for _ in range(4):
        consumers.heartbeat("a", generation=2)
        consumers.advance(9_000)
    consumers.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    consumers.heartbeat("a", generation=2)
    consumers.advance(9_000)
    before = list(consumers.groups)
    consumers.log.fail_with = None

    consumers.advance(RETRY_BACKOFF_MS)
    consumers.advance(0)

    assert (before, list(consumers.groups)) == ([], ["g"])


def test_downgraded_group_is_what_a_restart_finds():
    consumers = Consumers()
    consumers.join_consumer("a1", instance_id="a")
    consumers.join_classic("a2", instance="a", owned="")
    consumers.advance(0)
    assert consumers.lines[-1] == "a2 join generation=2 leader= protocol=range"
    before = classic_state(consumers)

    consumers.restart()

    begun = {"state": GroupState.PREPARING_REBALANCE, "previous_state": GroupState.STABLE}
    assert classic_state(consumers) == before | begun, "that it lost nobody is not in the log"


def test_classic_members_keep_all_protocols_that_they_offered():
    """Only the chosen one is in the record of a classic group."""
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.join_classic("b", protocols="range,roundrobin")
    consumers.leave_consumer("a")
    consumers.skip()

    consumers.join_classic("c", protocols="roundrobin")
    consumers.join_classic("b", protocols="range,roundrobin")

    assert "b join generation=4 leader=b members=b,c protocol=roundrobin" in consumers.lines


def test_downgraded_member_s_session_goes_on():
    consumers = mixed()
    consumers.leave_consumer("b")
    consumers.skip()

    consumers.advance(10_000)

    consumers.expect("log: group generation=3")


def test_policy_may_refuse_the_downgrade():
    consumers = Consumers(migration_policy=MigrationPolicy.UPGRADE)
    consumers.join_consumer("a")
    consumers.join_classic("b")
    consumers.skip()

    consumers.leave_consumer("a")

    consumers.expect("log: assignment a gone", "log: target a gone", "log: member a gone", "log: group epoch=4", "a epoch=-1")


def test_group_too_large_for_a_classic_one_stays_what_it_is():
    consumers = Consumers(max_size=1)
    consumers.join_consumer("a")
    consumers.join_classic("b")
    consumers.join_classic("c")
    consumers.skip()

    consumers.leave_consumer("a")

    consumers.expect_last("log: group epoch=5", "a epoch=-1")


def test_static_member_that_is_back_with_the_classic_protocol_makes_the_group_classic():
    consumers = Consumers()
    consumers.join_consumer("a1", instance_id="a")
    consumers.skip()

    consumers.join_classic("a2", instance="a", owned="")

    assert consumers.lines[-4:] == [
        "log: partition metadata gone",
        "log: group gone",
        "log: group generation=2 a2=t:0,1",
        "a2 join generation=2 leader= protocol=range",
    ]
    consumers.sync("a2", generation=2, instance="a")
    consumers.heartbeat("a2", generation=2, instance="a")
    consumers.expect_last("a2 sync assignment=t:0,1", "a2 heartbeat OK")


def test_static_member_that_is_back_for_other_topics_makes_the_group_classic_and_rebalances_it():
    consumers = Consumers()
    consumers.create_topic("u")
    consumers.join_consumer("a1", instance_id="a")
    consumers.skip()

    consumers.join_classic("a2", "u", instance="a", owned="")

    consumers.expect_last("log: group generation=2 a2=t:0,1", "a2 join generation=0 leader= protocol=range")
    consumers.join_classic("a2", "u", instance="a")
    consumers.expect("a2 join generation=3 leader=a2 members=a2 protocol=range")


def test_members_that_waited_for_partitions_rebalance_when_a_static_member_makes_the_group_classic():
    """Else nobody tells b that it was given t:1, which a1 had not given up yet."""
    consumers = Consumers()
    consumers.join_consumer("a1", instance_id="a")
    consumers.join_classic("b", owned="")
    consumers.sync("b", generation=3)
    consumers.skip()

    consumers.join_classic("a2", instance="a", owned="")

    consumers.heartbeat("b", generation=3)
    consumers.expect_last("b heartbeat REBALANCE_IN_PROGRESS")


def test_group_whose_last_assignment_is_old_rebalances_when_a_static_member_makes_it_classic():
    """b came too soon after the assignment before to be in one. a2 gets no part of the old one."""
    consumers = Consumers(consumer_assignment_interval_ms=10_000)
    consumers.join_consumer("a1", instance_id="a")
    consumers.join_classic("b", owned="")
    consumers.skip()

    consumers.join_classic("a2", instance="a", owned="")

    consumers.expect_last("a2 join generation=0 leader= protocol=range")


def test_group_goes_there_and_back():
    consumers = mixed()
    consumers.leave_consumer("b")
    consumers.join_classic("a")
    consumers.sync("a", generation=3, a=ALL_OF_T)
    consumers.skip()

    consumers.join_consumer("c")

    consumers.expect_last("log: assignment c UNRELEASED_PARTITIONS epoch=4 after=0 owns nothing", "c epoch=4 owns nothing")
    assert consumers.shares() == {consumers.member_ids["a"]: "t:0,1", "c": "nothing"}
