"""The controller's decisions about the cluster itself: its first records, and blocks of producer ids. Pure.

Source: ActivationRecordsGenerator, ProducerIdControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import ProducerIdBlock
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    ProducerIdsRecord,
)

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1


def activation_records(state: ClusterState, bootstrap: Sequence[Any]) -> list[Any]:
    """What a new leader of the log writes first: the end of an unfinished transaction, and a new cluster's first records."""
    records: list[Any] = []
    if state.is_in_transaction:
        records.append(AbortTransactionRecord(reason="controller failover"))
    if not state.features and bootstrap:
        records += [BeginTransactionRecord(name="Bootstrap records"), *bootstrap, EndTransactionRecord()]
    return records


def producer_id_block(state: ClusterState, *, node_id: int, broker_epoch: int) -> tuple[ProducerIdBlock, list[Any]]:
    """The next block of producer ids and the record that hands it out. Raises KafkaError when there are no ids left."""
    first = state.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        )
    record = ProducerIdsRecord(broker_id=node_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE)
    return ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE), [record]
