"""Groups so large that they are converted in pieces: what their members see meanwhile, and what is in the log at each step.

Every group counts as large here, each record is a piece, and each turn does one.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.groups.classic.classic_group import GroupState
from broker.groups.consumer import conversions, migration
from broker.loop.turns import PIECE_ELEMENTS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.consumer_protocol import ConsumerProtocolAssignment
from protocol.messages.stored.version_prefix import encode_with_version
from tests.broker.groups.consumer.consumers import Consumers, topic_partitions

pytestmark = pytest.mark.usefixtures("one_piece_in_each_turn")

SOFT_STATE = ("_refresh_deadline_ms", "_refresh_epoch")


@pytest.fixture(autouse=True)
def every_group_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "CONVERTED_AT_ONCE", 0)
    monkeypatch.setattr(migration, "MEMBER_ELEMENTS", PIECE_ELEMENTS)


def classic() -> Consumers:
    """A classic group of a, which leads, and b."""
    consumers = Consumers()
    consumers.classic_group(a="t:0", b="t:1")
    return consumers


def mixed() -> Consumers:
    """a, which speaks the classic protocol, and b, the last that speaks the consumer protocol."""
    consumers = Consumers()
    consumers.classic_group(a="t:0,1")
    consumers.join_consumer("b")
    consumers.advance(0)
    consumers.join_classic("a", owned="t:0,1")
    consumers.sync("a", generation=1)
    consumers.join_classic("a", owned="t:0")
    consumers.sync("a", generation=2)
    consumers.settle("b")
    return consumers


def consumer_state(consumers: Consumers) -> dict[str, Any]:
    return {name: value for name, value in vars(consumers.group).items() if name not in SOFT_STATE}


def classic_state(consumers: Consumers) -> dict[str, Any]:
    group = consumers.groups["g"]
    members = [[getattr(member, name) for name in member.__slots__] for member in group.members.values()]
    return {name: value for name, value in vars(group).items() if name != "rebalance_reason"} | {"members": members}


def is_waiting(consumers: Consumers) -> bool:
    return consumers.unanswered_count > 0


def test_upgrade_is_one_batch_after_many_turns():
    consumers = classic()
    batches = len(consumers.log.batches)

    consumers.join_consumer("c")
    turns = 0
    while is_waiting(consumers):
        assert len(consumers.log.batches) == batches
        assert list(consumers.groups) == ["g"]
        consumers.take_turn()
        turns += 1

    assert turns > 8
    assert len(consumers.log.batches) == batches + 1
    consumers.expect(
        "log: group deleted",
        "log: member a t classic",
        "log: member b t classic",
        "log: group epoch=1",
        "log: target a t:0",
        "log: target b t:1",
        "log: targets epoch=1",
        "log: assignment a STABLE epoch=1 after=1 owns t:0",
        "log: assignment b STABLE epoch=1 after=1 owns t:1",
        "log: member c t",
        "log: group epoch=2",
        "log: target c nothing",
        "log: targets epoch=2",
        "log: assignment c STABLE epoch=2 after=0 owns nothing",
        "c epoch=2 owns nothing",
    )


def test_upgraded_group_is_what_a_restart_finds():
    consumers = classic()
    consumers.join_consumer("c")
    consumers.advance(0)
    before = consumer_state(consumers)

    consumers.restart()

    assert consumer_state(consumers) == before
    assert list(consumers.coordinator.runtime.get_shard("g").machine.consumer_groups.subscribed_to("t")) == [consumers.group]


def test_crash_before_the_batch_leaves_the_classic_group():
    consumers = classic()
    consumers.join_consumer("c")
    for _ in range(5):
        consumers.take_turn()
    consumers.skip()

    consumers.restart()

    assert list(consumers.groups) == ["g"]
    consumers.heartbeat("a")
    consumers.expect("a heartbeat OK")


def test_uncommitted_upgrade_shows_the_classic_group():
    consumers = classic()
    consumers.log.is_holding = True
    consumers.join_consumer("c")
    consumers.advance(0)
    assert consumers.group.members

    assert not consumers.coordinator.is_consumer_group("g")
    consumers.log.commit()

    assert consumers.coordinator.is_consumer_group("g")
    assert consumers.coordinator.count_states() == {"Reconciling": 1}


def test_sessions_of_upgraded_members_begin_with_the_conversion():
    consumers = classic()
    consumers.join_consumer("c")
    consumers.advance(0)

    consumers.advance(9_999)
    assert len(consumers.group.members) == 3
    consumers.advance(1)

    assert list(consumers.group.members) == ["c"]


def test_group_that_changes_meanwhile_is_converted_as_it_is_in_the_end():
    """A classic group whose leader's assignment is not committed yet has no assignments."""
    consumers = Consumers()
    consumers.classic_group(a="t:0")
    consumers.join_classic("a", "t,u")
    consumers.log.is_holding = True
    assignment = encode_with_version(ConsumerProtocolAssignment(assigned_partitions=topic_partitions("t:0,1")), 0)
    consumers.sync("a", generation=2, a=assignment)
    consumers.join_consumer("c")
    for _ in range(4):
        consumers.take_turn()

    consumers.log.is_holding = False
    consumers.log.commit()
    consumers.skip()
    consumers.advance(0)

    assert "log: assignment a STABLE epoch=2 after=2 owns t:0,1" in consumers.lines
    assert consumers.shares()[consumers.member_ids["a"]] == "t:0,1"


def test_group_that_changes_too_often_is_to_be_asked_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(conversions, "ATTEMPTS_MAX", 1)
    consumers = Consumers()
    consumers.classic_group(a="t:0")
    consumers.join_classic("a", "t,u")
    consumers.log.is_holding = True
    consumers.sync("a", generation=2, a=encode_with_version(ConsumerProtocolAssignment(), 0))
    consumers.join_consumer("c")
    consumers.take_turn()
    consumers.log.is_holding = False
    consumers.log.commit()
    consumers.skip()

    consumers.advance(0)
    consumers.expect("c COORDINATOR_LOAD_IN_PROGRESS")
    consumers.join_consumer("c")
    consumers.advance(0)

    assert "c" in consumers.group.members


def test_requests_that_come_meanwhile_wait_for_the_other_group():
    consumers = classic()
    consumers.join_consumer("c")
    consumers.take_turn()

    consumers.join_classic("b", owned="t:1")
    consumers.join_consumer("d")
    consumers.leave("a")
    assert consumers.unanswered_count == 4
    consumers.advance(0)

    answers = [line for line in consumers.lines if not line.startswith("log: ")]
    assert answers == [
        "c epoch=2 owns nothing",
        "b join generation=2 leader= protocol=range",
        "d epoch=3 owns nothing",
        "leave OK OK",
    ]
    assert sorted(consumers.group.members) == sorted([consumers.member_ids["b"], "c", "d"])


def test_heartbeats_and_commits_do_not_wait():
    consumers = classic()
    consumers.join_consumer("c")
    consumers.take_turn()

    consumers.heartbeat("a")
    consumers.commit(7, "a", generation=1)

    consumers.expect("a heartbeat OK", "log: t-0=7", "commit 7 OK")
    consumers.advance(0)
    consumers.fetch(0)
    consumers.expect_last("fetch t-0=7")


def test_shard_that_is_lost_meanwhile_leaves_nobody_waiting():
    consumers = classic()
    consumers.join_consumer("c")
    consumers.take_turn()
    consumers.leave("a")

    consumers.coordinator.runtime.on_resigned(0)

    consumers.expect("c NOT_COORDINATOR", "leave NOT_COORDINATOR")
    assert consumers.unanswered_count == 0
    consumers.advance(0)
    consumers.expect()


def test_shard_that_is_lost_before_the_first_turn_leaves_nobody_waiting():
    consumers = classic()
    consumers.join_consumer("c")

    consumers.coordinator.runtime.on_resigned(0)

    consumers.expect("c NOT_COORDINATOR")


def test_write_that_costs_the_shard_its_life_leaves_nobody_waiting():
    consumers = classic()
    consumers.log.is_holding = True
    consumers.join_consumer("c")
    consumers.leave("a")
    consumers.advance(0)

    consumers.log.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    consumers.advance(0)

    assert consumers.unanswered_count == 0


def test_refused_write_leaves_the_classic_group_to_the_next_attempt():
    consumers = classic()
    consumers.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    consumers.join_consumer("c")
    consumers.advance(0)
    consumers.expect("c COORDINATOR_NOT_AVAILABLE")
    assert list(consumers.groups) == ["g"]

    consumers.log.fail_with = None
    consumers.join_consumer("c")
    consumers.advance(0)

    assert len(consumers.group.members) == 3


def test_group_that_cannot_be_converted_says_so_after_the_pieces():
    consumers = Consumers()
    consumers.join_classic("a")
    consumers.advance(0)
    custom = encode_with_version(ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"x"), 0)
    consumers.sync("a", a=custom)
    consumers.skip()

    consumers.join_consumer("c")
    consumers.advance(0)

    consumers.expect("c GROUP_ID_NOT_FOUND")
    assert list(consumers.groups) == ["g"]


def test_downgrade_is_one_batch_after_many_turns():
    consumers = mixed()
    batches = len(consumers.log.batches)

    consumers.leave_consumer("b")
    turns = 0
    while is_waiting(consumers):
        assert len(consumers.log.batches) == batches
        consumers.take_turn()
        turns += 1

    assert turns > 8
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
    consumers.advance(0)
    consumers.heartbeat("a", generation=2)
    consumers.join_classic("a")
    consumers.expect("a heartbeat REBALANCE_IN_PROGRESS", "a join generation=3 leader=a members=a protocol=range")


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


def test_session_of_the_last_member_of_the_consumer_protocol_ends():
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


def test_sessions_of_downgraded_members_begin_with_the_conversion():
    consumers = mixed()
    consumers.leave_consumer("b")
    consumers.advance(0)

    consumers.advance(9_999)
    assert len(consumers.groups["g"].members) == 1
    consumers.advance(1)

    assert not consumers.groups["g"].members


def test_member_that_moves_on_meanwhile_is_downgraded_as_it_is_in_the_end():
    consumers = mixed()
    consumers.create_topic("u")
    consumers.leave_consumer("b")
    for _ in range(3):
        consumers.take_turn()

    consumers.commit(3, "a", generation=2)
    consumers.join_classic("a", "t,u", owned="t:0")
    consumers.advance(0)

    answers = [line for line in consumers.lines if not line.startswith("log: ")]
    assert answers == ["commit 3 OK", "b epoch=-1", "a join generation=3 leader=a members=a protocol=range"]


def test_refused_conversion_leaves_no_exception_behind():
    """Its traceback would hold the frames, and with them the group and the request."""
    consumers = Consumers()
    consumers.join_classic("a")
    consumers.advance(0)
    consumers.sync("a", a=encode_with_version(ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"x"), 0))
    gc.collect()
    gc.disable()
    try:
        consumers.join_consumer("c")
        consumers.advance(0)
        left = [found for found in gc.get_objects() if isinstance(found, KafkaError) and found.code is ErrorCode.GROUP_ID_NOT_FOUND]
    finally:
        gc.enable()

    consumers.expect_last("c GROUP_ID_NOT_FOUND")
    assert left == []
