"""A change of the ISR in flight, and what metadata does to it: echoes of our own changes, changes by others, and late answers.

Partition epochs of each test: 0 when the topic is made, 1 when the controller has committed the shrinking to broker 1.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.fetch.fetch_data import FetchIsolation, FetchTarget
from broker.replication.isr.isr_state import CommittedIsr, IsrMember, PendingExpandIsr, PendingShrinkIsr
from broker.replication.partition import Partition
from broker.replication.partition_role import PartitionRole
from protocol.errors import ErrorCode
from storage.errors import StorageError
from tests.broker.replication.test_partition import LAG_MAX_MS, high_watermark, shrink_to, three_replicas
from tests.broker.replication.world import World, batch


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The ISR is broker 1 alone, by an answer of the controller that the metadata has not told of yet."""
    world = three_replicas(tmp_path)
    shrink_to(world, 1)
    return world


def propose_broker_2(world: World) -> Partition:
    """Broker 2 catches up; that it may join is on its way to the controller."""
    partition = world.partition("a")
    world.follower_fetch(2, "a", partition.log.log_end_offset)
    assert isinstance(partition.in_sync.state, PendingExpandIsr)
    return partition


# -- metadata ----------------------------------------------------------------------------------------------------------


def test_echo_of_our_own_change_leaves_the_next_one_in_flight(world: World) -> None:
    """Kafka's makeLeader clears it: the high watermark could pass what broker 2 lacks, and the controller elect it."""
    partition = propose_broker_2(world)
    end_offset = partition.log.log_end_offset

    world.change_partition("a", isr=[1])
    assert partition.partition_epoch == 1
    world.clock.advance(LAG_MAX_MS + 1)
    world.produce("a", batch("x"))

    assert partition.in_sync.state.maximal_isr == (1, 2)
    assert high_watermark(world) == end_offset
    world.proposals.pop().accept()
    assert (partition.isr, partition.partition_epoch) == ((1, 2), 2)


def test_echo_of_our_own_change_still_tells_who_the_replicas_are(world: World) -> None:
    """The commit may have ended a reassignment."""
    partition = propose_broker_2(world)

    world.change_partition("a", isr=[1], replicas=[1, 2])

    assert list(partition.followers) == [2]
    assert isinstance(partition.in_sync.state, PendingExpandIsr)


def test_echo_of_an_earlier_change_is_ignored(world: World) -> None:
    partition = propose_broker_2(world)
    world.proposals.pop().accept()
    world.follower_fetch(3, "a", partition.log.log_end_offset)

    world.change_partition("a", isr=[1])

    assert (partition.isr, partition.partition_epoch) == ((1, 2), 2)
    assert partition.in_sync.state.maximal_isr == (1, 2, 3)


def test_echo_that_is_faster_than_the_answer_commits_the_change(world: World) -> None:
    partition = propose_broker_2(world)
    world.change_partition("a", isr=[1])

    world.change_partition("a", isr=[1, 2])
    world.proposals.pop().accept()

    assert isinstance(partition.in_sync.state, CommittedIsr)
    assert (partition.isr, partition.partition_epoch) == ((1, 2), 2)


def test_change_by_the_controller_overtakes_what_is_in_flight(world: World) -> None:
    partition = propose_broker_2(world)
    world.change_partition("a", isr=[1])

    world.change_partition("a", isr=[1, 3])
    assert isinstance(partition.in_sync.state, CommittedIsr)
    late = world.proposals.pop()
    assert not late.refuse(ErrorCode.INVALID_UPDATE_VERSION)
    late.accept(partition_epoch=7)

    assert (partition.isr, partition.partition_epoch) == ((1, 3), 2)


def test_losing_the_leadership_drops_what_is_in_flight(world: World) -> None:
    partition = propose_broker_2(world)
    world.change_partition("a", isr=[1])
    world.change_partition("a", leader=2, isr=[2])

    world.proposals.pop().accept(partition_epoch=9)

    assert (partition.role, partition.isr, partition.partition_epoch) == (PartitionRole.FOLLOWER, (), 2)


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [{"partition_epoch": 0}, {"leader_epoch": 5}])
def test_answer_of_an_older_partition_epoch_or_another_leader_epoch_commits_nothing(world: World, epochs: dict[str, int]) -> None:
    partition = propose_broker_2(world)

    world.proposals.pop().accept(**epochs)

    assert isinstance(partition.in_sync.state, PendingExpandIsr)
    assert (partition.isr, partition.partition_epoch) == ((1,), 1)


def test_answer_at_the_same_partition_epoch_says_that_nothing_had_to_change(world: World) -> None:
    partition = propose_broker_2(world)

    world.proposals.pop().accept(isr=[1], partition_epoch=1)

    assert isinstance(partition.in_sync.state, CommittedIsr)
    assert partition.isr == (1,)


@pytest.mark.parametrize("error_code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_change_that_was_certainly_not_applied_is_given_up(world: World, error_code: ErrorCode) -> None:
    partition = propose_broker_2(world)

    assert not world.proposals.pop().refuse(error_code)

    assert isinstance(partition.in_sync.state, CommittedIsr)
    world.follower_fetch(2, "a", partition.log.log_end_offset)
    assert [sent.isr for sent in world.proposals] == [(1, 2)]


@pytest.mark.parametrize(
    "error_code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_refusal_by_newer_metadata_leaves_the_change_in_flight_until_that_comes(world: World, error_code: ErrorCode) -> None:
    partition = propose_broker_2(world)

    assert not world.proposals.pop().refuse(error_code)
    world.follower_fetch(2, "a", partition.log.log_end_offset)
    world.shrink_isrs()

    assert world.proposals == []
    assert partition.in_sync.state.maximal_isr == (1, 2)


@pytest.mark.parametrize("error_code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT])
def test_change_whose_fate_is_not_known_is_wanted_again(world: World, error_code: ErrorCode) -> None:
    partition = propose_broker_2(world)

    assert world.proposals.pop().refuse(error_code)

    assert isinstance(partition.in_sync.state, PendingExpandIsr)


def test_partition_that_went_offline_asks_for_nothing_more(world: World) -> None:
    partition = propose_broker_2(world)
    world.replica_manager.fail_log_dir(partition.log.directory.parent, StorageError("gone"))

    assert not world.proposals.pop().refuse(ErrorCode.NOT_CONTROLLER)


# -- what is proposed, and what counts meanwhile -----------------------------------------------------------------------


def test_proposal_names_the_incarnations_that_are_meant(tmp_path: Path) -> None:
    """KIP-903: a broker that was restarted since its fetch must not come into the ISR by it."""
    world = World(tmp_path)
    world.register_broker(1, epoch=4)
    world.register_broker(2, epoch=8)
    world.create_topic("a", replicas=(1, 2, 3), isr=(1, 3), leader_epoch=6)
    asked = FetchTarget("a", 0, 0, 1000, log_start_offset=0)

    world.fetch_all([asked], replica_id=2, replica_epoch=8, isolation=FetchIsolation.LOG_END)

    proposal = world.proposals.pop().proposal
    assert proposal.members == (IsrMember(1, 4), IsrMember(3, -1), IsrMember(2, 8))
    assert (proposal.leader_epoch, proposal.partition_epoch, proposal.leader_recovery_state) == (6, 0, 0)
    assert (proposal.topic_id, proposal.partition) == (world.partition("a").topic_id, 0)


def test_a_fetch_that_is_refused_for_its_broker_epoch_keeps_no_segment_file_open(tmp_path: Path) -> None:
    """Its records are read before the epoch is looked at. A file that is deleted later would take its space until the broker ends."""
    world = World(tmp_path)
    world.register_broker(2, epoch=8)
    world.create_topic("a", replicas=(1, 2))
    world.produce("a", batch("x"))
    world.follower_fetch(2, "a", 1)  # the tail that is kept for followers is forgotten
    asked = FetchTarget("a", 0, 0, 1000, log_start_offset=0)
    before = world.partition("a").log.segments.active.file._references

    (read,) = world.fetch_all([asked], replica_id=2, replica_epoch=7, isolation=FetchIsolation.LOG_END)

    assert read.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.partition("a").log.segments.active.file._references == before


def test_broker_that_shuts_down_is_not_taken_into_the_isr(world: World) -> None:
    world.shut_down_broker(2)

    world.follower_fetch(2, "a", world.partition("a").log.log_end_offset)

    assert world.proposals == []


def test_minimum_isr_counts_what_is_committed_alone(tmp_path: Path) -> None:
    world = three_replicas(tmp_path, min_insync_replicas="2")
    shrink_to(world, 1)
    propose_broker_2(world)

    answers = world.produce("a", batch("x"), acks=-1)

    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_replicas_on_their_way_out_count_for_the_high_watermark(tmp_path: Path) -> None:
    world = three_replicas(tmp_path)
    world.produce("a", batch("x"))
    world.clock.advance(LAG_MAX_MS + 1)

    world.shrink_isrs()

    state = world.partition("a").in_sync.state
    assert isinstance(state, PendingShrinkIsr)
    assert (state.out_of_sync_ids, state.isr, state.maximal_isr) == ((2, 3), (1, 2, 3), (1, 2, 3))
    assert high_watermark(world) == 0


def test_high_watermark_waits_for_a_replica_that_is_about_to_join(world: World) -> None:
    """Only one change is in flight, so broker 3 cannot be proposed yet: the watermark must not run away from it meanwhile."""
    partition = propose_broker_2(world)
    end_offset = partition.log.log_end_offset
    world.follower_fetch(3, "a", end_offset)

    world.produce("a", batch("x"))
    world.follower_fetch(2, "a", end_offset + 1)
    assert high_watermark(world) == end_offset
    world.follower_fetch(3, "a", end_offset + 1)

    assert high_watermark(world) == end_offset + 1


def test_high_watermark_does_not_wait_for_a_replica_that_may_not_join(world: World) -> None:
    partition = propose_broker_2(world)
    end_offset = partition.log.log_end_offset
    world.follower_fetch(3, "a", end_offset)
    world.register_broker(3, is_fenced=True)

    world.produce("a", batch("x"))
    world.follower_fetch(2, "a", end_offset + 1)

    assert high_watermark(world) == end_offset + 1


def test_new_leader_takes_nobody_in_who_has_not_reached_its_epoch(world: World) -> None:
    """Between the high watermark it knows and the start of its epoch may lie what the leader before it acknowledged."""
    world.change_partition("a", isr=[1])
    world.change_partition("a", leader=2)
    world.change_partition("a", leader=1, isr=[1, 3])
    partition = world.partition("a")
    partition.log.append_as_leader(batch("x"), leader_epoch=partition.leader_epoch, now_ms=world.clock.now_ms())
    start_offset = partition.in_sync.epoch_start_offset
    world.proposals.clear()

    world.follower_fetch(2, "a", start_offset - 1)
    assert world.proposals == []
    world.follower_fetch(2, "a", start_offset)

    assert [sent.isr for sent in world.proposals] == [(1, 3, 2)]


# -- roles -------------------------------------------------------------------------------------------------------------


def test_role_follows_the_metadata_and_the_disk(world: World) -> None:
    partition = world.partition("a")
    roles = [partition.role]
    world.change_partition("a", isr=[1])
    world.change_partition("a", leader=2)
    roles.append(partition.role)
    world.change_partition("a", leader=-1)
    roles.append(partition.role)
    world.change_partition("a", leader=1)
    roles.append(partition.role)
    world.replica_manager.fail_log_dir(partition.log.directory.parent, StorageError("gone"))
    roles.append(partition.role)
    world.change_partition("a", leader=2)
    roles.append(partition.role)
    world.delete_topic("a")
    roles.append(partition.role)

    assert [role.name for role in roles] == ["LEADER", "FOLLOWER", "FOLLOWER", "LEADER", "OFFLINE", "OFFLINE", "DELETED"]


def test_partition_whose_disk_fails_when_it_is_to_lead_goes_offline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = world.partition("a")
    world.change_partition("a", isr=[1])
    world.change_partition("a", leader=2)

    def fail(*arguments: object) -> None:
        raise StorageError("gone")

    monkeypatch.setattr(type(partition.log), "assign_leader_epoch", fail)
    world.change_partition("a", leader=1)

    assert partition.role is PartitionRole.OFFLINE
    assert world.failed_log_dirs == [partition.log.directory.parent]
    assert [answer.error_code for answer in world.produce("a", batch("x"))] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.fetchers.fetched == {}
