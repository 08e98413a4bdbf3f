"""A transaction: begun, written to, and left open by one process; ended by another that knows its producer id and epoch.

Batches of a partition are sent in order, one request a leader at a time; what comes next is encoded while the brokers work. A batch whose
answer is lost is sent again with the same sequence, which the partition knows.

Source: org.apache.kafka.clients.producer.internals.TransactionManager, the protocol of transaction.version 0 to 2.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ...protocol.messages.end_txn import EndTxnRequest
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.messages.list_transactions import ListTransactionsRequest
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..errors import BrokerError
from ..records.encode import Batch
from .cluster import BACKOFF_S, RETRIED, Cluster, CoordinatorKind, Place, describe
from .connection import Connection

REQUEST_BYTES = 4 << 20
PRODUCE_TIMEOUT_MS = 30_000
EPOCH_BUMP_LEVEL = 2
"""transaction.version from which EndTxn 5 bumps the epoch, so that a writer that still lives can write no more."""
ENDING_STATES = ("PrepareCommit", "PrepareAbort")
OPEN_STATES = ("Ongoing", *ENDING_STATES)
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class OpenTransaction(NamedTuple):
    """What it takes to end it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionError(BrokerError):
    """The transaction cannot go on: it was fenced, has timed out, or a record was refused."""


def init_producer(cluster: Cluster, transactional_id: str, timeout_ms: int) -> OpenTransaction:
    """Get a producer id and epoch. What an earlier producer with the id has left open is aborted. Raises BrokerError."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = cluster.ask_coordinator(
        CoordinatorKind.TRANSACTION, transactional_id, request, lambda answer: int(answer.error_code), version=lambda _: None
    )
    if answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise BrokerError(f"transaction.timeout.ms {timeout_ms} is above the broker's transaction.max.timeout.ms")
    if answer.error_code:
        raise BrokerError(f"transactional id {transactional_id}: {describe(answer.error_code)}")
    return OpenTransaction(transactional_id, answer.producer_id, answer.producer_epoch)


def end_transaction(cluster: Cluster, opened: OpenTransaction, *, is_commit: bool) -> ErrorCode:
    """Returns NONE when it is decided so, by this or an earlier request, else what the coordinator says. Raises BrokerError when it
    cannot be reached."""
    request = EndTxnRequest(
        transactional_id=opened.transactional_id, producer_id=opened.producer_id, producer_epoch=opened.producer_epoch, committed=is_commit
    )
    answer = cluster.ask_coordinator(
        CoordinatorKind.TRANSACTION, opened.transactional_id, request, lambda answer: int(answer.error_code), version=_end_version
    )
    return ErrorCode(answer.error_code)


def list_open(cluster: Cluster, prefix: str, states: Sequence[str] = OPEN_STATES) -> list[OpenTransaction]:
    """The transactions that are open and whose ids begin so; their epochs are unknown: -1. Raises BrokerError."""
    found = []
    for answer in cluster.ask_each(ListTransactionsRequest(state_filters=list(states)), lambda answer: int(answer.error_code)):
        if answer.error_code:
            raise BrokerError(f"the transactions cannot be listed: {describe(answer.error_code)}")
        found += [
            OpenTransaction(each.transactional_id, each.producer_id, -1)
            for each in answer.transaction_states
            if each.transactional_id.startswith(prefix)
        ]
    return found


class TransactionWriter:
    """Writes batches to the partitions of an open transaction. Raises TransactionError where it cannot go on, BrokerError where no broker
    takes a batch until the cluster's deadline."""

    def __init__(self, cluster: Cluster, opened: OpenTransaction) -> None:
        self._cluster = cluster
        self.opened = opened
        self._sequences: dict[Place, int] = {}
        self._waiting: dict[Place, deque[tuple[Batch, int]]] = {}  # with their sequences; the first ones may be under way
        self._under_way: dict[int, tuple[Connection, int, list[Place]]] = {}  # by leader: its connection, the request, what is in it
        self._waiting_bytes = 0
        self._failing_since_s: float | None = None

    def write(self, topic: str, partition: int, batch: Batch) -> None:
        """Take a batch. It is on its way once enough has come together, at `flush` at the latest."""
        place = topic, partition
        self.begin(topic, partition)
        sequence = self._sequences[place]
        self._sequences[place] = (sequence + batch.records_count) & 0x7FFFFFFF
        self._waiting.setdefault(place, deque()).append((batch, sequence))
        self._waiting_bytes += batch.size_bytes
        while self._waiting_bytes >= REQUEST_BYTES:
            self._receive_all()
            self._send_all()

    def begin(self, topic: str, partition: int) -> None:
        """Make the partition one of the transaction's, which is open when this returns."""
        if (topic, partition) not in self._sequences:
            self._add(topic, partition)

    def flush(self) -> None:
        """Returns when all that was taken is stored."""
        while self._waiting or self._under_way:
            self._receive_all()
            self._send_all()

    def _add(self, topic: str, partition: int) -> None:
        opened = self.opened
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=opened.transactional_id,
            v3_and_below_producer_id=opened.producer_id,
            v3_and_below_producer_epoch=opened.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        answer = self._cluster.ask_coordinator(
            CoordinatorKind.TRANSACTION,
            opened.transactional_id,
            request,
            lambda answer: int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),
            version=lambda _: None,
        )
        code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        if code:
            raise TransactionError(f"{topic}-{partition} cannot be part of transaction {opened.transactional_id}: {describe(code)}")
        self._sequences[topic, partition] = 0

    def _send_all(self) -> None:
        """A request to each leader, of the first batch of each partition that waits for it."""
        by_leader: dict[int, list[Place]] = {}
        for place in self._waiting:
            by_leader.setdefault(self._cluster.leader(*place), []).append(place)
        if -1 in by_leader:
            self._cluster.refresh({topic for topic, _ in by_leader.pop(-1)})
        if not by_leader and self._waiting:
            time.sleep(BACKOFF_S)
        for leader, places in by_leader.items():
            chosen = {place: self._waiting[place][0] for place in places}
            try:
                connection = self._cluster.connection(leader)
                number = self._send(connection, chosen)
            except OSError:
                self._wait({topic for topic, _ in places})
                continue
            self._under_way[leader] = connection, number, places

    def _send(self, connection: Connection, chosen: dict[Place, tuple[Batch, int]]) -> int:
        topics: dict[str, TopicProduceData] = {}
        for (topic, partition), (batch, sequence) in chosen.items():
            opened = self.opened
            records = batch.to_bytes(producer_id=opened.producer_id, producer_epoch=opened.producer_epoch, sequence=sequence)
            data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[]))
            data.partition_data.append(PartitionProduceData(index=partition, records=records))
        return connection.send(
            ProduceRequest(
                transactional_id=self.opened.transactional_id, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=list(topics.values())
            )
        )

    def _receive_all(self) -> None:
        failed: set[str] = set()
        for leader, (connection, number, places) in list(self._under_way.items()):
            del self._under_way[leader]
            try:
                answer = connection.receive(number)
            except OSError:
                self._cluster.drop(connection)
                failed |= {topic for topic, _ in places}
                continue
            for topic in answer.responses:
                failed |= {topic.name for each in topic.partition_responses if not self._is_stored(topic.name, each)}
        if failed:
            self._wait(failed)
        else:
            self._failing_since_s = None

    def _is_stored(self, topic: str, answer: object) -> bool:
        code = ErrorCode(answer.error_code)  # type: ignore[attr-defined]
        partition: int = answer.index  # type: ignore[attr-defined]
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if code in RETRIED:
                return False
            why = "a record is larger than the topic's max.message.bytes" if code is ErrorCode.MESSAGE_TOO_LARGE else describe(code)
            raise TransactionError(f"{topic}-{partition} refused records of transaction {self.opened.transactional_id}: {why}")
        waiting = self._waiting[topic, partition]
        batch, _ = waiting.popleft()
        self._waiting_bytes -= batch.size_bytes
        if not waiting:
            del self._waiting[topic, partition]
        return True

    def _wait(self, topics: set[str]) -> None:
        """Look for the leaders anew, after a moment."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > self._cluster.deadline_s:
            raise BrokerError(f"no broker takes records of {', '.join(sorted(topics))} for {self._cluster.deadline_s:.0f} s")
        time.sleep(BACKOFF_S)
        try:
            self._cluster.refresh(topics)
        except OSError:
            pass  # until the deadline


def _end_version(connection: Connection) -> int | None:
    return 5 if connection.features.get("transaction.version", 0) >= EPOCH_BUMP_LEVEL else None
