"""What is answered to a batch of an idempotent producer that comes right behind one that was refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.replication import refused_sequences
from protocol.errors import ErrorCode
from tests.broker.replication.world import World, batch

PRODUCER = 7


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The producer's sequence 0 is appended, and the ISR is this broker alone, below the minimum."""
    world = World(tmp_path)
    world.clock.advance(1_000_000)
    world.create_topic("a", replicas=(1, 2), min_insync_replicas="2")
    world.produce("a", numbered(0), acks=1)
    world.change_partition("a", isr=[1])
    return world


def numbered(sequence: int, *, epoch: int = 0) -> memoryview:
    return batch(f"{epoch}-{sequence}", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)


def answer(world: World, records: memoryview, *, acks: int = -1) -> ErrorCode:
    """What the producer is told at once; NONE also where it then waits for acks."""
    answers: list[Any] = world.produce("a", records, acks=acks)
    return answers[0].error_code if answers else ErrorCode.NONE


def test_the_batch_behind_one_that_lacked_replicas_is_told_the_same_and_both_are_taken_in_order(world: World) -> None:
    assert answer(world, numbered(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.change_partition("a", isr=[1, 2])

    assert answer(world, numbered(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer(world, numbered(3)) is ErrorCode.NOT_ENOUGH_REPLICAS

    assert [answer(world, numbered(sequence)) for sequence in (1, 2, 3)] == [ErrorCode.NONE] * 3
    assert world.partition("a").log.log_end_offset == 4


def test_the_batch_before_may_be_one_of_several_and_the_first_of_them_a_retry(world: World) -> None:
    """What a leader appended that then died is sent again first, and lacks replicas as well: found by the chaos campaign."""
    assert [answer(world, numbered(sequence)) for sequence in (0, 1)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    world.change_partition("a", isr=[1, 2])

    assert answer(world, numbered(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [answer(world, numbered(sequence)) for sequence in (0, 1, 2)] == [ErrorCode.NONE] * 3
    assert world.partition("a").log.log_end_offset == 3


def test_the_batch_behind_one_that_came_before_this_broker_led_is_told_the_same(world: World) -> None:
    world.change_partition("a", isr=[1, 2], leader=2)
    assert answer(world, numbered(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer(world, numbered(2)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.change_partition("a", leader=1)

    assert answer(world, numbered(3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer(world, numbered(1)) is ErrorCode.NONE


def test_a_gap_that_no_refusal_has_made_is_out_of_order(world: World) -> None:
    assert answer(world, numbered(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.change_partition("a", isr=[1, 2])

    assert answer(world, numbered(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_behind_what_was_refused_and_then_taken_is_out_of_order(world: World) -> None:
    assert answer(world, numbered(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.change_partition("a", isr=[1, 2])
    assert answer(world, numbered(1)) is ErrorCode.NONE

    assert answer(world, numbered(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_another_epoch_s_refusal_is_no_cause(world: World) -> None:
    assert answer(world, numbered(1, epoch=1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.change_partition("a", isr=[1, 2])

    assert answer(world, numbered(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refusal_is_a_cause_for_a_few_seconds_only(world: World) -> None:
    """A producer that gave up its first batch must learn that the next cannot be appended."""
    assert answer(world, numbered(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.change_partition("a", isr=[1, 2])
    world.clock.advance(refused_sequences.KEPT_MS + 1)

    assert answer(world, numbered(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_is_remembered_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_sequences, "KEPT_MAX", 1)
    assert answer(world, numbered(1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer(world, batch("x", producer_id=PRODUCER + 1, producer_epoch=0, base_sequence=0)) is ErrorCode.NOT_ENOUGH_REPLICAS
    world.change_partition("a", isr=[1, 2])

    assert answer(world, numbered(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
