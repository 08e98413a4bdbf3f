"""Groups whose assignment takes long: it is computed in pieces, while their members live on."""

from __future__ import annotations

import pytest

from broker.coordination.shard import ShardState
from broker.groups.consumer.assignments import ANSWERS_PER_PIECE, ELEMENTS_AT_ONCE
from broker.groups.consumer.topics import GroupTopics
from tests.broker.groups.consumer.consumers import Consumers

PARTITIONS = ELEMENTS_AT_ONCE

pytestmark = pytest.mark.usefixtures("one_piece_in_each_turn")


def large_group(*names: str, **fields: str) -> Consumers:
    """Members that read a topic of many partitions and have not been assigned any yet."""
    consumers = Consumers()
    consumers.create_topic("large", PARTITIONS)
    for name in names:
        consumers.join_consumer(name, "large", **fields)
    consumers.skip()
    return consumers


def counts(consumers: Consumers) -> dict[str, int]:
    """How many partitions each member's target has."""
    return {name: sum(map(len, target.values())) for name, target in sorted(consumers.group.targets.items())}


def answers(consumers: Consumers) -> list[str]:
    """Those that came since the last look at the lines."""
    return [line for line in consumers.lines if not line.startswith("log: ")]


def test_answer_waits_for_the_assignment_of_many_partitions():
    consumers = Consumers()
    consumers.create_topic("large", PARTITIONS)

    consumers.join_consumer("a", "large")
    consumers.expect("log: member a large", "log: group epoch=2", "log: assignment a STABLE epoch=1 after=0 owns nothing")
    turns = 0
    while consumers.group.assignment_epoch < 2:
        consumers.take_turn()
        turns += 1

    assert turns > 3
    assert [line.partition(":0,")[0] for line in consumers.lines] == [
        "log: target a large",
        "log: targets epoch=2",
        "log: assignment a STABLE epoch=2 after=1 owns large",
        "a epoch=2 owns large",
    ]
    assert sum(map(len, consumers.owned["a"].values())) == PARTITIONS


def test_targets_of_all_members_are_one_batch():
    consumers = large_group("a", "b")
    consumers.advance(0)  # for a alone, whose heartbeat began it before b came
    consumers.skip()
    batches = len(consumers.log.batches)

    consumers.beat("b")
    consumers.advance(0)

    assert counts(consumers) == {"a": PARTITIONS // 2, "b": PARTITIONS // 2}
    assert [line.partition(":")[2].split(":")[0] for line in consumers.lines] == [
        " target a large",
        " target b large",
        " targets epoch=3",
        " assignment b UNRELEASED_PARTITIONS epoch=3 after=2 owns nothing",
        "",
    ]
    assert len(consumers.log.batches) == batches + 2


def test_answers_come_in_pieces_too():
    consumers = large_group("a")
    consumers.advance(0)
    names = [f"m{number}" for number in range(3 * ANSWERS_PER_PIECE)]
    for name in names:
        consumers.join_consumer(name, "large")
    consumers.skip()

    answered = 0
    while not answered:
        consumers.take_turn()
        answered = len(answers(consumers))

    assert answered == ANSWERS_PER_PIECE
    consumers.advance(0)
    assert len(answers(consumers)) == len(names)


def test_member_that_leaves_does_not_wait():
    consumers = large_group("a", "b")

    consumers.leave_consumer("b")

    assert answers(consumers) == ["b epoch=-1"]


def test_member_that_is_gone_when_its_group_is_assigned_is_answered_all_the_same():
    consumers = large_group("a")
    consumers.take_turn()
    consumers.leave_consumer("a")
    consumers.skip()

    consumers.advance(0)

    assert answers(consumers) == ["a epoch=1 owns nothing"]


def test_member_that_comes_meanwhile_waits_for_the_next_assignment():
    consumers = large_group("a")
    consumers.take_turn()
    consumers.join_consumer("b", "large")

    consumers.advance(0)

    assert (consumers.group.epoch, consumers.group.assignment_epoch) == (3, 2)
    assert counts(consumers) == {"a": PARTITIONS}
    consumers.settle("a", "b")
    consumers.advance(0)
    consumers.settle("a", "b")
    assert counts(consumers) == {"a": PARTITIONS // 2, "b": PARTITIONS // 2}


def test_member_that_leaves_meanwhile_gets_nothing():
    consumers = large_group("a", "b")
    consumers.advance(0)
    consumers.beat("a")
    consumers.take_turn()
    consumers.leave_consumer("b")
    consumers.skip()

    consumers.advance(0)

    assert counts(consumers) == {"a": PARTITIONS // 2}
    assert not any("target b" in line for line in consumers.lines)


def test_static_member_that_is_back_under_another_id_meanwhile_gets_its_place():
    consumers = large_group("a1", instance_id="a")
    consumers.take_turn()
    consumers.leave_consumer("a1", -2, instance_id="a")
    consumers.join_consumer("a2", "large", instance_id="a")

    consumers.advance(0)

    assert counts(consumers) == {"a2": PARTITIONS}


def test_group_that_became_another_meanwhile_keeps_its_state():
    consumers = large_group("a")
    consumers.take_turn()
    consumers.leave_consumer("a")
    consumers.join_classic("b")
    consumers.advance(0)
    consumers.skip()

    consumers.advance(0)

    consumers.expect()
    assert list(consumers.groups) == ["g"]


def test_coordinator_that_loses_its_partition_assigns_no_more():
    consumers = large_group("a")
    consumers.take_turn()

    consumers.coordinator.runtime.on_resigned(0)
    consumers.advance(0)

    consumers.expect("a NOT_COORDINATOR")


def test_write_that_costs_the_coordinator_its_partition_ends_the_job(caplog: pytest.LogCaptureFixture):
    consumers = large_group("a")
    shard = consumers.coordinator.runtime.get_shard("g")
    consumers.log.append = lambda *_: consumers.coordinator.runtime.on_resigned(0)  # type: ignore[method-assign]

    consumers.advance(0)

    assert shard.state is ShardState.RESIGNED
    assert not [record for record in caplog.records if record.exc_info]


def test_restart_finds_the_assignment():
    consumers = large_group("a")
    consumers.advance(0)

    consumers.restart()

    assert counts(consumers) == {"a": PARTITIONS}
    assert consumers.group.assignment_epoch == 2


def test_member_that_reads_what_others_read_needs_no_hash(monkeypatch: pytest.MonkeyPatch):
    consumers = large_group("a")
    consumers.advance(0)
    consumers.settle("a")  # the first heartbeat after the group came to be looks at its topics
    before = consumers.group.metadata_hash
    monkeypatch.setattr(GroupTopics, "hash_of", None)

    consumers.join_consumer("b", "large")

    assert (consumers.group.epoch, consumers.group.metadata_hash) == (3, before)
