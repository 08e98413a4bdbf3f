from __future__ import annotations

from typing import Any

import pytest

from broker.controller.cluster_control import (
    ProducerIdBlock,
    activation_records,
    election_records,
    fencing_records,
    producer_id_block,
)
from broker.lifecycle.broker_lifecycle import LocalReplicas
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from protocol.errors import KafkaError
from protocol.messages.stored import metadata_records as records
from tests.broker.metadata.room import DIRECTORY_ID, registration

TOPIC_ID = bytes(15) + b"\x01"


def _state(*changes: Any) -> ClusterState:
    state = ClusterState()
    for record in changes:
        state.replay(record)
    return state


def _partition(**fields: Any) -> list[Any]:
    made = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 3, "partition_epoch": 5} | fields
    return [records.TopicRecord(name="t", topic_id=TOPIC_ID), records.PartitionRecord(partition_id=0, topic_id=TOPIC_ID, **made)]


def _after_election(state: ClusterState, node_id: int = 1, replicas: LocalReplicas | None = None) -> Any:
    for record in election_records(state, node_id, replicas):
        state.replay(record)
    return state.topics["t"].partitions[0]


def test_a_new_cluster_starts_with_the_bootstrap_records_in_a_transaction() -> None:
    bootstrap = [records.FeatureLevelRecord(name="metadata.version", feature_level=25)]

    state = _state(*activation_records(ClusterState(), bootstrap))

    assert state.features == {"metadata.version": 25}
    assert activation_records(state, bootstrap) == []


def test_a_transaction_left_open_by_a_crash_is_aborted() -> None:
    state = _state(records.FeatureLevelRecord(name="metadata.version", feature_level=25), records.BeginTransactionRecord(name="x"))

    assert [type(record) for record in activation_records(state, [])] == [records.AbortTransactionRecord]


def test_other_brokers_of_an_older_log_are_fenced() -> None:
    state = _state(*registration(1), *registration(2), *registration(3, is_fenced=True))

    assert [record.broker_id for record in fencing_records(state, except_node_id=1)] == [2]


def test_a_restarted_leader_leads_in_a_new_epoch() -> None:
    partition = _after_election(_state(*registration(1), *_partition()))

    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 4, (1,))


def test_a_leaderless_partition_is_led_by_its_isr_member() -> None:
    """Kafka's clean stop leaves no leader."""
    partition = _after_election(_state(*registration(1), *_partition(leader=-1)))

    assert (partition.leader, partition.leader_epoch) == (1, 4)


@pytest.mark.parametrize("place", ["eligible_leader_replicas", "last_known_elr"])
def test_the_last_member_that_left_the_isr_comes_back(place: str) -> None:
    """KIP-966."""
    partition = _after_election(_state(*registration(1), *_partition(leader=-1, isr=[], replicas=[1, 2], **{place: [1]})))

    assert (partition.leader, partition.isr, partition.eligible_leader_replicas, partition.last_known_elr) == (1, (1,), (), ())


def test_a_single_replica_has_recovered_by_being_elected() -> None:
    partition = _after_election(_state(*registration(1), *_partition(leader_recovery_state=1)))

    assert partition.leader_recovery_state == 0


def test_a_partition_of_another_live_leader_is_left_alone() -> None:
    state = _state(*registration(1), *registration(2), *_partition(leader=2, replicas=[1, 2], isr=[1, 2]))

    assert election_records(state, 1) == []


def test_a_partition_of_a_dead_leader_without_this_replica_has_no_leader() -> None:
    state = _state(*registration(1), *registration(2, is_fenced=True), *_partition(leader=2, replicas=[2], isr=[2]))

    assert _after_election(state).leader == -1


def test_dead_members_leave_the_isr_of_a_new_leader() -> None:
    state = _state(*registration(1), *registration(2, is_fenced=True), *_partition(leader=2, replicas=[1, 2], isr=[2, 1]))

    assert _after_election(state).isr == (1,)


OTHER_DIRECTORY_ID = bytes(15) + b"\xee"


def _replicas(*, is_found: bool, has_offline: bool) -> LocalReplicas:
    found = {("t", 0): DIRECTORY_ID} if is_found else {}
    return LocalReplicas(found, frozenset({DIRECTORY_ID}), has_offline)


@pytest.mark.parametrize("known", [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, OTHER_DIRECTORY_ID, DIRECTORY_ID])
def test_replica_that_is_found_is_led_and_its_directory_noted(known: bytes) -> None:
    state = _state(*registration(1), *_partition(directories=[known], leader=-1))

    partition = _after_election(state, replicas=_replicas(is_found=True, has_offline=True))

    assert (partition.leader, partition.directories) == (1, (DIRECTORY_ID,))


@pytest.mark.parametrize("known", [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, OTHER_DIRECTORY_ID])
def test_replica_that_may_be_in_an_offline_directory_has_no_leader(known: bytes) -> None:
    state = _state(*registration(1), *_partition(directories=[known]))
    replicas = _replicas(is_found=False, has_offline=True)

    partition = _after_election(state, replicas=replicas)

    assert (partition.leader, partition.isr, partition.directories) == (-1, (1,), (LOST_DIRECTORY,))
    assert election_records(state, 1, replicas) == []


@pytest.mark.parametrize(("known", "has_offline"), [(DIRECTORY_ID, True), (UNASSIGNED_DIRECTORY, False)])
def test_replica_that_was_never_made_is_led(known: bytes, has_offline: bool) -> None:
    state = _state(*registration(1), *_partition(directories=[known]))

    partition = _after_election(state, replicas=_replicas(is_found=False, has_offline=has_offline))

    assert (partition.leader, partition.directories) == (1, (known,))


def test_producer_id_blocks_follow_each_other() -> None:
    state = ClusterState()

    first, handed_out = producer_id_block(state, node_id=1, broker_epoch=10)
    for record in handed_out:
        state.replay(record)
    second, _ = producer_id_block(state, node_id=1, broker_epoch=10)

    assert (first, second) == (ProducerIdBlock(0, 1000), ProducerIdBlock(1000, 1000))


def test_the_last_producer_ids_are_not_handed_out_twice() -> None:
    state = _state(records.ProducerIdsRecord(next_producer_id=2**63 - 500))

    with pytest.raises(KafkaError):
        producer_id_block(state, node_id=1, broker_epoch=10)
