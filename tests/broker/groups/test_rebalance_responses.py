"""Members of a large group are told in several turns of the loop, while the group goes on. Here each turn tells one."""

from __future__ import annotations

import pytest

from broker.groups.classic import rebalance_responses
from broker.groups.classic.classic_group import GroupState
from broker.groups.classic.rebalance_responses import RESPONSES_AT_ONCE
from tests.broker.groups.test_random_histories import STEPS, History, check
from tests.broker.groups.transcript import Transcript

NAMES = [f"m{number:02}" for number in range(RESPONSES_AT_ONCE + 10)]
LEADER, SECOND, LAST = NAMES[0], NAMES[1], NAMES[-1]
SESSION_TIMEOUT_MS = 10_000


pytestmark = pytest.mark.usefixtures("one_step_in_each_turn")


class LargeGroup(Transcript):
    """A group all of whose members have joined again, for generation 2; nobody has been told yet."""

    def __init__(self) -> None:
        super().__init__(initial_rebalance_delay_ms=100)
        for name in NAMES:
            self.join(name)
        self.advance(1000)
        for name in NAMES:
            self.sync(name, **dict.fromkeys(NAMES if name == LEADER else (), "old"))
        self.advance(0)
        self.skip()
        for name in NAMES:
            self.join(name, protocols="range,sticky")

    def take_turns(self, count: int) -> None:
        for _ in range(count):
            self.take_turn()

    def joined(self) -> list[str]:
        """Who was told the generation, since the last look."""
        return [line.split(" ")[0] for line in self.lines if " join generation=2 " in line]


def test_each_turn_tells_its_share_of_the_members():
    group = LargeGroup()
    group.expect()

    group.take_turns(3)

    assert group.joined() == NAMES[:3]
    group.advance(0)
    assert group.joined() == NAMES
    assert group.unanswered_count == 0


def test_only_the_leader_is_told_the_members():
    group = LargeGroup()

    group.take_turns(2)

    group.expect(
        f"{LEADER} join generation=2 leader={LEADER} members={','.join(NAMES)} protocol=range",
        f"{SECOND} join generation=2 leader={LEADER} protocol=range",
    )


def test_leader_hands_the_assignment_in_before_the_others_know_that_they_have_joined():
    group = LargeGroup()
    group.take_turn()
    group.skip()

    group.sync(LEADER, generation=2, **dict.fromkeys(NAMES, "new"))
    group.advance(0)
    assert group.joined() == NAMES[1:]
    group.skip()
    group.sync(LAST, generation=2)

    group.expect(f"{LAST} sync assignment=new")


def test_assignments_are_handed_out_in_turns_too():
    group = LargeGroup()
    group.advance(0)
    for name in NAMES[1:]:
        group.sync(name, generation=2)
    group.skip()

    group.sync(LEADER, generation=2, **{name: name.upper() for name in NAMES})

    assert group.groups["g"].state is GroupState.STABLE
    group.take_turns(2)
    assert group.lines[1:] == [f"{LEADER} sync assignment={LEADER.upper()}", f"{SECOND} sync assignment={SECOND.upper()}"]
    group.advance(0)
    assert group.lines[1:] == [f"{name} sync assignment={name.upper()}" for name in NAMES]


def test_rebalance_that_begins_meanwhile_tells_members_of_the_generation_that_they_joined():
    """As if the answer had been on its way; what the member does with it tells it of the rebalance."""
    group = LargeGroup()
    group.take_turns(2)
    group.skip()

    group.join(SECOND, protocols="range")
    group.advance(0)
    assert group.joined() == NAMES[2:]
    group.skip()
    group.sync(LAST, generation=2)
    group.heartbeat(LAST, generation=2)

    group.expect(f"{LAST} sync REBALANCE_IN_PROGRESS", f"{LAST} heartbeat REBALANCE_IN_PROGRESS")


def test_next_generation_may_be_told_before_this_one_is():
    group = LargeGroup()
    group.take_turns(2)
    group.skip()

    group.leave(*NAMES[1:])  # those that have not been told among them
    group.join(LEADER, protocols="range")
    assert group.lines[-1] == f"{LEADER} join generation=3 leader={LEADER} members={LEADER} protocol=range"
    group.advance(0)

    assert group.joined() == NAMES[2:]
    assert group.unanswered_count == 0
    assert group.groups["g"].members.keys() == {group.member_ids[LEADER]}


def test_member_that_is_gone_before_it_is_told_has_no_session():
    group = LargeGroup()
    group.take_turns(2)

    group.leave(LAST)
    group.advance(0)
    group.sync(LAST, generation=2)

    assert LAST in group.joined()
    assert group.lines[-1] == f"{LAST} sync UNKNOWN_MEMBER_ID"
    assert group.groups["g"].members.keys() == {group.member_ids[name] for name in NAMES[:-1]}


def test_session_does_not_end_while_the_answer_is_on_its_way():
    group = LargeGroup()
    group.clock.stall(SESSION_TIMEOUT_MS)

    group.advance(0)

    assert len(group.groups["g"].members) == len(NAMES)


def test_session_begins_with_the_answer():
    group = LargeGroup()
    group.advance(SESSION_TIMEOUT_MS - 1)
    assert len(group.groups["g"].members) == len(NAMES)

    group.advance(1)
    group.advance(0)

    assert not group.groups["g"].members


def test_shard_that_is_lost_meanwhile_leaves_nobody_waiting():
    group = LargeGroup()
    group.take_turns(2)

    group.coordinator.runtime.on_resigned(0)
    group.advance(0)

    assert group.joined() == NAMES
    assert group.unanswered_count == 0
    assert not [timer for timer in group.clock.pending_timers if timer.due_ms <= group.clock.monotonic_ms() + SESSION_TIMEOUT_MS]


def test_members_that_wait_when_the_shard_is_lost_are_told_in_turns():
    group = LargeGroup()
    group.advance(0)
    for name in NAMES[1:]:
        group.sync(name, generation=2)
    group.skip()

    group.coordinator.runtime.on_resigned(0)

    group.take_turns(2)
    group.expect(f"{NAMES[1]} sync NOT_COORDINATOR", f"{NAMES[2]} sync NOT_COORDINATOR")
    group.advance(0)
    assert group.unanswered_count == 0


def test_coordinator_that_stops_tells_all_that_are_left():
    group = LargeGroup()
    group.take_turns(2)

    group.coordinator.stop()

    assert group.joined() == NAMES
    assert group.unanswered_count == 0


@pytest.mark.parametrize("seed", range(10))
def test_random_history_in_which_nobody_is_told_at_once(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rebalance_responses, "RESPONSES_AT_ONCE", 0)
    history = History(seed, refuses=True)

    for _ in range(STEPS):
        history.step()
        for group in history.script.groups.values():
            check(group)
            history.generation = group.generation
    history.settle()

    assert history.script.unanswered_count == 0
    assert all(not group.members for group in history.script.groups.values())
