"""Transcripts of static members (KIP-345): they keep their place when they come back, and fence who was there before."""

from protocol.errors import ErrorCode
from tests.broker.groups.transcript import Transcript


def stable_static_group(**config: int) -> Transcript:
    """Static members "a" (leader, instance ia) and "b" (instance ib), stable in generation 1."""
    script = Transcript(**({"initial_rebalance_delay_ms": 100} | config))
    script.join("a", version=9, instance="ia")
    script.join("b", version=9, instance="ib")
    script.advance(300)
    script.sync("a", instance="ia", a="A", b="B")
    script.sync("b", instance="ib")
    script.skip()
    return script


def test_static_member_needs_no_second_round_for_its_member_id():
    script = Transcript()

    script.join("a", version=9, instance="ia")
    script.advance(0)

    script.expect("log: group generation=0", "a join generation=1 leader=a members=a protocol=range")
    assert script.member_ids["a"].startswith("ia-")


def test_returning_follower_keeps_its_assignment_without_a_rebalance():
    script = stable_static_group()
    old_id = script.member_ids.pop("b")

    script.join("b", version=9, instance="ib")
    script.sync("b", instance="ib")
    script.heartbeat("a", instance="ia")

    assert script.member_ids["b"] != old_id
    script.expect_last("b join generation=1 leader=a protocol=range", "b sync assignment=B", "a heartbeat OK")


def test_returning_leader_is_told_to_skip_the_assignment():
    """KIP-814: it leads on, and must watch the topics, but the group has its assignment."""
    script = stable_static_group()
    del script.member_ids["a"]

    script.join("a", version=9, instance="ia")

    script.expect_last("a join generation=1 leader=a members=b,a protocol=range skip")


def test_returning_leader_that_cannot_skip_is_told_the_old_leader():
    script = stable_static_group()
    old_id = script.member_ids.pop("a")

    script.join("a", version=8, instance="ia")

    script.expect_last(f"a join generation=1 leader={old_id} protocol=range")


def test_replaced_member_id_is_fenced():
    script = stable_static_group()
    script.member_ids["old"] = script.member_ids.pop("b")
    script.join("b", version=9, instance="ib")
    script.skip()

    script.heartbeat("old", instance="ib")
    script.sync("old", instance="ib")
    script.commit(5, "old", generation=1, instance="ib")
    script.join("old", version=9, instance="ib")

    script.expect(
        "old heartbeat FENCED_INSTANCE_ID",
        "old sync FENCED_INSTANCE_ID",
        "error FENCED_INSTANCE_ID",
        "old join FENCED_INSTANCE_ID",
    )


def test_fenced_member_may_come_back_as_a_new_one():
    """Two processes with one instance id: each join takes the place over again."""
    script = stable_static_group()
    script.member_ids["old"] = script.member_ids.pop("b")
    script.join("b", version=9, instance="ib")
    script.skip()

    script.join("old", version=9, instance="ib", member_id="")
    script.heartbeat("b", instance="ib")

    script.expect_last("old join generation=1 leader=a protocol=range", "b heartbeat FENCED_INSTANCE_ID")


def test_join_that_waits_under_the_replaced_id_is_fenced():
    script = stable_static_group()
    script.join("b", version=9, instance="ib", topics=["u"])
    script.member_ids["old"] = script.member_ids["b"]
    script.expect()

    script.join("new", version=9, instance="ib")

    script.expect("b join FENCED_INSTANCE_ID")


def test_return_in_the_sync_phase_starts_a_rebalance():
    """The leader computes with the old id already; its assignment would miss the new one."""
    script = Transcript(initial_rebalance_delay_ms=100)
    script.join("a", version=9, instance="ia")
    script.join("b", version=9, instance="ib")
    script.advance(300)
    script.skip()

    script.join("new", version=9, instance="ib")
    script.heartbeat("a", instance="ia")

    script.expect("a heartbeat REBALANCE_IN_PROGRESS")


def test_return_with_another_protocol_starts_a_rebalance():
    script = Transcript()
    script.join("a", version=9, instance="ia", protocols="range,sticky")
    script.advance(0)
    script.sync("a", instance="ia", a="A")
    del script.member_ids["a"]
    script.skip()

    script.join("a", version=9, instance="ia", protocols="sticky")

    script.expect("a join generation=2 leader=a members=a protocol=sticky")


def test_return_that_cannot_be_stored_gives_the_old_member_its_place_back():
    script = stable_static_group()
    script.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS

    script.join("new", version=9, instance="ib")
    script.heartbeat("b", instance="ib")

    script.expect("new join COORDINATOR_NOT_AVAILABLE", "b heartbeat OK")


def test_static_member_is_not_dropped_by_a_rebalance_it_misses():
    script = stable_static_group()
    script.join("c")
    script.join("a", version=9, instance="ia")
    script.skip()

    for _ in range(7):
        script.advance(9_000)
        script.heartbeat("b", instance="ib")

    assert "a join generation=2 leader=a members=a,b,c protocol=range" in script.lines


def test_administrator_removes_a_static_member_by_its_instance():
    script = stable_static_group()

    script.leave(instances=("ib", "unknown"))
    script.join("a", version=9, instance="ia")

    script.expect("leave OK OK UNKNOWN_MEMBER_ID", "a join generation=2 leader=a members=a protocol=range")


def test_unknown_instance_is_an_unknown_member():
    script = stable_static_group()

    script.heartbeat("a", instance="never-seen")

    script.expect("a heartbeat UNKNOWN_MEMBER_ID")
