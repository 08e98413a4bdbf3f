"""What a leader's partition does for transactions, beside appending their batches: verifications begin here, and markers end them.

Source: kafka.cluster.Partition.maybeStartTransactionVerification, appendRecordsToLeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.partition_role import LEADER
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.replication.partition import Partition
    from storage.markers import MarkerResult, TransactionMarker
    from storage.verification import VerificationGuard


def start_verification(
    partition: Partition, producer_id: int, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int
) -> VerificationGuard | None:
    """Returns the guard that the append of a transactional batch has to show after its coordinator was asked; None if the transaction is
    open here already. KafkaError: why this broker does not lead; INVALID_PRODUCER_EPOCH."""
    if partition.role is not LEADER:
        raise KafkaError(partition.absence_error())
    return partition.log.start_verification(
        producer_id, producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
    )


def append_markers(partition: Partition, markers: Sequence[TransactionMarker], *, now_ms: int) -> list[MarkerResult]:
    """Append the ends of transactions, each with a result of its own. The caller advances the high watermark next.

    KafkaError: NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR; NOT_ENOUGH_REPLICAS. After any of them nothing was appended. StorageError: the
    disk failed."""
    if partition.role is not LEADER:
        raise KafkaError(partition.absence_error())
    if len(partition.in_sync.state.isr) < partition.in_sync.min_isr:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    return partition.log.append_markers(markers, leader_epoch=partition.leader_epoch, now_ms=now_ms)
