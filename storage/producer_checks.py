"""Whether a producer may append a batch or a marker next: its epoch, its sequence, its transaction (Kafka's ProducerAppendInfo).

Pure: nothing is changed. Each function raises the KafkaError that says why not. Called by ProducerStateManager.check_append.
"""

from __future__ import annotations

from protocol.errors import ErrorCode, KafkaError
from protocol.records import NO_PRODUCER_EPOCH, SEQUENCE_MAX, BatchHeader, EndTransactionMarker
from storage.producer_state_entry import ProducerStateEntry
from storage.verification import TransactionAppend, VerificationState

PRODUCER_EPOCH_MAX = 2**15 - 1
EPOCH_BUMP_VERSION = 2  # of transactions, from which on each one has an epoch of its own


def check_sequence(entry: ProducerStateEntry, header: BatchHeader) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER unless the batch follows the producer's last one, or begins its epoch."""
    sequence = header.base_sequence
    if header.producer_epoch != entry.producer_epoch:
        if sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {sequence}, not 0",
            )
        return
    last_sequence = entry.last_sequence
    if sequence == last_sequence + 1 or (sequence == 0 and last_sequence == SEQUENCE_MAX):
        return
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} sent sequence {sequence} after sequence {last_sequence}",
    )


def old_epoch(entry: ProducerStateEntry, producer_epoch: int) -> KafkaError:
    """The INVALID_PRODUCER_EPOCH of a batch, a marker or a question of an older epoch."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {producer_epoch} of producer {entry.producer_id} is older than its epoch {entry.producer_epoch}",
    )


def check_marker(entry: ProducerStateEntry, producer_epoch: int, marker: EndTransactionMarker | None, transaction_version: int) -> None:
    """At transaction version 2 the coordinator raises the epoch with each end, so that a marker of the epoch that the partition knows is
    late. If nothing is open it is repeated: the coordinator has not seen that it was written (KAFKA-19999). A producer that has begun in
    the last epoch of all may end there. (ProducerAppendInfo.checkProducerEpoch, checkCoordinatorEpoch)"""
    is_new = producer_epoch > entry.producer_epoch
    is_equal_allowed = (
        transaction_version < EPOCH_BUMP_VERSION or entry.current_transaction_first_offset is None or producer_epoch == PRODUCER_EPOCH_MAX
    )
    if not is_new and not (is_equal_allowed and producer_epoch == entry.producer_epoch):
        if producer_epoch < entry.producer_epoch:
            raise old_epoch(entry, producer_epoch)
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"A marker of version {transaction_version} does not raise the epoch {producer_epoch} of producer {entry.producer_id}",
        )
    if marker is not None and marker.coordinator_epoch < entry.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Coordinator epoch {marker.coordinator_epoch} for producer {entry.producer_id} is older than {entry.coordinator_epoch}",
        )


def check_verification(
    entry: ProducerStateEntry | None, header: BatchHeader, transaction: TransactionAppend | None, state: VerificationState | None
) -> None:
    """INVALID_TXN_STATE for a transactional batch in a transaction that is not open here, unless it shows the guard of `state`, which is
    the producer's verification that stands. Its epoch is checked before. (UnifiedLog.batchMissingRequiredVerification)"""
    if entry is not None and entry.has_open_transaction(header.producer_epoch):
        return
    if transaction is not None and (not transaction.is_required or (state is not None and transaction.guard is state.guard)):
        return
    raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"The batch is not part of an open transaction of producer {header.producer_id}")


def check_first_sequence(
    entry: ProducerStateEntry | None, header: BatchHeader, transaction: TransactionAppend | None, state: VerificationState | None
) -> None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER for a client's transactional batch that would leave an earlier one behind."""
    base_sequence = header.base_sequence
    if entry is None and transaction is not None and transaction.supports_epoch_bump and base_sequence != 0:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id}, which the partition does not know, sent sequence {base_sequence} instead of 0",
        )
    if state is not None and base_sequence > state.lowest_sequence:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence {base_sequence}, but {state.lowest_sequence} waits for its verification",
        )
