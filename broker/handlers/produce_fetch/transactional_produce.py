"""TransactionalProduce: what a Produce with transactional batches does before it appends them.

For each partition the log says whether the producer's transaction is open there. If it is in all of them, the batches are appended at once,
and no coordinator is asked. Otherwise the transaction's coordinator is asked once, for all other partitions (PartitionAdditions).
Until its answer comes, or for the request's timeout, the request holds the order of its connection, as a long check of its records does.

Kafka asks before anything is known of the batches but their headers. So does this; the records are checked afterwards.

Source: kafka.server.ReplicaManager.handleProduceAppend, maybeSendPartitionsToTransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from broker.replication.batch_preparation import COPIED_BYTES_MAX, size_of_copies
from broker.transactions.partition_additions import Question, operation_of_produce
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import keep
from protocol.records import BatchHeader, read_header
from storage.verification import TransactionAppend, VerificationGuard

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.loop.deferred import Deferred
    from broker.replication.delayed_produce import PartitionAppendResult
    from broker.replication.produce_path import AppendEntry, ProducePath
    from broker.transactions.partition_additions import PartitionAdditions, Refusals, SupportedOperation
    from protocol.messages.produce import ProduceRequest

RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""A producer would not try these again, or would look for new metadata. It gets NOT_ENOUGH_REPLICAS, as in Kafka; there
OPERATION_NOT_ATTEMPTED, which a coordinator answers that does not know another partition of the request yet, ends the transaction."""

Transactions = dict["PartitionAppendResult", TransactionAppend]


class TransactionalProduce:
    """See the module's docstring. Its copies of small requests that wait are COPIED_BYTES_MAX bytes at most, over all connections."""

    def __init__(self, additions: PartitionAdditions, produce_path: ProducePath, clock: Clock) -> None:
        self._additions = additions
        self._produce_path = produce_path
        self._clock = clock
        self._copied_bytes = 0

    def verify_at_once(self, request: ProduceRequest, version: int, entry: AppendEntry) -> Transactions | Deferred | None:
        """What the append of a request's only batch has to show, if that is known without waiting: its transaction is open in its
        partition, as that of most batches, or its coordinator is this broker and has added the partition.

        Otherwise the answer that the coordinator is going to give, or has given and is a refusal; or None if it was not asked. Both are
        for `verify` to judge. This is `verify` for one partition, without generators and copies: 25 µs less."""
        result = entry[0]
        header = _transactional_headers((entry,)).get(result)
        operation = operation_of_produce(version)
        supports_epoch_bump = operation.supports_epoch_bump
        is_required = self._additions.is_verification_enabled()
        if header is None or not (supports_epoch_bump or is_required):
            return None
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        try:
            guard = self._produce_path.start_verification(
                result.topic, result.partition, *producer, header.base_sequence, supports_epoch_bump=supports_epoch_bump
            )
        except KafkaError:
            return None
        if guard is not None:
            if not self._has_room((entry,)):
                return None
            assert request.transactional_id is not None
            partitions = {result.topic: {result.partition}}
            answer = self._additions.ask(Question(request.transactional_id, producer, partitions, operation, request.timeout_ms))
            if not answer.is_done or answer.value:
                return answer
        return {result: TransactionAppend(guard, supports_epoch_bump, is_required)}

    def verify(
        self, request: ProduceRequest, version: int, entries: list[AppendEntry], answer: Deferred | None = None
    ) -> Generator[Any, Any, _Verified]:
        """Returns the entries to append, and what their appends have to show, to be given to `release` afterwards. The results of the
        others have their errors. `answer` is that of `verify_at_once`.

        Yields only the Deferreds that it waits for; then the entries have been copied out of the shared receive buffer.
        INVALID_PRODUCER_ID_MAPPING: transactional batches of several producers."""
        operation = operation_of_produce(version)
        is_required = self._additions.is_verification_enabled()
        headers = _transactional_headers(entries)
        producers = {(header.producer_id, header.producer_epoch) for header in headers.values()}
        if len(producers) > 1:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID")
        verified = _Verified(entries, {result: TransactionAppend(None, operation.supports_epoch_bump, is_required) for result in headers})
        if not producers or not (operation.supports_epoch_bump or is_required):
            return verified
        producer = ProducerIdAndEpoch(*producers.pop())
        self._start(verified, headers, operation, is_required=is_required)
        if not verified.guards:
            if answer is not None:
                answer.abandon()
            return verified
        if not self._has_room(verified.entries):
            self._refuse_all(verified, ErrorCode.NOT_ENOUGH_REPLICAS, "Too many batches wait for the verification of their transactions")
            return verified
        verified.copied_bytes = size_of_copies(verified.entries)
        self._copied_bytes += verified.copied_bytes
        is_answered = False
        try:
            verified.entries = [(result, partition, keep(records)) for result, partition, records in verified.entries]  # type: ignore[arg-type]
            yield from self._ask(request, operation, producer, verified, headers, answer, is_required=is_required)
            is_answered = True
        finally:
            if not is_answered:
                self.release(verified)
        return verified

    def _has_room(self, entries: Sequence[AppendEntry]) -> bool:
        """Whether the entries may be copied. A request that is alone always may."""
        return not self._copied_bytes or self._copied_bytes + size_of_copies(entries) <= COPIED_BYTES_MAX

    def release(self, verified: _Verified) -> None:
        """The entries are appended, or never will be: their copies count no more."""
        self._copied_bytes -= verified.copied_bytes
        verified.copied_bytes = 0

    def _start(
        self,
        verified: _Verified,
        headers: dict[PartitionAppendResult, BatchHeader],
        operation: SupportedOperation,
        *,
        is_required: bool,
    ) -> None:
        """Find which partitions' coordinator has to be asked; refuse those whose log refuses."""
        verified.guards.clear()
        for entry in list(verified.entries):
            result = entry[0]
            header = headers.get(result)
            if header is None:
                continue
            try:
                guard = self._produce_path.start_verification(
                    result.topic,
                    result.partition,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    supports_epoch_bump=operation.supports_epoch_bump,
                )
            except KafkaError as error:
                self._refuse(verified, entry, error)
                continue
            verified.transactions[result] = TransactionAppend(guard, operation.supports_epoch_bump, is_required)
            if guard is not None:
                verified.guards[result] = guard

    def _ask(
        self,
        request: ProduceRequest,
        operation: SupportedOperation,
        producer: ProducerIdAndEpoch,
        verified: _Verified,
        headers: dict[PartitionAppendResult, BatchHeader],
        answer: Deferred | None,
        *,
        is_required: bool,
    ) -> Generator[Any, Any, None]:
        """Ask until the answer is another one than CONCURRENT_TRANSACTIONS, or the time for that is over. With `answer` the coordinator
        was asked once already."""
        start_ms = self._clock.monotonic_ms()
        assert request.transactional_id is not None
        while verified.guards:
            if answer is None:
                partitions: dict[str, set[int]] = {}
                for result in verified.guards:
                    partitions.setdefault(result.topic, set()).add(result.partition)
                waited_ms = self._clock.monotonic_ms() - start_ms
                timeout_ms = max(request.timeout_ms - waited_ms, 0)
                answer = self._additions.ask(Question(request.transactional_id, producer, partitions, operation, timeout_ms))
            refusals: Refusals = yield answer
            answer = None
            is_early = ErrorCode.CONCURRENT_TRANSACTIONS in refusals.values() and operation.supports_epoch_bump
            if not is_early or self._clock.monotonic_ms() - start_ms >= self._additions.settings.retry_backoff_max_ms:
                self._refuse_unverified(verified, refusals, operation)
                return
            yield self._additions.pause()
            self._start(verified, headers, operation, is_required=is_required)  # the marker may have ended what was asked

    def _refuse_unverified(self, verified: _Verified, refusals: Refusals, operation: SupportedOperation) -> None:
        for entry in list(verified.entries):
            error = refusals.get((entry[0].topic, entry[0].partition))
            if error is not None and entry[0] in verified.guards:
                self._refuse(verified, entry, _for_producer(error, operation))

    def _refuse_all(self, verified: _Verified, code: ErrorCode, message: str) -> None:
        for entry in list(verified.entries):
            self._refuse(verified, entry, KafkaError(code, message))

    def _refuse(self, verified: _Verified, entry: AppendEntry, error: KafkaError) -> None:
        verified.entries.remove(entry)
        verified.guards.pop(entry[0], None)
        self._produce_path.note_refusal(entry[0], error, entry[2], self._clock.now_ms())


class _Verified:
    """What may be appended, and what it has to show. `guards` has the results whose coordinator is asked. `copied_bytes` are counted until
    `release`."""

    __slots__ = ("copied_bytes", "entries", "guards", "transactions")

    def __init__(self, entries: Sequence[AppendEntry], transactions: Transactions) -> None:
        self.entries = list(entries)
        self.transactions = transactions
        self.copied_bytes = 0
        self.guards: dict[PartitionAppendResult, VerificationGuard] = {}


def _transactional_headers(entries: Sequence[AppendEntry]) -> dict[PartitionAppendResult, BatchHeader]:
    """The headers of the transactional batches. What cannot be read is left to the append, which refuses it."""
    headers: dict[PartitionAppendResult, BatchHeader] = {}
    for result, _, records in entries:
        try:
            header = read_header(records)  # type: ignore[arg-type]
        except DecodeError:
            continue
        if header.is_transactional and header.producer_id >= 0:
            headers[result] = header
    return headers


def _for_producer(error: ErrorCode, operation: SupportedOperation) -> KafkaError:
    """The error in the terms of a Produce."""
    if error is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(error, "Partition was not added to the transaction")
    if error in RETRIABLE or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.supports_epoch_bump):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}",
        )
    return KafkaError(error)
