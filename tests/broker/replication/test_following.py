"""Broker 1 follows broker 2: whom the fetchers are told to fetch from, and what becomes of what they bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.fetch.fetch_data import FetchIsolation, FetchTarget, PartitionRead
from broker.replication.fetcher.fetcher_control import InitialFetch
from broker.replication.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.records import ControlRecordType, build_control_batch, encode_end_transaction_value
from storage.errors import StorageError
from storage.log_results import AppendResult
from tests.broker.replication.world import World, batch, fetch_params, values


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.clock.advance(1_000_000)
    return world


def follow(world: World, *, leader_epoch: int = 3) -> Partition:
    world.create_topic("a", replicas=(1, 2, 3), leader=2, leader_epoch=leader_epoch)
    return world.partition("a")


def bring(world: World, partition: Partition, records: memoryview | None = None, *, high_watermark: int = 0, **facts: int) -> AppendResult:
    """What a fetcher does with an answer; by default one of the current leader epoch, to a fetch from the log's end."""
    return partition.append_as_follower(
        memoryview(bytearray()) if records is None else records,
        leader_epoch=facts.get("leader_epoch", partition.leader_epoch),
        fetch_offset=facts.get("fetch_offset", partition.log.log_end_offset),
        leader_high_watermark=high_watermark,
        leader_log_start_offset=facts.get("log_start_offset", 0),
        now_ms=world.clock.now_ms(),
    )


def replicated(*texts: str, base_offset: int, epoch: int) -> memoryview:
    return batch(*texts, base_offset=base_offset, partition_leader_epoch=epoch)


# -- the fetchers ------------------------------------------------------------------------------------------------------


def test_follower_without_epochs_begins_at_its_high_watermark(world: World) -> None:
    partition = follow(world)

    assert world.fetchers.fetched == {partition: InitialFetch(partition.topic_id, 2, 3, fetch_offset=0, last_fetched_epoch=-1)}


def test_leader_that_becomes_a_follower_begins_at_its_log_end(world: World) -> None:
    """The leader tells it where to cut, by the epoch of its last record."""
    world.create_topic("a", replicas=(1, 2), leader_epoch=4)
    partition = world.partition("a")
    world.produce("a", batch("x", "y"))
    assert world.fetchers.fetched == {}

    world.change_partition("a", leader=2)

    assert world.fetchers.fetched == {partition: InitialFetch(partition.topic_id, 2, 5, fetch_offset=2, last_fetched_epoch=4)}


def test_change_of_the_isr_leaves_the_fetcher_alone(world: World) -> None:
    partition = follow(world)
    before = world.fetchers.fetched[partition]

    world.change_partition("a", isr=[1, 2])

    assert world.fetchers.fetched[partition] is before


def test_new_leader_epoch_begins_anew_also_with_the_same_leader(world: World) -> None:
    partition = follow(world)
    bring(world, partition, replicated("x", base_offset=0, epoch=3))

    world.change_partition("a", leader=2)

    assert world.fetchers.fetched[partition] == InitialFetch(partition.topic_id, 2, 4, fetch_offset=1, last_fetched_epoch=3)


def test_follower_without_a_leader_fetches_nothing(world: World) -> None:
    follow(world)

    world.change_partition("a", leader=-1)

    assert world.fetchers.fetched == {}


def test_follower_that_becomes_leader_fetches_no_more(world: World) -> None:
    follow(world)

    world.change_partition("a", leader=1)

    assert world.fetchers.fetched == {}


def test_deleted_moved_and_offline_followers_fetch_no_more(world: World) -> None:
    follow(world)
    world.create_topic("b", replicas=(1, 2), leader=2)
    world.create_topic("c", replicas=(1, 2), leader=2)
    assert len(world.fetchers.fetched) == 3

    world.delete_topic("a")
    world.change_partition("b", replicas=[2, 3], isr=[2])
    world.replica_manager.fail_log_dir(world.partition("c").log.directory.parent, StorageError("gone"))

    assert world.fetchers.fetched == {}


# -- what they bring ---------------------------------------------------------------------------------------------------


def test_follower_takes_records_and_their_epoch(world: World) -> None:
    partition = follow(world)

    appended = bring(world, partition, replicated("x", "y", base_offset=0, epoch=1))
    bring(world, partition, replicated("z", base_offset=2, epoch=3))

    assert (appended.base_offset, appended.last_offset, partition.log.log_end_offset) == (0, 1, 3)
    assert partition.log.leader_epochs.latest_epoch == 3


@pytest.mark.parametrize(("leaders", "own"), [(0, 0), (1, 1), (9, 2)])
def test_high_watermark_is_the_leader_s_within_the_own_log(world: World, leaders: int, own: int) -> None:
    partition = follow(world)

    bring(world, partition, replicated("x", "y", base_offset=0, epoch=3), high_watermark=leaders)

    assert partition.log.high_watermark == own


def test_answer_without_records_moves_the_high_watermark_and_wakes_a_reader(world: World) -> None:
    """A consumer in this broker's rack reads from it (KIP-392)."""
    partition = follow(world)
    bring(world, partition, replicated("x", base_offset=0, epoch=3))
    waiting = world.fetch_all([FetchTarget("a", 0, 0, 1000)], fetch_only_leader=False, max_wait_ms=500)
    assert waiting == []

    bring(world, partition, high_watermark=1)

    assert values(waiting[0].records) == ["x"]


def test_follower_tells_its_readers_of_aborted_transactions(world: World) -> None:
    """Its own index names them, and its last stable offset is held by what is open; nothing stays open of a read that failed."""
    partition = follow(world)
    fields = {"partition_leader_epoch": 3, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    value = encode_end_transaction_value(0)
    marker = build_control_batch(
        ControlRecordType.ABORT, value, timestamp=0, base_offset=2, partition_leader_epoch=3, producer_id=7, producer_epoch=0
    )
    for data in (batch("x", base_offset=0, producer_id=7, **fields), batch("y", base_offset=1, producer_id=8, **fields), marker):
        bring(world, partition, memoryview(data), high_watermark=3)

    def read() -> list[PartitionRead]:
        return world.fetch_all([FetchTarget("a", 0, 0, 1000)], fetch_only_leader=False, isolation=FetchIsolation.TXN_COMMITTED)

    (found,) = read()
    assert values(found.records) == ["x"]
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in found.aborted_transactions or ()] == [(7, 0, 2)]
    assert found.last_stable_offset == 1

    references = partition.log.segments.active.file._references
    index = partition.log.segments.active.indexes.transaction_index
    index.close()
    index.path.write_bytes(b"")
    with pytest.raises(StorageError):
        partition.read(
            FetchTarget("a", 0, 0, 1000), fetch_params(fetch_only_leader=False, isolation=FetchIsolation.TXN_COMMITTED), 1000, True
        )
    assert partition.log.segments.active.file._references == references


def test_log_start_follows_the_leader_s(world: World) -> None:
    partition = follow(world)
    bring(world, partition, replicated("x", "y", base_offset=0, epoch=3), high_watermark=1)

    bring(world, partition, high_watermark=1, log_start_offset=1)
    assert partition.log.log_start_offset == 1
    bring(world, partition, high_watermark=1, log_start_offset=2)

    assert partition.log.log_start_offset == 1, "not above the high watermark"


@pytest.mark.parametrize(("leader_epoch", "error_code"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_answer_of_another_leader_epoch_changes_nothing(world: World, leader_epoch: int, error_code: ErrorCode) -> None:
    partition = follow(world)

    with pytest.raises(KafkaError) as refused:
        bring(world, partition, replicated("x", base_offset=0, epoch=2), high_watermark=1, leader_epoch=leader_epoch)

    assert refused.value.code is error_code
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (0, 0)


def test_answer_that_comes_when_this_broker_leads_changes_nothing(world: World) -> None:
    partition = follow(world)
    world.change_partition("a", leader=1)

    with pytest.raises(KafkaError) as refused:
        bring(world, partition, replicated("x", base_offset=0, epoch=3))

    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 0


def test_answer_to_another_fetch_than_the_last_changes_nothing(world: World) -> None:
    partition = follow(world)
    bring(world, partition, replicated("x", base_offset=0, epoch=3))

    with pytest.raises(KafkaError) as refused:
        bring(world, partition, replicated("x", base_offset=0, epoch=3), high_watermark=1, fetch_offset=0)

    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)


def test_batches_of_a_newer_leader_than_was_asked_are_left_out(world: World) -> None:
    """KAFKA-18723: the answer may hold what a later leader wrote, at offsets that this epoch's leader gives to something else."""
    partition = follow(world)
    records = memoryview(bytearray(bytes(replicated("x", base_offset=0, epoch=3)) + bytes(replicated("y", base_offset=1, epoch=4))))

    bring(world, partition, records)

    assert partition.log.log_end_offset == 1


# -- what a leader notes of a follower's fetch -------------------------------------------------------------------------


def test_fetch_of_an_earlier_leader_epoch_is_not_noted(world: World) -> None:
    world.create_topic("a", replicas=(1, 2), leader_epoch=5)
    partition = world.partition("a")
    facts = {"fetch_offset": 0, "log_start_offset": 0, "leader_end_offset": 0, "broker_epoch": -1, "now_ms": world.clock.monotonic_ms()}

    with pytest.raises(KafkaError) as refused:
        partition.update_follower(2, current_leader_epoch=4, **facts)

    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.followers[2].log_end_offset == -1
