"""PartitionAdditions: what a broker asks transaction coordinators before it appends the first batch of a transaction to a partition that it
leads (Kafka's AddPartitionsToTxnManager, KIP-890).

The coordinator adds the partitions for a client of transaction version 2; for an older one it says whether they are part of the
transaction (verify_only). A coordinator in this broker is called; another one gets AddPartitionsToTxn. Questions that come while all
CONNECTIONS_MAX connections to a coordinator are busy share the next request. Kafka has one connection. Here a coordinator may let a
question wait for the end of the transaction before, and the others' questions must not wait with it.

Questions of one producer that are not sent yet replace each other: a newer epoch fences the older question (INVALID_PRODUCER_EPOCH), and
the same partition asked for again, by a client that tries again, ends the older question with NETWORK_EXCEPTION. Kafka does so for all
partitions of an id, and compares the epochs of different producer ids.

Each question ends once: with an answer, or with NETWORK_EXCEPTION after its timeout. Abandoning its Deferred ends it, too; what was sent
is not taken back.

Not done: a coordinator's broker that does not know AddPartitionsToTxn 4 is NETWORK_EXCEPTION. Kafka then appends without verification.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from broker.loop.deferred import Deferred
from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.observability.metrics import RequestMetrics
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.transaction import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from protocol.codec import ENTRIES_PER_NUMBER_SHIFT
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from broker.cluster.peer_connections import PeerConnections
    from broker.loop.clock import Clock, Timer
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.transactions.coordinator import TransactionCoordinator
    from config.server import ServerConfig

CONNECTIONS_MAX = 4  # to each coordinator
TRANSACTIONS_PER_REQUEST_MAX = 200
ENTRIES_PER_REQUEST_MAX = 900
"""Array elements, as protocol/codec.py counts them, of a request for several transactions: the other broker takes them with any
barnabas.request.entries.max. A transaction that has more alone comes from a Produce that had more."""
WAITING_MAX = 10_000
"""Questions that wait to be sent to one coordinator; more are answered NETWORK_EXCEPTION."""
UNKNOWN_EPOCH = -1

Address = tuple[str, int]
Refusals = dict[tuple[str, int], ErrorCode]
"""Partitions that may not be appended to, by topic and index, each with the reason."""


class SupportedOperation(Enum):
    """What the version of a client's request allows (Kafka's TransactionSupportedOperation)."""

    DEFAULT_ERROR = "verify; the client does not know TRANSACTION_ABORTABLE"
    GENERIC_ERROR_SUPPORTED = "verify"
    ADD_PARTITION = "add the partition"

    @property
    def supports_epoch_bump(self) -> bool:
        """Whether the client follows transaction version 2."""
        return self is SupportedOperation.ADD_PARTITION


def operation_of_produce(version: int) -> SupportedOperation:
    """What the version of a Produce allows."""
    return _operation(version, generic_error=11, add_partition=12)


def operation_of_txn_offset_commit(version: int) -> SupportedOperation:
    """What the version of a TxnOffsetCommit allows."""
    return _operation(version, generic_error=4, add_partition=5)


def _operation(version: int, *, generic_error: int, add_partition: int) -> SupportedOperation:
    if version >= add_partition:
        return SupportedOperation.ADD_PARTITION
    return SupportedOperation.GENERIC_ERROR_SUPPORTED if version >= generic_error else SupportedOperation.DEFAULT_ERROR


class AdditionSettings(NamedTuple):
    """Kafka's add.partitions.to.txn.retry.*. A coordinator of ours lets a question wait for `retry_backoff_max_ms`; one of Kafka's is asked
    again every `retry_backoff_ms`, for as long. `request_timeout_ms` bounds each question."""

    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000

    @classmethod
    def from_server(cls, config: ServerConfig) -> AdditionSettings:
        return cls(
            config.add_partitions_to_txn_retry_backoff_ms, config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms
        )


class Question(NamedTuple):
    """Whether batches of a producer may be appended to these partitions. `timeout_ms` is how long the client waits."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Mapping[str, Collection[int]]
    operation: SupportedOperation
    timeout_ms: int


class PartitionAdditions:
    """See the module's docstring. `make_connections` is called when another broker is asked for the first time; `close` closes what it
    returned. `listener_name` is that of the brokers among each other."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        metadata: MetadataCache,
        make_connections: Callable[[], PeerConnections],
        clock: Clock,
        settings: AdditionSettings,
        *,
        listener_name: str,
        is_verification_enabled: Callable[[], bool],
    ) -> None:
        self.settings = settings
        self.is_verification_enabled = is_verification_enabled
        """transaction.partition.verification.enable, which changes while the broker runs."""
        self.failures_count = 0
        """Partitions that were refused (Kafka's VerificationFailureRate)."""
        self.times = RequestMetrics()
        """How long questions took (Kafka's VerificationTimeMs)."""
        self._coordinator = coordinator
        self._metadata = metadata
        self._make_connections = make_connections
        self._clock = clock
        self._listener_name = listener_name
        self._channels: dict[Address, _Channel] = {}
        self._connections: list[PeerConnections] = []
        self._is_closed = False

    def ask(self, question: Question) -> Deferred:
        """A Deferred of Refusals, in the codes that the client's version knows; empty if all partitions may be appended to.

        CONCURRENT_TRANSACTIONS: the transaction before has not ended yet. Kafka's brokers ask again then, if they add (see `pause`)."""
        asked = _Asked(question, self._clock.monotonic_ns())
        answer = asked.answer
        self._ask_coordinator(asked)
        if not asked.is_over:
            timeout_ms = min(question.timeout_ms, self.settings.request_timeout_ms)
            asked.timer = self._clock.call_later(timeout_ms, self._end, asked, ErrorCode.NETWORK_EXCEPTION)
            answer.on_abandon = lambda: self._forget(asked)
        return answer

    def pause(self) -> Deferred:
        """A Deferred that completes when it is time to ask again after CONCURRENT_TRANSACTIONS."""
        over = Deferred()
        timer = self._clock.call_later(self.settings.retry_backoff_ms, over.complete, None)
        over.on_abandon = timer.cancel
        return over

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """A broker that is fenced, or registered anew, answers nothing that it was asked before. Subscribe it."""
        for node_id in delta.changed_brokers:
            broker = self._metadata.brokers.get(node_id)
            for address, channel in self._channels.items():
                if channel.node_id == node_id and (broker is None or broker.is_fenced or broker.epoch != channel.broker_epoch):
                    channel.broker_epoch = UNKNOWN_EPOCH if broker is None else broker.epoch
                    for connections in tuple(self._connections):
                        connections.drop(*address)

    async def close(self) -> None:
        """Ask nothing more. What is asked ends with NETWORK_EXCEPTION."""
        self._is_closed = True
        for connections in self._connections:
            await connections.close()
        for channel in self._channels.values():
            for asked in channel.take_all():
                self._end(asked, ErrorCode.NETWORK_EXCEPTION)

    def _ask_coordinator(self, asked: _Asked) -> None:
        partition = self._metadata.find_partition(TRANSACTION_STATE_TOPIC, self._coordinator.partition_for(asked.question.transactional_id))
        broker = None if partition is None else self._metadata.brokers.get(partition.leader)
        if broker is not None and broker.node_id == self._metadata.node_id:
            self._ask_local(asked)
            return
        address = None if broker is None or broker.is_fenced else broker.endpoints.get(self._listener_name)
        if broker is None or address is None or self._is_closed:
            self._end(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = _Channel(broker.node_id, broker.epoch)
        self._enqueue(asked, channel, address)

    # The coordinator in this broker.

    def _ask_local(self, asked: _Asked) -> None:
        transactional_id, producer, partitions, operation, _ = asked.question
        try:
            if not operation.supports_epoch_bump:
                self._end(asked, self._coordinator.verify_partitions(transactional_id, producer, partitions))
                return
            request = AddPartitions(producer, partitions, EPOCH_BUMP_VERSION)
            added = self._coordinator.add_partitions(transactional_id, request, self.settings.retry_backoff_max_ms)
        except KafkaError as error:
            self._end(asked, error.code)
            return
        added.when_done(lambda outcome: self._end(asked, outcome.code if isinstance(outcome, KafkaError) else outcome))

    # Another broker's.

    def _enqueue(self, asked: _Asked, channel: _Channel, address: Address) -> None:
        for older in channel.find(asked.question.transactional_id):
            verdict = _judge(asked.question, older.question)
            if verdict is not None:
                error, is_older_refused = verdict
                self._end(older if is_older_refused else asked, error)
                if not is_older_refused:
                    return
        if len(channel.waiting) >= WAITING_MAX:
            self._end(asked, ErrorCode.NETWORK_EXCEPTION)
            return
        channel.add(asked)
        self._send(channel, address)

    def _send(self, channel: _Channel, address: Address) -> None:
        while channel.waiting and len(channel.busy) < CONNECTIONS_MAX and not self._is_closed:
            number = next(number for number in range(CONNECTIONS_MAX) if number not in channel.busy)
            while len(self._connections) <= number:
                self._connections.append(self._make_connections())
            batch = channel.take_batch()
            channel.busy.add(number)
            self._connections[number].get(*address).send(
                _request(batch),
                lambda response, batch=batch, number=number: self._answered(channel, address, number, batch, response),  # type: ignore[misc]
            )

    def _answered(
        self, channel: _Channel, address: Address, number: int, batch: list[_Asked], response: AddPartitionsToTxnResponse | None
    ) -> None:
        channel.busy.discard(number)
        results = {} if response is None else {each.transactional_id: each for each in response.results_by_transaction}
        for asked in batch:
            self._end(asked, _outcome(response, results.get(asked.question.transactional_id)))
        self._send(channel, address)

    # The end of a question.

    def _end(self, asked: _Asked, outcome: ErrorCode | Mapping[str, Mapping[int, ErrorCode]]) -> None:
        """`outcome` is an error, or NONE, for all partitions, or one for each. A partition without one was not answered."""
        if asked.is_over:
            return
        self._forget(asked)
        refusals: Refusals = {}
        if outcome is not ErrorCode.NONE:
            for topic, indexes in asked.question.partitions.items():
                for index in indexes:
                    told = outcome if isinstance(outcome, ErrorCode) else outcome.get(topic, {}).get(index, ErrorCode.NETWORK_EXCEPTION)
                    if told is not ErrorCode.NONE:
                        refusals[topic, index] = _for_client(told, asked.question.operation)
            self.failures_count += len(refusals)
        self.times.record(self._clock.monotonic_ns() - asked.start_ns)
        asked.answer.complete(refusals)

    def _forget(self, asked: _Asked) -> None:
        asked.is_over = True
        if asked.timer is not None:
            asked.timer.cancel()
        if asked.channel is not None:
            asked.channel.remove(asked)


class _Asked:
    """A question on its way. `channel` is where it waits to be sent."""

    __slots__ = ("answer", "channel", "is_over", "question", "start_ns", "timer")

    def __init__(self, question: Question, start_ns: int) -> None:
        self.question = question
        self.start_ns = start_ns
        self.answer = Deferred()
        self.timer: Timer | None = None
        self.channel: _Channel | None = None
        self.is_over = False


class _Channel:
    """The questions for one coordinator's broker: those that wait, in their order, and the numbers of the connections that are busy."""

    def __init__(self, node_id: int, broker_epoch: int) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch  # of the registration that is asked
        self.waiting: dict[_Asked, None] = {}
        self.busy: set[int] = set()
        self._by_id: dict[str, list[_Asked]] = {}

    def find(self, transactional_id: str) -> list[_Asked]:
        """The waiting questions of an id; a copy."""
        return list(self._by_id.get(transactional_id, ()))

    def add(self, asked: _Asked) -> None:
        asked.channel = self
        self.waiting[asked] = None
        self._by_id.setdefault(asked.question.transactional_id, []).append(asked)

    def remove(self, asked: _Asked) -> None:
        asked.channel = None
        del self.waiting[asked]
        same_id = self._by_id[asked.question.transactional_id]
        same_id.remove(asked)
        if not same_id:
            del self._by_id[asked.question.transactional_id]

    def take_batch(self) -> list[_Asked]:
        """The questions of the next request: one for each id, because the answer names ids."""
        batch: dict[str, _Asked] = {}
        entries = 0
        for asked in self.waiting:
            if asked.question.transactional_id in batch:
                continue
            entries += _entries(asked.question)
            if batch and entries > ENTRIES_PER_REQUEST_MAX:
                break
            batch[asked.question.transactional_id] = asked
            if len(batch) == TRANSACTIONS_PER_REQUEST_MAX:
                break
        for asked in batch.values():
            self.remove(asked)
        return list(batch.values())

    def take_all(self) -> list[_Asked]:
        taken = list(self.waiting)
        for asked in taken:
            self.remove(asked)
        return taken


def _entries(question: Question) -> int:
    """How many array elements it has in a request: a transaction, its topics, and an eighth of its partitions."""
    return 1 + sum(1 + (len(indexes) >> ENTRIES_PER_NUMBER_SHIFT) for indexes in question.partitions.values())


def _judge(new: Question, older: Question) -> tuple[ErrorCode, bool] | None:
    """The error for one of two questions of a transactional id that wait, and whether the older one gets it; None if both are asked."""
    if new.producer.producer_id != older.producer.producer_id:
        return None
    if new.producer.producer_epoch != older.producer.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH, older.producer.producer_epoch < new.producer.producer_epoch
    is_asked_again = any(not set(indexes).isdisjoint(older.partitions.get(topic, ())) for topic, indexes in new.partitions.items())
    return (ErrorCode.NETWORK_EXCEPTION, True) if is_asked_again else None


def _request(batch: list[_Asked]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.producer_epoch,
                verify_only=not question.operation.supports_epoch_bump,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=sorted(indexes)) for topic, indexes in question.partitions.items()],
            )
            for question in (asked.question for asked in batch)
        ]
    )


def _outcome(
    response: AddPartitionsToTxnResponse | None, result: AddPartitionsToTxnResult | None
) -> ErrorCode | dict[str, dict[int, ErrorCode]]:
    if response is None:
        return ErrorCode.NETWORK_EXCEPTION
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE  # it is about this broker, which is not the client's concern
    if response.error_code or result is None:
        return ErrorCode(response.error_code) if response.error_code else ErrorCode.NETWORK_EXCEPTION
    return {
        topic.name: {each.partition_index: ErrorCode(each.partition_error_code) for each in topic.results_by_partition}
        for topic in result.topic_results
    }


def _for_client(error: ErrorCode, operation: SupportedOperation) -> ErrorCode:
    """The error in the terms of a producer."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and operation is SupportedOperation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return error
