from __future__ import annotations

from typing import Any

import pytest

from broker.controller.cluster_control import (
    ProducerIdBlock,
    activation_records,
    elr_safety_records,
    producer_id_block,
)
from broker.metadata.cluster_state import ClusterState
from protocol.errors import KafkaError
from protocol.messages.stored import metadata_records as records

TOPIC_ID = bytes(15) + b"\x01"


def _state(*changes: Any) -> ClusterState:
    state = ClusterState()
    for record in changes:
        state.replay(record)
    return state


def test_a_new_cluster_starts_with_the_bootstrap_records_in_a_transaction() -> None:
    bootstrap = [records.FeatureLevelRecord(name="metadata.version", feature_level=25)]

    state = _state(*activation_records(ClusterState(), bootstrap, 1))

    assert state.features == {"metadata.version": 25}
    assert activation_records(state, bootstrap, 1) == []


def test_a_new_cluster_with_eligible_leaders_has_one_min_isr_for_all_brokers() -> None:
    """KIP-966: where brokers differ, nobody knows who may lead."""
    features = {"metadata.version": 25, "eligible.leader.replicas.version": 1}
    bootstrap = [records.FeatureLevelRecord(name=name, feature_level=level) for name, level in features.items()]

    state = _state(*activation_records(ClusterState(), bootstrap, 2))

    assert state.features == features
    assert state.broker_overrides("") == {"min.insync.replicas": "2"}


def test_a_brokers_own_min_isr_goes_when_eligible_leaders_come() -> None:
    state = _state(
        records.ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="3"),
        records.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
    )

    for record in elr_safety_records(state, 1):
        state.replay(record)

    assert (state.broker_overrides("1"), state.broker_overrides("")) == ({}, {"min.insync.replicas": "2"})
    assert elr_safety_records(state, 1) == []


def test_a_transaction_left_open_by_a_crash_is_aborted() -> None:
    state = _state(records.FeatureLevelRecord(name="metadata.version", feature_level=25), records.BeginTransactionRecord(name="x"))

    assert [type(record) for record in activation_records(state, [], 1)] == [records.AbortTransactionRecord]


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
