"""The transactional ids of one partition of `__transaction_state` (Kafka's TransactionCoordinator and TransactionStateManager): the state
machine of a CoordinatorRuntime's Shard.

Operations ask a pure decision (init_producer_id.py, add_partitions.py, end_transaction.py) what changes, write that change, and answer
when it is committed. `replay` alone changes the ids.

What leaves the coordinator because of a record waits until the record is committed, after a load too: an answer, and the markers of a
transaction whose outcome is decided. A later leader may not have an uncommitted record, and would decide otherwise: the transaction would
be torn. For the same reason timeouts and expiry leave an id alone while a write of it is in flight. For clients that is what Kafka calls
a pending state: CONCURRENT_TRANSACTIONS.

    decided --PREPARE is committed--> markers are sent --all are written--> COMPLETE is written --> additions that wait go on

Owns the ids, and the requests that wait for the end of a transaction. Only the coordinator calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.transactions import add_partitions, end_transaction, init_producer_id
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.answers import Need, ProducerAnswer
from broker.transactions.descriptions import TransactionDescription, described
from broker.transactions.end_transaction import EndTransaction
from broker.transactions.init_producer_id import InitProducerId
from broker.transactions.state import PREPARED
from broker.transactions.stored_transaction import record_version, without_tags
from broker.transactions.transaction import ProducerIdAndEpoch, Transaction
from broker.transactions.transaction_table import TransactionTable
from broker.transactions.waiting_additions import Answer, WaitingAdditions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.transaction_records import TransactionLogKey

if TYPE_CHECKING:
    from broker.coordination.shard import Shard
    from broker.loop.clock import Clock
    from broker.observability.limited_log import LimitedLog
    from broker.transactions.collaborators import MarkerSender, NextProducerId
    from broker.transactions.settings import TransactionSettings

TOMBSTONES_PER_BATCH = 500
TOMBSTONE_BYTES_PER_BATCH = 16 * 1024
"""Of ids in one append of tombstones, unless one alone has more: far below any max.message.bytes that holds a transaction's record."""
TOMBSTONE_BATCHES_IN_FLIGHT_MAX = 8

COMPLETE_TIMER = "complete"
"""The purpose of the timers of completions that are tried again."""

OnAnswer = Callable[[ProducerAnswer], None]


def _ignore(error: ErrorCode) -> None:
    """For a write of the coordinator's own, for which no request waits."""


class TransactionCoordinatorShard:
    """See the module's docstring. `shard` is what it lives in; `transaction_version` is the finalized one."""

    def __init__(
        self,
        shard: Shard[TransactionCoordinatorShard],
        clock: Clock,
        settings: TransactionSettings,
        next_producer_id: NextProducerId,
        marker_sender: MarkerSender,
        transaction_version: Callable[[], int],
        limited_log: LimitedLog,
    ) -> None:
        self._shard = shard
        self._clock = clock
        self._settings = settings
        self._next_producer_id = next_producer_id
        self._marker_sender = marker_sender
        self._transaction_version = transaction_version
        self._limited_log = limited_log
        self._waiting = WaitingAdditions(clock)
        self._tombstone_batches_in_flight = 0
        self.has_more_to_expire = False
        self.table = TransactionTable(shard.timeline)

    # Life.

    def replay(self, key: TransactionLogKey, value: Transaction | None, producer_id: int) -> None:
        if value is None:
            self.table.remove(key.transactional_id)
        else:
            self.table.put(key.transactional_id, value)

    def replay_end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """No record here is part of a transaction."""

    def on_loaded(self) -> None:
        """Go on with the transactions whose outcome is decided, when all that was read is committed."""
        prepared = [
            (transactional_id, transaction)
            for transactional_id in self.table.open_ids()
            if (transaction := self.table.find(transactional_id)) is not None and transaction.state in PREPARED
        ]
        if prepared:
            self._shard.when_committed(partial(self._resume, prepared))

    def _resume(self, prepared: list[tuple[str, Transaction]], error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            return
        for transactional_id, transaction in prepared:
            self._send_markers(transactional_id, transaction)

    def on_unloaded(self) -> None:
        self._marker_sender.forget(self._shard.partition, self._shard.leader_epoch)
        self._waiting.refuse_all(ErrorCode.NOT_COORDINATOR)

    # What clients and brokers ask.

    def init_producer_id(self, transactional_id: str, request: InitProducerId, on_answer: OnAnswer) -> None:
        """Give the producer an epoch that fences all before it."""
        error = init_producer_id.check_request(transactional_id, request, self._settings)
        if error is ErrorCode.NONE:
            self._init_producer_id(transactional_id, request, on_answer, None)
        else:
            on_answer(ProducerAnswer(error))

    def _init_producer_id(self, transactional_id: str, request: InitProducerId, on_answer: OnAnswer, new_producer_id: int | None) -> None:
        change = init_producer_id.decide(
            self.table.find_committed(transactional_id),
            request,
            is_pending=not self.table.is_committed(transactional_id),
            transaction_version=self._transaction_version(),
            new_producer_id=new_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(change, Need):
            self._with_producer_id(partial(self._init_producer_id, transactional_id, request, on_answer), on_answer)
        elif isinstance(change, ErrorCode):
            on_answer(ProducerAnswer(change))
        elif change.state in PREPARED:
            self._write_outcome(transactional_id, change, on_answer, ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
        else:
            answer = ProducerAnswer(ErrorCode.NONE, change.producer_id, change.producer_epoch)
            self._write(transactional_id, change, _answering(on_answer, answer))

    def add_partitions(self, transactional_id: str, request: AddPartitions, timeout_ms: float, on_answer: Answer) -> None:
        """Add partitions to the producer's transaction, which begins with its first ones. Waits for the end of the transaction before for
        `timeout_ms` at most."""
        if not transactional_id:
            on_answer(ErrorCode.INVALID_REQUEST)
            return
        change = add_partitions.decide(
            self.table.find(transactional_id),
            request,
            is_pending=not self.table.is_committed(transactional_id),
            now_ms=self._clock.now_ms(),
        )
        if isinstance(change, Need):
            self._waiting.add(transactional_id, request, timeout_ms, on_answer)
        elif isinstance(change, Transaction):
            self._write(transactional_id, change, on_answer)
        elif change is ErrorCode.NONE:
            self._shard.write(CoordinatorResult([], on_answer))  # when what it was decided on is committed
        else:
            on_answer(change)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Mapping[str, Collection[int]]
    ) -> ErrorCode | dict[str, dict[int, ErrorCode]]:
        """For each partition whether it is part of the producer's transaction, or one error for all."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return add_partitions.verify(self.table.find_committed(transactional_id), producer, partitions)

    def end_transaction(self, transactional_id: str, request: EndTransaction, on_answer: OnAnswer) -> None:
        """Commit or abort. Answered when the outcome is committed, before the markers are written."""
        if not transactional_id:
            on_answer(ProducerAnswer(ErrorCode.INVALID_REQUEST))
            return
        self._end_transaction(transactional_id, request, on_answer, None)

    def _end_transaction(self, transactional_id: str, request: EndTransaction, on_answer: OnAnswer, new_producer_id: int | None) -> None:
        change = end_transaction.decide(
            self.table.find_committed(transactional_id),
            request,
            is_pending=not self.table.is_committed(transactional_id),
            new_producer_id=new_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(change, Need):
            self._with_producer_id(partial(self._end_transaction, transactional_id, request, on_answer), on_answer)
        elif isinstance(change, ProducerAnswer):
            on_answer(change)
        else:
            self._write_outcome(transactional_id, change, on_answer, end_transaction.answer_to(change, self._clock.now_ms()))

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        """The id as committed, None if it is not known."""
        transaction = self.table.find_committed(transactional_id)
        if transaction is None:
            return None
        is_prepared = transaction.state in PREPARED
        unmarked = self._marker_sender.unmarked(transactional_id, self._shard.leader_epoch) if is_prepared else None
        return described(transaction, unmarked)

    @property
    def retried_completions_count(self) -> int:
        """Transactions whose markers are all written, but whose end could not be written yet: it is tried again."""
        return self._shard.timers.count(COMPLETE_TIMER)

    # What falls due. Each yields after each id.

    def abort_timed_out(self) -> Generator[None, None, None]:
        """Abort the transactions that are open for longer than their timeout."""
        now_ms = self._clock.now_ms()
        for transactional_id in self.table.open_ids():
            if not self._shard.is_active:
                return
            self._maybe_abort(transactional_id, now_ms, None)
            yield

    def _maybe_abort(self, transactional_id: str, now_ms: int, new_producer_id: int | None) -> None:
        transaction = self.table.find(transactional_id)
        if transaction is None or not transaction.is_timed_out(now_ms) or not self.table.is_committed(transactional_id):
            return
        change = end_transaction.decide_own_abort(
            transaction,
            transaction_version=self._transaction_version(),
            new_producer_id=new_producer_id,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(change, Need):
            self._with_producer_id(partial(self._maybe_abort, transactional_id, now_ms), lambda answer: None)
            return
        what = "was open for" if now_ms > transaction.start_ms else "begins, by this broker's clock, after"
        self._limited_log.info(
            "transaction timed out", "transaction of %r is aborted: it %s more than %d ms", transactional_id, what, transaction.timeout_ms
        )
        self._write_outcome(transactional_id, change, lambda answer: None, ProducerAnswer(ErrorCode.NONE))

    def expire(self) -> Generator[None, None, None]:
        """Write the tombstones of ids that were at rest for transactional.id.expiration.ms. A bounded number of batches is in flight: if
        `has_more_to_expire` afterwards, call it again when these are committed."""
        self.has_more_to_expire = False
        before_ms = self._clock.now_ms() - self._settings.id_expiration_ms
        batch: list[CoordinatorRecord] = []
        batch_bytes = 0
        for transactional_id in self.table.resting_ids():
            if self._tombstone_batches_in_flight >= TOMBSTONE_BATCHES_IN_FLIGHT_MAX or not self._shard.is_active:
                self.has_more_to_expire = self._shard.is_active
                return
            # Looked at once more when the batch is written: after a yield everything may have changed.
            if self.table.is_resting_since(transactional_id, before_ms):
                batch.append(CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None))
                batch_bytes += len(transactional_id)
                if len(batch) >= TOMBSTONES_PER_BATCH or batch_bytes >= TOMBSTONE_BYTES_PER_BATCH:
                    self._write_tombstones(batch, before_ms)
                    batch, batch_bytes = [], 0
            yield
        self._write_tombstones(batch, before_ms)

    def _write_tombstones(self, batch: list[CoordinatorRecord], before_ms: int) -> None:
        due = [record for record in batch if self.table.is_resting_since(record.key.transactional_id, before_ms)]
        if due and self._shard.is_active:
            self._tombstone_batches_in_flight += 1
            self._shard.write(CoordinatorResult(due, _ignore, on_outcome=self._end_tombstones))

    def _end_tombstones(self, error: ErrorCode) -> None:
        self._tombstone_batches_in_flight -= 1
        if error is not ErrorCode.NONE:
            self._limited_log.warning(
                "unwritten tombstones",
                "partition %d: tombstones of transactional ids could not be written: %s",
                self._shard.partition,
                error.name,
            )

    # Writing.

    def _write(
        self, transactional_id: str, change: Transaction, on_committed: Answer, on_outcome: Callable[[ErrorCode], None] | None = None
    ) -> None:
        if record_version(change, self._transaction_version()) == 0:
            change = without_tags(change)  # a later leader knows no more
        record = CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), change)
        self._shard.write(CoordinatorResult([record], on_committed, None, on_outcome))

    def _write_outcome(self, transactional_id: str, prepared: Transaction, on_answer: OnAnswer, answer: ProducerAnswer) -> None:
        """Write that a transaction's outcome is decided; the markers follow when that is committed."""

        def on_outcome(error: ErrorCode) -> None:
            written = self.table.find(transactional_id)
            if error is ErrorCode.NONE and written is not None:
                self._send_markers(transactional_id, written)

        self._write(transactional_id, prepared, _answering(on_answer, answer), on_outcome)

    def _send_markers(self, transactional_id: str, prepared: Transaction) -> None:
        on_written = partial(self._complete, transactional_id, prepared)
        if prepared.partitions:
            self._marker_sender.send(transactional_id, prepared, self._shard.leader_epoch, on_written)
        else:
            on_written()

    def _complete(self, transactional_id: str, prepared: Transaction) -> None:
        """All markers are written. Tried again until it is written: nothing else would end the transaction."""
        if not self._shard.is_active or self.table.find(transactional_id) is not prepared:
            return

        def on_outcome(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE and self._shard.is_active:
                retry = partial(self._complete, transactional_id, prepared)
                self._shard.timers.schedule((COMPLETE_TIMER, transactional_id), RETRY_BACKOFF_MS, retry)

        self._write(transactional_id, prepared.completed(self._clock.now_ms()), _ignore, on_outcome)
        if self._shard.is_active and self.table.find(transactional_id) is not prepared:
            for each in self._waiting.take(transactional_id):
                self._add_again(transactional_id, each.request, each.answer)

    def _add_again(self, transactional_id: str, request: AddPartitions, on_answer: Answer) -> None:
        if self._shard.is_active:
            self.add_partitions(transactional_id, request, 0, on_answer)
        else:
            on_answer(ErrorCode.NOT_COORDINATOR)

    def _with_producer_id(self, go_on: Callable[[int], None], on_answer: OnAnswer) -> None:
        """Go on with a new producer id. If others were served meanwhile, the operation decides from what holds then; an id that it needs no
        more is lost, as those that are left in a block when a broker stops."""
        try:
            producer_id = self._next_producer_id()
        except KafkaError as e:
            on_answer(ProducerAnswer(e.code))
            return
        if isinstance(producer_id, int):
            go_on(producer_id)
            return

        def end_wait(value: int | Exception) -> None:
            if not self._shard.is_active:
                on_answer(ProducerAnswer(ErrorCode.NOT_COORDINATOR))
            elif isinstance(value, int):
                go_on(value)
            else:
                on_answer(ProducerAnswer(value.code if isinstance(value, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR))

        producer_id.when_done(end_wait)


def _answering(on_answer: OnAnswer, answer: ProducerAnswer) -> Answer:
    """Gives the answer at the commit, or the error instead of it."""
    return lambda error: on_answer(answer if error is ErrorCode.NONE else ProducerAnswer(error))
