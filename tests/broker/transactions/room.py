"""A transaction coordinator's shard in a room of its own: the log commits, markers are written and producer ids come when a test says so.

    room = Room()
    assert room.init("t") == "NONE 1000:0"
    assert room.add("t", "1000:0", "a-0") == "NONE"
    assert room.end("t", "1000:0", commit=True) == "NONE 1000:1"

Answers are texts: the error's name, and the producer id and epoch if there are any; "waits" if there is none yet. Producer ids count from
1000 on. One partition of `__transaction_state`, led in epoch 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from broker.coordination.runtime import CoordinatorRuntime
from broker.coordination.shard import Shard
from broker.loop.deferred import Deferred
from broker.observability.limited_log import LimitedLog
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.answers import ProducerAnswer
from broker.transactions.collaborators import MarkerSender
from broker.transactions.end_transaction import EndTransaction
from broker.transactions.init_producer_id import InitProducerId
from broker.transactions.record_table import make_transaction_records
from broker.transactions.settings import TransactionSettings
from broker.transactions.shard import TransactionCoordinatorShard
from broker.transactions.stored_transaction import encode_key
from broker.transactions.transaction import LAST_CLIENT_EPOCH, Partitions, ProducerIdAndEpoch, Transaction
from protocol.errors import ErrorCode
from protocol.messages.stored.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.messages.stored.version_prefix import decode_with_version, encode_with_version
from protocol.records import SimpleRecord, iterate_headers, iterate_records
from tests.broker.coordination.memory_log import MemoryLog
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TIMEOUT_MS = 60_000
ADD_TIMEOUT_MS = 1_000
FIRST_PRODUCER_ID = 1000


@stands_for(MarkerSender, own=("write_all",))
class HeldMarkers:
    """A MarkerSender that writes markers when a test says so. `sent` has a line for each transaction, in order."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.held: list[tuple[int, Callable[[], None]]] = []

    def send(self, transactional_id: str, transaction: Transaction, coordinator_epoch: int, on_written: Callable[[], None]) -> None:
        outcome = "commit" if transaction.is_commit else "abort"
        producer = f"{transaction.producer_id}:{transaction.producer_epoch}"
        version = transaction.client_transaction_version
        self.sent.append(f"{transactional_id} {outcome} {producer} v{version} epoch {coordinator_epoch} {shown(transaction.partitions)}")
        self.held.append((coordinator_epoch, on_written))

    def unmarked(self, transactional_id: str, coordinator_epoch: int) -> Partitions | None:
        return None

    def forget(self, state_partition: int, coordinator_epoch: int) -> None:
        self.held = [each for each in self.held if each[0] != coordinator_epoch]

    def write_all(self) -> None:
        held, self.held = self.held, []
        for _, on_written in held:
            on_written()


class Room:
    """See the module's docstring. `version` is the finalized transaction version."""

    def __init__(self, version: int = 2, *, is_holding_markers: bool = False, log: MemoryLog | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.log = log or MemoryLog()
        self.version = version
        self.settings = TransactionSettings(**settings)
        self.markers = HeldMarkers()
        self.is_holding_markers = is_holding_markers
        self.next_producer_id = FIRST_PRODUCER_ID
        self.awaited_ids: list[Deferred] | None = None
        """Deferreds of producer ids, if these do not come at once."""
        self.epoch = -1
        self.elect()

    def elect(self) -> None:
        """A new life on the same log, in the next epoch: nothing else survives."""
        for timer in self.clock.pending_timers:
            timer.cancel()
        self.markers.held.clear()
        self.log.held.clear()
        self.epoch += 1
        self.runtime = self.new_runtime()
        self.runtime.start()
        self.runtime.on_elected(0, self.epoch)
        self.clock.advance(0)

    def new_runtime(self) -> CoordinatorRuntime[TransactionCoordinatorShard]:
        return CoordinatorRuntime(
            "__transaction_state",
            node_id=1,
            coordinator_log=self.log,
            clock=self.clock,
            table=make_transaction_records(lambda: self.version),
            make_machine=self._make_machine,
            write_timeout_ms=self.settings.write_timeout_ms,
            limited_log=self._limited_log(),
            on_all_loaded=lambda: None,
        )

    def _limited_log(self) -> LimitedLog:
        return LimitedLog(logging.getLogger("barnabas.transactions"), self.clock)

    def _make_machine(self, shard: Shard[TransactionCoordinatorShard]) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(
            shard, self.clock, self.settings, self._produce_id, self.markers, lambda: self.version, self._limited_log()
        )

    def _produce_id(self) -> int | Deferred:
        if self.awaited_ids is not None:
            awaited = Deferred()
            self.awaited_ids.append(awaited)
            return awaited
        self.next_producer_id += 1
        return self.next_producer_id - 1

    @property
    def shard(self) -> Shard[TransactionCoordinatorShard]:
        return self.runtime.get_shard("any")

    @property
    def machine(self) -> TransactionCoordinatorShard:
        return self.shard.machine

    # Requests. Each gives the answer as a text, and lets what follows from it happen, unless the room is holding.

    def init(self, transactional_id: str, expected: str | None = None, *, timeout_ms: int = TIMEOUT_MS, **flags: bool) -> str:
        request = InitProducerId(timeout_ms, producer_of(expected) if expected else None, **flags)
        return self._asked(lambda answer: self.machine.init_producer_id(transactional_id, request, answer))

    def add(self, transactional_id: str, producer: str, *partitions: str, version: int | None = None) -> str:
        return self._asked(self._addition(transactional_id, producer, partitions, version))

    def add_later(self, transactional_id: str, producer: str, *partitions: str) -> list[str]:
        """An addition that may wait: its answer comes into the list."""
        answers: list[str] = []
        self._addition(transactional_id, producer, partitions, None)(lambda answer: answers.append(shown_answer(answer)))
        return answers

    def _addition(
        self, transactional_id: str, producer: str, partitions: tuple[str, ...], version: int | None
    ) -> Callable[[Callable[[Any], None]], None]:
        request = AddPartitions(producer_of(producer), partitions_of(*partitions), self._client_version(version))
        return lambda answer: self.machine.add_partitions(transactional_id, request, ADD_TIMEOUT_MS, answer)

    def verify(self, transactional_id: str, producer: str, *partitions: str) -> str:
        found = self.machine.verify_partitions(transactional_id, producer_of(producer), partitions_of(*partitions))
        if isinstance(found, ErrorCode):
            return found.name
        return " ".join(f"{topic}-{index}={error.name}" for topic, errors in found.items() for index, error in sorted(errors.items()))

    def end(self, transactional_id: str, producer: str, *, commit: bool, version: int | None = None) -> str:
        request = EndTransaction(producer_of(producer), commit, self._client_version(version))
        return self._asked(lambda answer: self.machine.end_transaction(transactional_id, request, answer))

    def _client_version(self, version: int | None) -> int:
        """What a client's request asks for: TV_2 if it was told of it, else TV_0."""
        return version if version is not None else 2 if self.version >= 2 else 0

    def _asked(self, ask: Callable[[Callable[[Any], None]], None]) -> str:
        answers: list[str] = []
        ask(lambda answer: answers.append(shown_answer(answer)))
        if not self.is_holding_markers:
            self.markers.write_all()
        assert len(answers) < 2, "a request has one answer"
        return answers[0] if answers else "waits"

    def sweep(self) -> None:
        """Abort what is timed out."""
        for _ in self.machine.abort_timed_out():
            pass
        if not self.is_holding_markers:
            self.markers.write_all()

    def expire(self) -> None:
        for _ in self.machine.expire():
            pass

    # What is there.

    def state(self, transactional_id: str) -> str:
        """As committed: the state, the producer, and the partitions if there are any."""
        return shown_transaction(self.machine.table.find_committed(transactional_id))

    def written(self, transactional_id: str) -> str:
        return shown_transaction(self.machine.table.find(transactional_id))

    def records(self, batches: list[bytearray] | None = None) -> list[tuple[str, TransactionLogValue | None]]:
        """What is in the log, or in these batches of it."""
        found: list[tuple[str, TransactionLogValue | None]] = []
        for batch in self.log.batches if batches is None else batches:
            for position, _ in iterate_headers(batch):
                for stored in iterate_records(batch, position):
                    assert stored.key is not None
                    key, _ = decode_with_version(TransactionLogKey, stored.key)
                    value = None if stored.value is None else decode_with_version(TransactionLogValue, stored.value)[0]
                    found.append((key.transactional_id, value))
        return found


def producer_of(text: str) -> ProducerIdAndEpoch:
    producer_id, epoch = text.split(":")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


def partitions_of(*names: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in names:
        topic, _, index = name.rpartition("-")
        found.setdefault(topic, []).append(int(index))
    return found


def shown(partitions: Mapping[str, frozenset[int]]) -> str:
    return " ".join(f"{topic}-{index}" for topic in sorted(partitions) for index in sorted(partitions[topic]))


def shown_answer(answer: ErrorCode | ProducerAnswer) -> str:
    if isinstance(answer, ErrorCode):
        return answer.name
    return answer.error.name if answer.producer_id == -1 else f"{answer.error.name} {answer.producer_id}:{answer.producer_epoch}"


def shown_transaction(transaction: Transaction | None) -> str:
    if transaction is None:
        return "unknown"
    return f"{transaction.state.label} {transaction.producer_id}:{transaction.producer_epoch} {shown(transaction.partitions)}".strip()


def begun(version: int = 2, **facts: Any) -> Room:
    """A room in which the producer 1000:0 of "t" has a transaction with a-0."""
    room = Room(version, **facts)
    room.init("t")
    room.add("t", "1000:0", "a-0")
    return room


def stored_record(transactional_id: str, value: TransactionLogValue, version: int) -> SimpleRecord:
    return SimpleRecord(encode_key(TransactionLogKey(transactional_id=transactional_id)), encode_with_version(value, version))


def exhausted(version: int, epoch: int = LAST_CLIENT_EPOCH, *, state: int = 1, **facts: Any) -> Room:
    """The id has the last epoch that a client can get, with a transaction that has a-0, unless said otherwise."""
    log = MemoryLog()
    room = Room(version, log=log, **facts)
    partitions = None if state == 0 else [PartitionsSchema(topic="a", partition_ids=[0])] if state < 4 else []
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=state,
        transaction_partitions=partitions,
        transaction_start_timestamp_ms=room.clock.now_ms(),
        transaction_last_update_timestamp_ms=room.clock.now_ms(),
    )
    if version >= 1:
        value.previous_producer_id = 7
    log.append(0, [stored_record("t", value, min(version, 1))], lambda error: None)  # an older writer's
    room.elect()
    return room
