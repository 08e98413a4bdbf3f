"""Groups that change their protocol: each time one batch, after which a restart finds what is in memory."""

from __future__ import annotations

from typing import Any

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.groups.classic.classic_group import GroupState
from protocol.errors import ErrorCode
from protocol.messages.stored.consumer_protocol import ConsumerProtocolAssignment
from protocol.messages.stored.version_prefix import encode_with_version
from tests.broker.groups.consumer.consumers import Consumers

SOFT_STATE = ("_refresh_deadline_ms", "_refresh_epoch")


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


def test_upgrade_is_one_batch():
    consumers = classic()
    batches = len(consumers.log.batches)

    consumers.join_consumer("c")

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
    before = consumer_state(consumers)

    consumers.restart()

    assert consumer_state(consumers) == before
    assert list(consumers.coordinator.runtime.get_shard("g").machine.consumer_groups.subscribed_to("t")) == [consumers.group]


def test_uncommitted_upgrade_shows_the_classic_group():
    consumers = classic()
    consumers.log.is_holding = True
    consumers.join_consumer("c")
    assert consumers.group.members

    assert not consumers.coordinator.is_consumer_group("g")
    consumers.log.commit()

    assert consumers.coordinator.is_consumer_group("g")
    assert consumers.coordinator.count_states() == {"Reconciling": 1}


def test_sessions_of_upgraded_members_begin_with_the_conversion():
    consumers = classic()
    consumers.join_consumer("c")

    consumers.advance(9_999)
    assert len(consumers.group.members) == 3
    consumers.advance(1)

    assert list(consumers.group.members) == ["c"]


def test_refused_write_leaves_the_classic_group_to_the_next_attempt():
    consumers = classic()
    consumers.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    consumers.join_consumer("c")
    consumers.expect("c COORDINATOR_NOT_AVAILABLE")
    assert list(consumers.groups) == ["g"]

    consumers.log.fail_with = None
    consumers.join_consumer("c")

    assert len(consumers.group.members) == 3


def test_group_that_cannot_be_converted_says_so():
    consumers = Consumers()
    consumers.join_classic("a")
    consumers.advance(0)
    custom = encode_with_version(ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"x"), 0)
    consumers.sync("a", a=custom)
    consumers.skip()

    consumers.join_consumer("c")

    consumers.expect("error GROUP_ID_NOT_FOUND")
    assert list(consumers.groups) == ["g"]


def test_downgrade_is_one_batch():
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

    consumers.advance(9_999)
    assert len(consumers.groups["g"].members) == 1
    consumers.advance(1)

    assert not consumers.groups["g"].members
