"""The end of a transaction, by EndTxn or by the coordinator itself: what it changes. Pure, as init_producer_id.py.

Below transaction version 2 a retry is told by its epoch alone, which is the same: it is answered as done when the state says so. From 2 on
(KIP-890) each end bumps the epoch, so that a retry has the epoch before; the answer has the producer id and epoch of the next transaction.

Source: TransactionCoordinator.endTransaction, with the table above it, and endTransactionWithTV1.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from broker.transactions.answers import Need, ProducerAnswer
from broker.transactions.state import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARED
from broker.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
)
from protocol.errors import ErrorCode


class _Verdict(Enum):
    END = "the outcome is decided"
    DONE = "a retry: it was decided before"
    FENCED = "another transaction is meant"
    INVALID = "the state does not allow it"


END, DONE, FENCED, INVALID = _Verdict.END, _Verdict.DONE, _Verdict.FENCED, _Verdict.INVALID

BELOW_2 = {
    #                 abort    commit
    EMPTY:           (INVALID, INVALID),
    ONGOING:         (END,     END),
    COMPLETE_ABORT:  (DONE,    INVALID),
    COMPLETE_COMMIT: (INVALID, DONE),
}  # fmt: skip

FROM_2 = {
    #                 abort             commit
    #                 current  retry    current  retry
    EMPTY:           (END,     FENCED,  INVALID, FENCED),
    ONGOING:         (END,     FENCED,  END,     FENCED),
    COMPLETE_ABORT:  (END,     DONE,    INVALID, INVALID),
    COMPLETE_COMMIT: (END,     INVALID, INVALID, DONE),
}  # fmt: skip

_ERRORS = {FENCED: ErrorCode.PRODUCER_FENCED, INVALID: ErrorCode.INVALID_TXN_STATE}


class EndTransaction(NamedTuple):
    """A client's request. `transaction_version` is the one whose rules it asks for."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    transaction_version: int


def decide(
    transaction: Transaction | None, request: EndTransaction, *, is_pending: bool, new_producer_id: int | None, now_ms: int
) -> Transaction | ProducerAnswer | Need:
    """The change to write, the answer if nothing is to be written, or what is lacking.

    `transaction` is committed, None for an unknown id; `is_pending` says that a write of it is in flight."""
    if request.transaction_version < EPOCH_BUMP_VERSION:
        return _decide_below_2(transaction, request, is_pending, now_ms)
    return _decide_from_2(transaction, request, is_pending, new_producer_id, now_ms)


def _decide_below_2(
    transaction: Transaction | None, request: EndTransaction, is_pending: bool, now_ms: int
) -> Transaction | ProducerAnswer:
    if transaction is None or transaction.producer_id != request.producer.producer_id:
        return ProducerAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer.producer_epoch:
        return ProducerAnswer(ErrorCode.PRODUCER_FENCED)
    if is_pending or transaction.state in PREPARED:
        return ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
    verdict = BELOW_2[transaction.state][request.is_commit]
    if verdict is DONE:
        return ProducerAnswer(ErrorCode.NONE)
    if verdict is not END:
        return ProducerAnswer(_ERRORS[verdict])
    return _prepared(transaction, request.is_commit, 0, NO_PRODUCER_ID, now_ms)


def _decide_from_2(
    transaction: Transaction | None, request: EndTransaction, is_pending: bool, new_producer_id: int | None, now_ms: int
) -> Transaction | ProducerAnswer | Need:
    if transaction is None and not is_pending:
        return ProducerAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # First, for the producer may use an id already that takes the place of its exhausted one when the transaction is complete.
    if transaction is None or is_pending or transaction.state in PREPARED:
        return ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_replaced = _is_last_of_previous(transaction, request.producer)
    if transaction.producer_id != request.producer.producer_id and not is_replaced:
        return ProducerAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_replaced or _is_one_before(transaction, request.producer)
    if not is_retry and transaction.producer_epoch != request.producer.producer_epoch:
        return ProducerAnswer(ErrorCode.PRODUCER_FENCED)
    verdict = FROM_2[transaction.state][2 * request.is_commit + is_retry]
    if verdict is DONE:
        return ProducerAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)
    if verdict is not END:
        return ProducerAnswer(_ERRORS[verdict])
    return _prepared_with_bump(transaction, request.is_commit, new_producer_id, now_ms)


def _is_one_before(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer has the epoch before the bump by the last end. Where that end did not bump it, by the rules below 2, the epoch
    before is another producer's, which was fenced: Kafka tells it that its transaction is committed."""
    has_bumped = transaction.client_transaction_version >= EPOCH_BUMP_VERSION
    return has_bumped and transaction.producer_epoch == producer.producer_epoch + 1


def _is_last_of_previous(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer is the one that was replaced because its epochs were exhausted."""
    return (
        transaction.producer_epoch == 0
        and producer.producer_epoch == LAST_CLIENT_EPOCH
        and producer.producer_id == transaction.previous_producer_id != transaction.producer_id
    )


def decide_own_abort(transaction: Transaction, *, transaction_version: int, new_producer_id: int | None, now_ms: int) -> Transaction | Need:
    """The coordinator's own abort of an ongoing transaction, which fences its producer, by the finalized transaction version."""
    if transaction_version >= EPOCH_BUMP_VERSION:
        return _prepared_with_bump(transaction, False, new_producer_id, now_ms)
    return _prepared(transaction.fenced(), False, 0, NO_PRODUCER_ID, now_ms)


def _prepared_with_bump(transaction: Transaction, is_commit: bool, new_producer_id: int | None, now_ms: int) -> Transaction | Need:
    if not transaction.is_epoch_exhausted:
        new_producer_id = NO_PRODUCER_ID
    elif new_producer_id is None:
        return Need.PRODUCER_ID
    return _prepared(transaction, is_commit, EPOCH_BUMP_VERSION, new_producer_id, now_ms)


def _prepared(transaction: Transaction, is_commit: bool, version: int, next_producer_id: int, now_ms: int) -> Transaction:
    return transaction.prepared(is_commit=is_commit, client_transaction_version=version, next_producer_id=next_producer_id, now_ms=now_ms)


def answer_to(prepared: Transaction, now_ms: int) -> ProducerAnswer:
    """The answer to the EndTxn that came to this change: from transaction version 2 on with what the next transaction begins with."""
    if prepared.client_transaction_version < EPOCH_BUMP_VERSION:
        return ProducerAnswer(ErrorCode.NONE)
    completed = prepared.completed(now_ms)
    return ProducerAnswer(ErrorCode.NONE, completed.producer_id, completed.producer_epoch)
