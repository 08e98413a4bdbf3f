from __future__ import annotations

from typing import Any

import pytest

from broker.controller.cluster_control import (
    ProducerIdBlock,
    activation_records,
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

    state = _state(*activation_records(ClusterState(), bootstrap))

    assert state.features == {"metadata.version": 25}
    assert activation_records(state, bootstrap) == []


def test_a_transaction_left_open_by_a_crash_is_aborted() -> None:
    state = _state(records.FeatureLevelRecord(name="metadata.version", feature_level=25), records.BeginTransactionRecord(name="x"))

    assert [type(record) for record in activation_records(state, [])] == [records.AbortTransactionRecord]


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
