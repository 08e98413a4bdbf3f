"""Random histories of a group: whatever members do and whenever the coordinator restarts, its invariants hold and nobody hangs.

Each seed is one history of joins, syncs, heartbeats, leaves, commits, time, failing and held appends, and restarts, over six
members, two of them static. After each step the group is checked; at the end time passes and every request must be answered.
"""

from __future__ import annotations

import random

import pytest

from broker.groups.classic.classic_group import ClassicGroup, GroupState
from protocol.errors import ErrorCode
from protocol.records import read_header
from tests.broker.groups.transcript import Transcript

SEEDS = 15
STEPS = 250
NAMES = "abcdef"
INSTANCES = {"e": "ie", "f": "if"}


class History:
    """One seed's history. With `refuses` the log refuses appends at times, so that an empty group may go unstored."""

    def __init__(self, seed: int, *, refuses: bool) -> None:
        self.refuses = refuses
        self.random = random.Random(seed)
        self.script = Transcript(initial_rebalance_delay_ms=self.random.choice([0, 500]), max_size=5)
        self.generation = 1
        self.offset = 0

    def step(self) -> None:
        name = self.random.choice(NAMES)
        instance = INSTANCES.get(name)
        action = self.random.randrange(20)
        script = self.script
        if action < 5:
            if self.random.random() < 0.2:
                script.member_ids.pop(name, None)
            script.join(
                name, version=self.random.choice([3, 5, 9]), instance=instance, protocols=self.random.choice(["range", "range,sticky"])
            )
        elif action < 9:
            assignments = {member: member.upper() for member in script.member_ids}
            script.sync(name, generation=self.generation, instance=instance, **assignments)
        elif action < 11:
            script.heartbeat(name, generation=self.generation, instance=instance)
        elif action < 12:
            script.leave(name)
        elif action < 15:
            self.offset += 1
            script.commit(self.offset, name, generation=self.generation, instance=instance)
        elif action < 18:
            script.advance(self.random.choice([1, 600, 5_000, 11_000]))
        else:
            self.disturb()

    def disturb(self) -> None:
        log = self.script.log
        match self.random.randrange(4):
            case 0:
                log.is_holding = not log.is_holding
                if not log.is_holding:
                    log.commit()
            case 1:
                log.fail_with = self.random.choice([None, ErrorCode.NOT_ENOUGH_REPLICAS]) if self.refuses else None
            case 2:
                log.held.clear()
                self.script.restart()
            case _:
                log.commit()

    def settle(self) -> None:
        """The log works again and time passes: what waits must be answered, and members that say nothing expire."""
        self.script.log.fail_with = None
        self.script.log.is_holding = False
        self.script.log.commit()
        self.script.advance(400_000)


def check(group: ClassicGroup) -> None:
    members = list(group.members.values())
    assert group.awaiting_join_count == sum(member.is_awaiting_join for member in members)
    assert group.static_members == {member.group_instance_id: member.member_id for member in members if member.group_instance_id}
    assert not group.pending_join_members.keys() & group.members.keys()
    assert group.pending_sync_members.keys() <= group.members.keys()
    assert not members or group.leader_id in group.members
    assert group.metadata_size_bytes == sum(member.metadata_size_bytes for member in members)
    assert all(count == sum(name in member.protocols for member in members) for name, count in group.supported_protocols.items())
    if group.state in (GroupState.STABLE, GroupState.EMPTY):
        assert not any(member.is_awaiting_sync for member in members)
    if group.state is GroupState.EMPTY:
        assert not members


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_history_keeps_the_invariants_and_answers_everyone(seed: int):
    history = History(seed, refuses=True)

    for _ in range(STEPS):
        history.step()
        for group in history.script.groups.values():
            check(group)
            history.generation = group.generation
    history.settle()

    for group in history.script.groups.values():
        assert group.members == {}
    assert history.script.unanswered_count == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_restarted_coordinator_knows_what_this_one_knows(seed: int):
    history = History(seed, refuses=False)
    for _ in range(STEPS):
        history.step()
    history.settle()
    history.script.skip()
    history.script.fetch()
    (before,) = history.script.lines
    groups = [(group.group_id, group.generation, group.state) for group in history.script.groups.values()]

    history.script.restart()
    history.script.skip()
    history.script.fetch()

    assert history.script.lines == [before]
    assert [(group.group_id, group.generation, group.state) for group in history.script.groups.values()] == groups


COMPARED_SEEDS = 6
STEPS_COMPARED = 120


def known(script: Transcript) -> tuple[list[str], list[str]]:
    """What this coordinator shows of its groups and of the offsets of "g"."""
    script.skip()
    script.fetch()
    groups = sorted(listed.group_id for listed in script.coordinator.list_groups())
    (line,) = script.lines
    return groups, sorted(line.split())


def loaded(batches: list[bytearray], high_watermark: int) -> Transcript:
    """Another coordinator, which loads these batches."""
    other = Transcript()
    for batch in batches:
        other.append_foreign(bytearray(batch))
    other.log.high_watermark = high_watermark
    other.restart()
    return other


@pytest.mark.parametrize("seed", range(COMPARED_SEEDS))
def test_what_is_shown_is_what_the_committed_part_of_the_log_says(seed: int):
    """Whatever is in flight: a coordinator that knows the committed part alone shows the same, and so does one that knows the whole
    log but must not show the rest."""
    history = History(seed, refuses=False)
    log = history.script.log
    log.is_holding = True
    compared_in_flight_count = 0

    for _ in range(STEPS_COMPARED):
        history.step()
        committed = [batch for batch in log.batches if last_offset(batch) < log.high_watermark]
        shown = known(history.script)
        assert shown == known(loaded(committed, log.high_watermark))
        assert shown == known(loaded(log.batches, log.high_watermark))
        compared_in_flight_count += len(committed) < len(log.batches)

    assert compared_in_flight_count > 0


def last_offset(batch: bytearray) -> int:
    return read_header(batch).last_offset
