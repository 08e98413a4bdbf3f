"""A partition with three replicas, led by broker 1; the fetches of followers 2 and 3 are simulated.

Each test appends, lets followers fetch (a fetch from offset N shows that everything below N is on that follower), and looks at
the high watermark, the ISR proposals to the controller, and what producers are told.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.replication.fetch.fetch_data import FetchIsolation, FetchTarget
from protocol.errors import ErrorCode
from tests.broker.replication.world import World, batch, values

LAG_MAX_MS = 30_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_replicas(tmp_path)


def three_replicas(directory: Path, **settings: str) -> World:
    world = World(directory)
    world.clock.advance(1_000_000)
    world.create_topic("a", replicas=(1, 2, 3), **settings)
    return world


def high_watermark(world: World) -> int:
    return world.partition("a").log.high_watermark


def error_of(answers: list[Any]) -> ErrorCode:
    assert len(answers) == 1, "the request still waits"
    return answers[0].error_code


def shrink_to(world: World, *in_sync: int) -> None:
    """Let everyone but `in_sync` fall behind, and the controller accept that."""
    world.produce("a", batch("lag"))
    world.clock.advance(LAG_MAX_MS + 1)
    for node_id in in_sync:
        if node_id != 1:
            world.follower_fetch(node_id, "a", world.partition("a").log.log_end_offset)
    world.shrink_isrs()
    world.proposals.pop().accept()
    assert world.partition("a").isr == in_sync


# -- acks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_zero_and_one_do_not_wait_for_followers(world: World, acks: int) -> None:
    answers = world.produce("a", batch("x"), acks=acks)

    assert error_of(answers) is ErrorCode.NONE
    assert high_watermark(world) == 0


def test_acks_all_waits_for_every_in_sync_replica(world: World) -> None:
    answers = world.produce("a", batch("x", "y"), acks=-1)

    world.follower_fetch(2, "a", 2)
    assert answers == [] and high_watermark(world) == 0
    world.follower_fetch(3, "a", 1)
    assert answers == [] and high_watermark(world) == 1
    world.follower_fetch(3, "a", 2)

    assert error_of(answers) is ErrorCode.NONE
    assert answers[0].base_offset == 0
    assert high_watermark(world) == 2


def test_acks_all_times_out_when_a_follower_stays_away(world: World) -> None:
    answers = world.produce("a", batch("x"), acks=-1, timeout_ms=1000)
    world.follower_fetch(2, "a", 1)

    world.clock.advance(1000)

    assert error_of(answers) is ErrorCode.REQUEST_TIMED_OUT
    assert answers[0].base_offset == -1


def test_each_partition_of_a_request_is_settled_on_its_own(world: World) -> None:
    world.create_topic("b", replicas=(1, 2))
    answers: list[Any] = []
    world.replica_manager.append([("a", 0, batch("x")), ("b", 0, batch("x"))], acks=-1, timeout_ms=1000, on_done=answers.extend)

    world.follower_fetch(2, "b", 1)
    world.clock.advance(1000)

    assert [answer.error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


def test_duplicate_waits_for_the_original_to_be_replicated(world: World) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    world.produce("a", batch("x", **fields), acks=-1)

    again = world.produce("a", batch("x", **fields), acks=-1)
    assert again == []
    world.follower_fetch(2, "a", 1)
    world.follower_fetch(3, "a", 1)

    assert (error_of(again), again[0].base_offset) == (ErrorCode.NONE, 0)


# -- minimum ISR -----------------------------------------------------------------------------------------------------


def test_acks_all_is_refused_below_the_minimum_isr_and_nothing_is_appended(tmp_path: Path) -> None:
    world = three_replicas(tmp_path, min_insync_replicas="2")
    shrink_to(world, 1)
    end_offset = world.partition("a").log.log_end_offset

    all_in_sync = world.produce("a", batch("x"), acks=-1)
    leader_only = world.produce("a", batch("y"), acks=1)

    assert error_of(all_in_sync) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert error_of(leader_only) is ErrorCode.NONE
    assert world.partition("a").log.log_end_offset == end_offset + 1


def test_high_watermark_does_not_move_below_the_minimum_isr(tmp_path: Path) -> None:
    """KIP-966: what only this broker has must not become visible here and be lost with it. It moves again afterwards."""
    world = three_replicas(tmp_path, min_insync_replicas="2")
    shrink_to(world, 1)
    world.produce("a", batch("x"), acks=1)
    end_offset = world.partition("a").log.log_end_offset
    assert high_watermark(world) == 0

    world.follower_fetch(2, "a", end_offset)
    assert high_watermark(world) == 0
    world.proposals.pop().accept()

    assert world.partition("a").isr == (1, 2)
    assert high_watermark(world) == end_offset


def test_isr_shrunk_below_the_minimum_after_the_append_ends_in_a_timeout(tmp_path: Path) -> None:
    """Not in NOT_ENOUGH_REPLICAS_AFTER_APPEND: the high watermark, which that waits for, is frozen."""
    world = three_replicas(tmp_path, min_insync_replicas="2")
    answers = world.produce("a", batch("x"), acks=-1, timeout_ms=2 * LAG_MAX_MS)
    world.clock.advance(LAG_MAX_MS + 1)
    world.shrink_isrs()
    world.proposals.pop().accept()
    assert answers == []

    world.clock.advance(LAG_MAX_MS)

    assert error_of(answers) is ErrorCode.REQUEST_TIMED_OUT


def test_isr_found_too_small_once_the_offset_is_reached_is_not_enough_replicas_after_append(tmp_path: Path) -> None:
    world = three_replicas(tmp_path, min_insync_replicas="2")
    answers = world.produce("a", batch("x"), acks=-1)
    partition = world.partition("a")

    partition.log.set_high_watermark(1)
    world.set_topic_config("a", "min.insync.replicas", "3")
    assert partition.in_sync.state.maximal_isr == (1, 2, 3)
    assert error_of(answers) is ErrorCode.NONE
    again = world.produce("a", batch("y"), acks=-1)
    partition.log.set_high_watermark(2)
    world.change_partition("a", isr=[1])

    assert error_of(again) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_minimum_isr_is_bounded_by_the_number_of_replicas(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", min_insync_replicas="3")

    assert error_of(world.produce("a", batch("x"), acks=-1)) is ErrorCode.NONE


# -- the ISR ---------------------------------------------------------------------------------------------------------


def test_follower_that_falls_behind_is_dropped_only_once_the_controller_agreed(world: World) -> None:
    answers = world.produce("a", batch("x"), acks=-1, timeout_ms=10 * LAG_MAX_MS)
    world.clock.advance(LAG_MAX_MS)
    world.shrink_isrs()
    assert world.proposals == []
    world.follower_fetch(2, "a", 1)
    world.clock.advance(1)
    world.shrink_isrs()

    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]
    assert high_watermark(world) == 0
    world.proposals.pop().accept()

    assert error_of(answers) is ErrorCode.NONE
    assert high_watermark(world) == 1


def test_idle_follower_that_is_caught_up_stays_in_the_isr(world: World) -> None:
    world.produce("a", batch("x"))
    world.follower_fetch(2, "a", 1)
    world.follower_fetch(3, "a", 1)

    world.clock.advance(10 * LAG_MAX_MS)
    world.shrink_isrs()

    assert world.proposals == []


def test_follower_that_reaches_where_the_leader_was_counts_as_caught_up_then(world: World) -> None:
    """Under a steady load a follower is never level; it must not be dropped for that."""
    for end_offset in range(1, 8):
        world.produce("a", batch("x"))
        for node_id in (2, 3):
            world.follower_fetch(node_id, "a", end_offset - 1)
        world.clock.advance(LAG_MAX_MS // 2)
        world.shrink_isrs()

    assert world.proposals == []


def test_returning_follower_counts_for_the_high_watermark_as_soon_as_it_is_proposed(world: World) -> None:
    """Were it counted only once accepted, the controller could elect it while we acknowledge what it lacks."""
    shrink_to(world, 1)
    end_offset = world.partition("a").log.log_end_offset
    world.follower_fetch(2, "a", end_offset)
    assert [proposal.isr for proposal in world.proposals] == [(1, 2)]

    answers = world.produce("a", batch("x"), acks=-1, timeout_ms=10 * LAG_MAX_MS)
    world.clock.advance(LAG_MAX_MS + 1)
    world.produce("a", batch("y"))
    assert answers == []
    world.follower_fetch(2, "a", end_offset + 1)

    assert error_of(answers) is ErrorCode.NONE
    assert world.partition("a").isr == (1,)


@pytest.mark.parametrize("broker", [{"is_fenced": True}, {"epoch": 8}])
def test_follower_that_is_fenced_or_was_restarted_is_not_taken_into_the_isr(world: World, broker: dict[str, Any]) -> None:
    shrink_to(world, 1)
    world.register_broker(2, **broker)
    asked = FetchTarget("a", 0, world.partition("a").log.log_end_offset, 1000, log_start_offset=0)

    world.fetch_all([asked], replica_id=2, replica_epoch=0, isolation=FetchIsolation.LOG_END)

    assert world.proposals == []


def test_follower_behind_the_high_watermark_is_not_taken_into_the_isr(world: World) -> None:
    shrink_to(world, 1)
    world.produce("a", batch("x"))
    assert high_watermark(world) == 2

    world.follower_fetch(2, "a", 1)

    assert world.proposals == []


# -- leadership ------------------------------------------------------------------------------------------------------


def test_leader_change_fails_parked_produces(world: World) -> None:
    answers = world.produce("a", batch("x"), acks=-1)

    world.change_partition("a", leader=2)

    assert error_of(answers) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(world.produce("a", batch("y"))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_new_epoch_begins_at_the_log_end_before_any_record(world: World) -> None:
    world.produce("a", batch("x", "y"))

    world.change_partition("a", leader=2)
    world.change_partition("a", leader=1)

    partition = world.partition("a")
    assert partition.leader_epoch == 2
    assert partition.in_sync.epoch_start_offset == 2
    assert partition.end_offset_for_epoch(-1, 2).end_offset == 2
    assert partition.end_offset_for_epoch(-1, 0).end_offset == 2


def test_new_leader_knows_nothing_of_its_followers(world: World) -> None:
    world.produce("a", batch("x"))
    world.follower_fetch(2, "a", 1)
    world.follower_fetch(3, "a", 1)
    world.change_partition("a", leader=2)
    world.change_partition("a", leader=1)

    answers = world.produce("a", batch("y"), acks=-1)

    assert answers == [] and high_watermark(world) == 1
    assert all(follower.log_end_offset == -1 for follower in world.partition("a").followers.values())


def test_fetch_of_another_epoch_is_fenced_and_not_noted(world: World) -> None:
    world.produce("a", batch("x"))
    world.change_partition("a", leader=2)
    world.change_partition("a", leader=1)

    older = world.follower_fetch(2, "a", 1, epoch=0)
    newer = world.follower_fetch(3, "a", 1, epoch=9)

    assert older[0].error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert newer[0].error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert high_watermark(world) == 0


def test_diverging_follower_is_told_where_to_cut_and_not_noted(world: World) -> None:
    world.produce("a", batch("x"))
    world.change_partition("a", leader=2)
    world.change_partition("a", leader=1)
    world.produce("a", batch("y"))

    reads = world.follower_fetch(2, "a", 2, epoch=2, last_fetched_epoch=1)

    diverging = reads[0].diverging_epoch
    assert diverging is not None and (diverging.epoch, diverging.end_offset) == (0, 1)
    assert len(reads[0].records) == 0
    assert world.partition("a").followers[2].log_end_offset == -1


def test_follower_reads_up_to_the_log_end_and_a_consumer_up_to_the_high_watermark(world: World) -> None:
    world.produce("a", batch("x"))

    assert values(world.follower_fetch(2, "a", 0)[0].records) == ["x"]
    assert values(world.fetch("a", 0)[0].records) == []


def test_stranger_is_no_replica(world: World) -> None:
    assert world.follower_fetch(9, "a", 0)[0].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.follower_fetch(9, "a", 0, epoch=0)[0].error_code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_followers_wake_on_append_and_consumers_on_the_high_watermark(world: World) -> None:
    consumer = world.fetch("a", 0, max_wait_ms=500)
    follower: list[Any] = world.fetch_all([FetchTarget("a", 0, 0, 1000)], replica_id=2, isolation=FetchIsolation.LOG_END, max_wait_ms=500)

    world.produce("a", batch("x"))
    assert consumer == [] and values(follower[0].records) == ["x"]
    world.follower_fetch(2, "a", 1)
    world.follower_fetch(3, "a", 1)

    assert values(consumer[0].records) == ["x"]


def test_reread_of_a_parked_fetch_is_no_new_position_of_the_follower(world: World) -> None:
    world.produce("a", batch("x"))
    world.fetch_all([FetchTarget("a", 0, 1, 1000)], replica_id=2, isolation=FetchIsolation.LOG_END, max_wait_ms=500)
    follower = world.partition("a").followers[2]
    fetched_ms = follower.last_fetch_ms

    world.clock.advance(100)
    world.produce("a", batch("y"))

    assert (follower.log_end_offset, follower.last_fetch_ms) == (1, fetched_ms)


def test_older_metadata_is_ignored(world: World) -> None:
    image = world.partition("a")
    old = world.metadata.topics["a"].partitions[0]
    world.change_partition("a", isr=[1, 2])

    image.make_leader(old, now_ms=0)

    assert image.isr == (1, 2)


def test_metadata_that_is_older_than_the_log_makes_no_leader_and_costs_no_epoch(world: World) -> None:
    """Kafka leads, and cuts the later epochs out of the cache by which followers find where their logs part."""
    world.produce("a", batch("x"))
    for leader in (2, 1, 2, 1):
        world.change_partition("a", leader=leader)
    world.produce("a", batch("y"))
    known = world.partition("a").log.leader_epochs.entries()
    assert [entry.epoch for entry in known] == [0, 4]
    partition = world.partition("a")
    image = world.metadata.topics["a"].partitions[0]

    partition.make_leader(replace(image, leader_epoch=3, partition_epoch=90), now_ms=0)

    assert not partition.is_leader
    assert partition.log.leader_epochs.entries() == known
    assert error_of(world.produce("a", batch("z"))) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.make_leader(replace(image, leader_epoch=5, partition_epoch=91), now_ms=0)
    assert partition.is_leader and partition.leader_epoch == 5
