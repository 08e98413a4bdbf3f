"""Transcripts of a classic group's membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

import pytest

from broker.groups.classic import joins
from protocol.errors import ErrorCode
from tests.broker.groups.transcript import Transcript, stable_group


def test_first_member_of_a_new_group_leads_generation_one():
    script = Transcript()

    script.join("a")
    script.advance(0)
    script.sync("a", a="A")

    script.expect(
        "log: group generation=0",
        "a join generation=1 leader=a members=a protocol=range",
        "log: group generation=1 a=A",
        "a sync assignment=A",
    )


def test_member_id_is_required_before_a_dynamic_member_joins():
    """KIP-394: else a client whose first answer got lost would leave a dead member behind with each try."""
    script = Transcript()

    script.join("a", version=4)
    script.join("a", version=4)
    script.advance(0)

    script.expect(
        "log: group generation=0",
        "a join MEMBER_ID_REQUIRED",
        "a join generation=1 leader=a members=a protocol=range",
    )


def test_join_with_an_unknown_member_id_is_refused():
    script = stable_group("a")

    script.join("b", member_id="b-made-up")

    script.expect("b join UNKNOWN_MEMBER_ID")


def test_join_of_an_unknown_group_with_a_member_id_makes_no_group():
    script = Transcript()

    script.join("a", member_id="a-of-old")

    script.expect("a join UNKNOWN_MEMBER_ID")
    assert script.groups == {}


def test_session_timeout_out_of_range_is_refused():
    script = Transcript()

    script.join("a", session_timeout_ms=5_999)
    script.join("a", session_timeout_ms=1_800_001)

    script.expect("error INVALID_SESSION_TIMEOUT", "error INVALID_SESSION_TIMEOUT")


def test_empty_group_id_is_refused():
    script = Transcript()

    script.join("a", group_id="")

    script.expect("error INVALID_GROUP_ID")


def test_newcomer_makes_a_stable_group_rebalance():
    script = stable_group("a")

    script.join("b")
    script.heartbeat("a")
    script.join("a")

    script.expect(
        "a heartbeat REBALANCE_IN_PROGRESS",
        "b join generation=2 leader=a protocol=range",
        "a join generation=2 leader=a members=a,b protocol=range",
    )


def test_follower_that_rejoins_unchanged_gets_its_generation_again():
    script = stable_group("a", "b")

    script.join("b")
    script.sync("b")

    script.expect("b join generation=1 leader=a protocol=range", "b sync assignment=B")


def test_follower_that_rejoins_with_other_metadata_starts_a_rebalance():
    script = stable_group("a", "b")

    script.join("b", topics=["t", "u"])
    script.heartbeat("a")

    script.expect("a heartbeat REBALANCE_IN_PROGRESS")


def test_leader_that_rejoins_starts_a_rebalance():
    script = stable_group("a", "b")

    script.join("a")
    script.heartbeat("b")
    script.join("b")

    script.expect(
        "b heartbeat REBALANCE_IN_PROGRESS",
        "a join generation=2 leader=a members=a,b protocol=range",
        "b join generation=2 leader=a protocol=range",
    )


def test_join_during_the_sync_phase_sends_waiting_members_back():
    script = Transcript(initial_rebalance_delay_ms=100)
    script.join("a")
    script.join("b")
    script.advance(200)
    script.sync("b")
    script.skip()

    script.join("c")

    script.expect("b sync REBALANCE_IN_PROGRESS")


def test_leader_that_rejoins_unchanged_in_the_sync_phase_is_told_the_members_again():
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()

    script.join("a")

    script.expect("a join generation=1 leader=a members=a protocol=range")


def test_join_sent_twice_answers_the_one_given_up():
    """The first connection may still be there; its answer must not hang for ever."""
    script = stable_group("a", "b")

    script.join("a")
    script.join("a")

    script.expect("a join REBALANCE_IN_PROGRESS")


def test_protocol_with_most_votes_is_chosen():
    script = Transcript(initial_rebalance_delay_ms=100)

    script.join("a", protocols="range,sticky")
    script.join("b", protocols="sticky,range")
    script.join("c", protocols="sticky,other,range")
    script.advance(400)

    script.expect(
        "log: group generation=0",
        "a join generation=1 leader=a members=a,b,c protocol=sticky",
        "b join generation=1 leader=a protocol=sticky",
        "c join generation=1 leader=a protocol=sticky",
    )


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (("range,sticky", "sticky,range"), "range"),  # as many votes: the first that was voted for
        (("mine,range,sticky", "range,sticky", "sticky,range", "its,sticky,range"), "range"),  # those whose first others lack vote too
        (("mine,sticky,range", "range,sticky", "its,sticky,range"), "sticky"),
    ],
)
def test_each_member_votes_for_the_first_that_all_have(offers: tuple[str, ...], chosen: str):
    script = Transcript(initial_rebalance_delay_ms=100)

    for name, protocols in zip("abcd", offers, strict=False):
        script.join(name, protocols=protocols)
    script.advance(500)

    assert script.lines[-1].endswith(f"protocol={chosen}")


def test_member_without_a_common_protocol_is_refused():
    script = stable_group("a")

    script.join("b", protocols="sticky")
    script.join("b", protocol_type="connect")

    script.expect("b join INCONSISTENT_GROUP_PROTOCOL", "b join INCONSISTENT_GROUP_PROTOCOL")


def test_group_at_its_maximum_size_takes_no_newcomer():
    script = stable_group("a", "b", max_size=2)

    script.join("c")
    script.join("b")

    script.expect("c join GROUP_MAX_SIZE_REACHED", "b join generation=1 leader=a protocol=range")


def test_last_to_rejoin_is_turned_away_after_the_maximum_size_was_lowered():
    """KIP-389: the freshly loaded group rebalances, and takes as many as there is room for."""
    script = stable_group("a", "b")
    script.config = type(script.config)(max_size=1)
    script.restart()

    script.join("b")
    script.join("a")

    script.expect("b join generation=2 leader=b members=b protocol=range", "a join GROUP_MAX_SIZE_REACHED")


def test_sync_waits_for_the_assignment_to_be_stored():
    script = Transcript(initial_rebalance_delay_ms=100)
    script.join("a")
    script.join("b")
    script.advance(200)
    script.skip()
    script.log.is_holding = True

    script.sync("b")
    script.sync("a", a="A", b="B")
    script.expect("log: group generation=1 a=A b=B")
    script.log.commit()

    script.expect("a sync assignment=A", "b sync assignment=B")


def test_assignment_that_cannot_be_stored_sends_the_members_back():
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()
    script.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS

    script.sync("a", a="A")
    script.heartbeat("a")

    script.expect("a sync COORDINATOR_NOT_AVAILABLE", "a heartbeat REBALANCE_IN_PROGRESS")


def test_assignment_is_dropped_when_a_rebalance_overtook_it():
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()
    script.log.is_holding = True

    script.sync("a", a="A")
    script.join("b")
    script.log.commit()
    script.heartbeat("a")

    script.expect("log: group generation=1 a=A", "a sync REBALANCE_IN_PROGRESS", "a heartbeat REBALANCE_IN_PROGRESS")


def test_member_that_the_leader_forgot_gets_an_empty_assignment():
    script = Transcript(initial_rebalance_delay_ms=100)
    script.join("a")
    script.join("b")
    script.advance(200)
    script.skip()

    script.sync("b")
    script.sync("a", a="A")

    script.expect("log: group generation=1 a=A b=", "b sync assignment=", "a sync assignment=A")


def test_sync_is_fenced_by_generation_and_member():
    script = stable_group("a")

    script.sync("a", generation=2)
    script.sync("made-up")

    script.expect("a sync ILLEGAL_GENERATION", "made-up sync UNKNOWN_MEMBER_ID")


def test_sync_during_the_join_phase_is_sent_back():
    script = stable_group("a", "b")
    script.join("a")

    script.sync("b")

    script.expect("b sync REBALANCE_IN_PROGRESS")


def test_heartbeat_is_fenced_by_generation_and_member():
    script = stable_group("a")

    script.heartbeat("a", generation=0)
    script.heartbeat("made-up")
    script.heartbeat("a")

    script.expect("a heartbeat ILLEGAL_GENERATION", "made-up heartbeat UNKNOWN_MEMBER_ID", "a heartbeat OK")


def test_heartbeat_in_the_sync_phase_is_in_order():
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()

    script.heartbeat("a")

    script.expect("a heartbeat OK")


def test_last_member_that_leaves_leaves_an_empty_group_behind():
    script = stable_group("a")

    script.leave("a")
    script.heartbeat("a", generation=2)

    script.expect("log: group generation=2", "leave OK OK", "a heartbeat UNKNOWN_MEMBER_ID")


def test_leave_answers_each_member_on_its_own():
    script = stable_group("a", "b")

    script.leave("made-up", "b")
    script.heartbeat("a")

    script.expect("leave OK UNKNOWN_MEMBER_ID OK", "a heartbeat REBALANCE_IN_PROGRESS")


def test_pending_member_that_leaves_no_longer_holds_up_the_join_phase():
    script = stable_group("a")
    script.join("b", version=4)
    script.join("a")
    script.expect("b join MEMBER_ID_REQUIRED")

    script.leave("b")

    script.expect("a join generation=2 leader=a members=a protocol=range", "leave OK OK")


def test_leave_of_a_member_that_waits_to_join_answers_its_join():
    script = stable_group("a")
    script.join("b")

    script.leave("a")

    script.expect("b join generation=2 leader=b members=b protocol=range", "leave OK OK")


def test_new_group_is_gone_when_it_cannot_be_stored():
    script = Transcript()
    script.log.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER

    script.join("a")

    script.expect("a join NOT_COORDINATOR")
    assert script.groups == {}


def test_member_ids_handed_out_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """A client that asks for ids and never joins costs memory and a timer each time."""
    monkeypatch.setattr(joins, "MAX_PENDING_MEMBERS", 2)
    script = Transcript()
    for name in "abc":
        script.join(name, version=4)

    script.expect_last("b join MEMBER_ID_REQUIRED", "c join GROUP_MAX_SIZE_REACHED")


def test_membership_larger_than_can_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(joins, "MAX_MEMBERSHIP_SIZE_BYTES", 10)
    script = Transcript()

    script.join("a")

    script.expect_last("a join GROUP_MAX_SIZE_REACHED")


@pytest.mark.parametrize(
    ("protocols_count", "name_size", "is_taken"),
    [(1_000, 10, True), (1_001, 10, False), (10, 200_000, True), (11, 200_000, False)],
)
def test_what_one_member_may_offer_is_bounded_with_its_names(protocols_count: int, name_size: int, is_taken: bool):
    """150,000 protocols held the loop for 0.1 s; names did not count for any limit."""
    script = Transcript()

    script.join("a", protocols=",".join(f"{number:0{name_size}}" for number in range(protocols_count)), protocol_type="other")
    script.advance(0)

    assert ("a join GROUP_MAX_SIZE_REACHED" in script.lines) is not is_taken


def test_names_of_all_members_count_for_the_groups_size():
    script = Transcript()

    for name in "abcdef":
        script.join(name, protocols="n" * 1_500_000, protocol_type="other")

    assert [line for line in script.lines if "GROUP_MAX_SIZE_REACHED" in line] == ["f join GROUP_MAX_SIZE_REACHED"]


def test_assignments_too_large_to_store_are_refused_and_the_group_goes_on():
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()

    script.sync("a", a="A" * (8 * 1024 * 1024 + 1))
    script.expect_last("a sync UNKNOWN_SERVER_ERROR")
    script.join("a")
    script.advance(0)
    script.sync("a", generation=2, a="A")

    script.expect_last("a sync assignment=A")


def test_leader_that_syncs_twice_is_answered_twice_and_the_log_wins():
    """Kafka keeps the first assignment in memory and the second in its log; they must not differ."""
    script = Transcript()
    script.join("a")
    script.advance(0)
    script.skip()
    script.log.is_holding = True

    script.sync("a", a="A")
    script.sync("a", a="B")
    script.log.commit()
    script.sync("a")
    script.restart()
    script.sync("a")

    script.expect(
        "log: group generation=1 a=A",
        "a sync REBALANCE_IN_PROGRESS",
        "log: group generation=1 a=B",
        "a sync assignment=A",
        "a sync assignment=B",
        "a sync assignment=B",
    )
