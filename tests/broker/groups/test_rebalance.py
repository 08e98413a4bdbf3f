"""Transcripts of the phases of a rebalance and the timeouts that move it along."""

from tests.broker.groups.transcript import Transcript, stable_group


def test_initial_rebalance_waits_for_its_delay():
    script = Transcript(initial_rebalance_delay_ms=3000)

    script.join("a")
    script.skip()
    script.advance(2999)
    script.expect()
    script.advance(1)

    script.expect("a join generation=1 leader=a members=a protocol=range")


def test_initial_rebalance_is_extended_while_newcomers_arrive():
    """KIP-134: each delay in which somebody came is followed by another."""
    script = Transcript(initial_rebalance_delay_ms=3000)
    script.join("a")
    script.advance(2000)
    script.join("b")
    script.skip()

    script.advance(3999)
    script.expect()
    script.advance(1)

    script.expect("a join generation=1 leader=a members=a,b protocol=range", "b join generation=1 leader=a protocol=range")


def test_initial_rebalance_is_extended_up_to_the_rebalance_timeout():
    script = Transcript(initial_rebalance_delay_ms=3000)
    script.join("a", rebalance_timeout_ms=7000)
    for name in "bcd":
        script.advance(2000)
        script.join(name, rebalance_timeout_ms=7000)
    script.skip()

    script.advance(999)
    script.expect()
    script.advance(1)

    script.expect(
        "a join generation=1 leader=a members=a,b,c,d protocol=range",
        "b join generation=1 leader=a protocol=range",
        "c join generation=1 leader=a protocol=range",
        "d join generation=1 leader=a protocol=range",
    )


def test_member_without_heartbeats_is_dropped_after_its_session_timeout():
    script = stable_group("a", "b")
    script.advance(9_999)
    script.heartbeat("a")
    script.expect("a heartbeat OK")

    script.advance(1)
    script.heartbeat("a")
    script.heartbeat("b")
    script.join("a")

    script.expect(
        "a heartbeat REBALANCE_IN_PROGRESS",
        "b heartbeat UNKNOWN_MEMBER_ID",
        "a join generation=2 leader=a members=a protocol=range",
    )


def test_group_is_empty_after_its_last_member_died():
    script = stable_group("a")

    script.advance(10_000)

    script.expect("log: group generation=2")


def test_offset_commit_keeps_the_session():
    script = stable_group("a")

    script.advance(9_000)
    script.commit(1, "a", generation=1)
    script.advance(9_000)
    script.heartbeat("a")

    script.expect("log: t-0=1", "commit 1 OK", "a heartbeat OK")


def test_member_that_does_not_rejoin_is_dropped_after_the_rebalance_timeout():
    script = stable_group("a", "b")
    script.join("a")
    for _ in range(6):
        script.advance(9_999)
        script.heartbeat("b")
    script.skip()

    script.advance(10)

    script.expect("a join generation=2 leader=a members=a protocol=range")


def test_leader_that_does_not_rejoin_is_replaced():
    script = stable_group("a", "b")
    script.join("b", topics=["u"])

    script.advance(10_000)

    script.expect("b join generation=2 leader=b members=b protocol=range")


def test_leader_that_dies_in_the_sync_phase_makes_the_others_rejoin():
    script = Transcript(initial_rebalance_delay_ms=100)
    script.join("a")
    script.join("b")
    script.advance(200)
    script.sync("b")
    script.skip()

    script.advance(10_000)
    script.join("b")

    script.expect("b sync REBALANCE_IN_PROGRESS", "b join generation=2 leader=b members=b protocol=range")


def test_member_that_waits_in_the_join_phase_needs_no_heartbeats():
    script = stable_group("a", "b")
    script.join("a")

    for _ in range(5):
        script.advance(9_999)
        script.heartbeat("b")
    script.join("b")

    assert "a join generation=2 leader=a members=a,b protocol=range" in script.lines


def test_newcomer_that_waits_too_long_is_dropped():
    """Its client may have gone and come back as another; it is asked to join anew."""
    script = stable_group("a", "b")
    script.join("new", rebalance_timeout_ms=900_000)
    script.join("a", rebalance_timeout_ms=900_000)
    script.skip()
    for _ in range(60):
        script.heartbeat("b")
        script.advance(5_000)

    assert "new join UNKNOWN_MEMBER_ID" in script.lines


def test_pending_member_that_never_joins_holds_up_the_join_phase_for_its_session():
    script = stable_group("a")
    script.join("b", version=4)
    script.join("a")
    script.expect("b join MEMBER_ID_REQUIRED")

    script.advance(10_000)

    script.expect("a join generation=2 leader=a members=a protocol=range")


def test_member_that_expired_while_pending_is_unknown():
    script = stable_group("a")
    script.join("b", version=4)
    script.advance(9_000)
    script.heartbeat("a")
    script.advance(1_000)
    script.skip()

    script.join("b", version=4)

    script.expect("b join UNKNOWN_MEMBER_ID")


def test_member_that_sends_no_sync_is_dropped_after_the_rebalance_timeout():
    """KAFKA-9752: it heartbeats on, so its session never ends."""
    script = Transcript(initial_rebalance_delay_ms=100)
    script.join("a")
    script.join("b")
    script.advance(200)
    script.sync("a", a="A", b="B")
    for _ in range(7):
        script.advance(8_600)
        script.heartbeat("a")
        script.heartbeat("b")

    script.skip()
    script.heartbeat("b")
    script.heartbeat("a")

    script.expect("b heartbeat UNKNOWN_MEMBER_ID", "a heartbeat REBALANCE_IN_PROGRESS")


def test_member_dies_in_the_join_phase_and_the_others_go_on():
    script = stable_group("a", "b", "c")
    script.join("a")
    script.join("b")

    script.advance(10_000)

    script.expect("a join generation=2 leader=a members=a,b protocol=range", "b join generation=2 leader=a protocol=range")


def test_an_answer_goes_out_when_all_of_the_group_is_settled():
    script = Transcript(initial_rebalance_delay_ms=1000)
    for name in ("a", "b", "c"):
        script.join(name)
    script.skip()
    found = []

    def look(line: str) -> None:
        group = script.groups.get("g")
        found.append((group.awaiting_join_count, len(group.pending_sync_members)))

    script.on_line = look
    script.advance(4000)

    assert found == [(0, 3)] * 3


def test_a_member_that_leaves_from_inside_the_answers_of_a_join_disturbs_nobody():
    """What an answer sets off may be anything: the group's own loops must not depend on it."""
    script = Transcript(initial_rebalance_delay_ms=1000)
    for name in ("a", "b", "c"):
        script.join(name)
    script.skip()

    def leave_at_once(line: str) -> None:
        if line.startswith("a join"):
            script.leave("a")

    script.on_line = leave_at_once
    script.advance(4000)

    script.expect(
        "a join generation=1 leader=a members=a,b,c protocol=range",
        "leave OK OK",
        "b join generation=1 leader=a protocol=range",
        "c join generation=1 leader=a protocol=range",
    )
    assert script.groups.get("g").leader_id == script.member_ids["b"]


def test_a_member_that_is_dropped_is_gone_when_it_is_told():
    script = stable_group("a", "b")
    script.join("c", version=4)
    script.join("c", version=4)
    found = []
    script.on_line = lambda line: found.append((line, len(script.groups.get("g").members)))

    script.leave("c")

    assert found[0] == ("c join UNKNOWN_MEMBER_ID", 2)
