"""InitProducerId for a transactional id: what it changes. Pure: the shard writes what is decided, and answers when that is committed.

A producer that begins gets an epoch above all before it, which fences them (KIP-98). A producer that names the id and epoch that it has
goes on after an error, unless another one was initialized since (KIP-360). An ongoing transaction is aborted first; the client tries
again until the abort is complete. An exhausted epoch is followed by epoch 0 of a new producer id.

Source: TransactionCoordinator.handleInitProducerId and prepareInitProducerIdTransit; TransactionMetadata.prepareIncrementProducerEpoch,
prepareProducerIdRotation and prepareFenceProducerEpoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.transactions.answers import Need
from broker.transactions.end_transaction import decide_own_abort
from broker.transactions.state import ONGOING, PREPARED
from broker.transactions.transaction import (
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    Transaction,
    new_transaction,
)
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.transactions.settings import TransactionSettings


class InitProducerId(NamedTuple):
    """A client's request. `expected` is what it has, or None. `enable_two_phase_commit` and `keep_prepared` are KIP-939's."""

    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False

    @property
    def resolved_timeout_ms(self) -> int:
        return NO_TIMEOUT_MS if self.enable_two_phase_commit else self.timeout_ms


def check_request(transactional_id: str, request: InitProducerId, settings: TransactionSettings) -> ErrorCode:
    """What is refused whatever the state is; NONE otherwise."""
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.enable_two_phase_commit and not settings.is_two_phase_commit_enabled:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared:
        return ErrorCode.UNSUPPORTED_VERSION  # as in Kafka 4.3, which declares the field only
    if not request.enable_two_phase_commit and not 0 < request.timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def decide(
    transaction: Transaction | None,
    request: InitProducerId,
    *,
    is_pending: bool,
    transaction_version: int,
    new_producer_id: int | None,
    now_ms: int,
) -> Transaction | ErrorCode | Need:
    """The change to write, the error to answer, or what is lacking.

    `transaction` is committed, None for an unknown id; `is_pending` says that a write of it is in flight. A change to PrepareAbort is the
    abort of what is ongoing: it is answered with CONCURRENT_TRANSACTIONS."""
    if is_pending or (transaction is not None and transaction.state in PREPARED):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction is None:
        if new_producer_id is None:
            return Need.PRODUCER_ID
        transaction = new_transaction(new_producer_id, request.resolved_timeout_ms, now_ms)
    if request.expected is not None and not _may_go_on(transaction, request.expected):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state is ONGOING:
        # The epoch of the abort is not told to anyone: the client tries again, and gets one above it.
        return decide_own_abort(transaction, transaction_version=transaction_version, new_producer_id=new_producer_id, now_ms=now_ms)
    return _initialize(transaction, request, new_producer_id, now_ms)


def _may_go_on(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Whether the producer id is the right one: the present one; any, for an id that was unknown, where the producer recovers from that; or
    the one before with its last epoch, in a retry of what replaced it."""
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and expected.producer_epoch >= LAST_CLIENT_EPOCH)
    )


def _initialize(
    transaction: Transaction, request: InitProducerId, new_producer_id: int | None, now_ms: int
) -> Transaction | ErrorCode | Need:
    expected = request.expected
    epoch = transaction.producer_epoch
    if expected is not None and NO_PRODUCER_EPOCH != epoch != expected.producer_epoch:
        if expected.producer_epoch != transaction.last_producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        # A retry of a request that succeeded: another producer's request would have set the last epoch to -1.
        producer = ProducerIdAndEpoch(transaction.producer_id, epoch)
        return transaction.with_producer(producer, transaction.last_producer_epoch, request.resolved_timeout_ms, now_ms)
    last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
    if transaction.is_epoch_exhausted:
        if new_producer_id is None:
            return Need.PRODUCER_ID
        producer = ProducerIdAndEpoch(new_producer_id, 0)
    else:
        producer = ProducerIdAndEpoch(transaction.producer_id, epoch + 1)
    return transaction.with_producer(producer, last_epoch, request.resolved_timeout_ms, now_ms)
