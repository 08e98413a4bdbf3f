"""What thin clients with transactions share: they do what Java's TransactionManager does, in the versions of both sides of KIP-890.

Such a client is one instance of an application: when it is fenced it ends, and the application starts the next one
(tests/simulation/applications.py). What it writes in its transactions is its subclass's (tests/simulation/copiers.py).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.simulation.clients import EPOCH_S, RETRIED, VALUE_SIZE_MAX, Address, name_of
from tests.simulation.connection import LostError
from tests.simulation.consumers import READ_COMMITTED, Fetcher
from tests.simulation.history import Key
from tests.simulation.transaction_ledger import ABORTED, COMMITTED, UNKNOWN, Attempt, Producer, TransactionLedger

INIT_VERSION, FIND_VERSION, OFFSET_FETCH_VERSION, API_VERSIONS_VERSION = 4, 3, 7, 3
GROUP, TRANSACTIONAL_ID = 0, 1  # key types of FindCoordinator
NO_PRODUCER: Producer = (-1, -1)
TRANSACTION_VERSION_FEATURE = "transaction.version"
FETCH_BYTES = (300, 2_000)
LATE_MEAN_S = 0.15
HIGH_EPOCH = 30_000  # from where on the transactional id may have another producer id by now
DELAYED_SHARE = 0.02  # of the batches are given up before they arrive, where requests come late


class Versions(NamedTuple):
    """Of requests. Below Produce 12 the client adds its partitions itself."""

    produce: int
    add_offsets: int
    offset_commit: int
    end: int

    @property
    def bumps_epochs(self) -> bool:
        return self.end >= 5


OLDEST, OLD, NEW = Versions(10, 3, 3, 3), Versions(11, 4, 4, 4), Versions(12, 4, 5, 5)
ADD_PARTITIONS_VERSION = 3

TRIED_AGAIN = RETRIED | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNSTABLE_OFFSET_COMMIT}
FENCING = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ABORTING = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class FencedError(Exception):
    """Another instance has taken over, or the coordinator has aborted the transaction: this one has to end."""


class AbortError(Exception):
    """The transaction cannot be committed any more."""


class TransactionalClient(Fetcher, ABC):
    """One instance, on a host that it may share with others. `old`: the versions of a client that does not know KIP-890's second part; None
    for one that follows the cluster's transaction.version. `late_share` of its requests reach their broker a second time, later, on a
    connection of their own."""

    def __init__(
        self,
        *arguments: Any,
        host: str,
        ledger: TransactionLedger,
        transactional_id: str,
        timeout_ms: int,
        old: Versions | None,
        late_share: float,
        keys: Iterable[Key],
        **more: Any,
    ) -> None:
        super().__init__(*arguments, max_bytes=FETCH_BYTES[0], isolation_level=READ_COMMITTED, **more)
        self.host = host
        self._max_bytes = self.draw.choice(FETCH_BYTES)
        self.ledger = ledger
        self.transactional_id = transactional_id
        self.attempt: Attempt | None = None
        self._keys = list(keys)
        self._timeout_ms = timeout_ms
        self._old = old
        self._late_share = late_share
        self._versions = old or OLD
        self._producer = NO_PRODUCER
        self._sequences: dict[Key, int] = {}
        self._added: dict[Key, None] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._late: list[asyncio.Task[None]] = []
        self._values_count = 0

    async def run(self) -> None:
        """Live until stopped or fenced. A transaction that was begun is ended, unless the instance is cancelled: then it has crashed."""
        try:
            await self._identify(NO_PRODUCER)
            await self._begin_work()
            while not self.is_stopping:
                await self._do_transaction()
        except FencedError as fenced:
            self.note(f"is fenced: {fenced}")
            self.loop.trace.cover("transactional client fenced")
            self._end_attempt(UNKNOWN)
        except asyncio.CancelledError:
            self.note("crashes")
            self._end_attempt(UNKNOWN)
        finally:
            self.close()

    async def end_late_requests(self) -> None:
        """Wait until all of them have arrived, or never will."""
        await asyncio.gather(*self._late)

    # -- what subclasses do --------------------------------------------------------------------------------------------

    async def _begin_work(self) -> None:
        """Before the first transaction."""

    @abstractmethod
    async def _do_transaction(self) -> None:
        """One transaction, or nothing if there is nothing to do."""

    # -- coordinators ----------------------------------------------------------------------------------------------------

    async def _ask_coordinator(self, kind: int, key: str, message: Any, version: int) -> Any:
        """The answer of the coordinator of a group or a transactional id, as long as it takes."""
        while True:
            try:
                address = await self._coordinator_of(kind, key)
                answer = await self.ask(message, version, address)
                self._maybe_repeat_late(message, version, address)
                return answer
            except LostError:
                self._coordinators.pop((kind, key), None)
                await self._pause()

    async def _coordinator_of(self, kind: int, key: str) -> Address:
        while (kind, key) not in self._coordinators:
            response = await self.ask(FindCoordinatorRequest(key=key, key_type=kind), FIND_VERSION)
            if response.error_code == 0:
                self._coordinators[kind, key] = (response.host, response.port)
            else:
                if response.error_code not in self.retried:
                    self.unexpected("FindCoordinator", response.error_code)
                await self._pause()
        return self._coordinators[kind, key]

    async def _pause(self) -> None:
        await self.back_off()

    async def _again(self, what: str, error: int, kind: int = TRANSACTIONAL_ID, key: str = "") -> None:
        """Wait before a request is repeated. Raises FencedError or AbortError if it must not be."""
        self.note(f"{what}: {name_of(error)}")
        if error in FENCING or (error == ErrorCode.INVALID_PRODUCER_ID_MAPPING and self._producer[1] >= HIGH_EPOCH):
            raise FencedError(what)
        if error in ABORTING:
            raise AbortError(what)
        if error not in TRIED_AGAIN and error not in self.retried:
            if not self._is_explained(error):
                self.unexpected(what, error)
            raise FencedError(what)
        if error in MOVED:
            self._coordinators.pop((kind, key or self.transactional_id), None)
        await self._pause()

    def _is_explained(self, error: int) -> bool:
        """From transaction version 2 on a commit that comes after the coordinator's own abort looks like a retry of that (FROM_2 in
        broker/transactions/end_transaction.py, as Kafka's). A former coordinator takes a commit for the end of nothing, or for that of a
        producer that it does not know."""
        attempt = self.attempt
        if attempt is None or attempt.is_touched:
            return attempt is not None
        if error == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return attempt.is_misjudged
        return error == ErrorCode.INVALID_TXN_STATE and (attempt.decided is False or attempt.is_misjudged)

    async def _identify(self, known: Producer) -> None:
        """Get a producer id and epoch, which fences the instances before; with `known` a new epoch for this one."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms, producer_id=known[0], producer_epoch=known[1]
        )
        while True:
            response = await self._ask_coordinator(TRANSACTIONAL_ID, self.transactional_id, request, INIT_VERSION)
            if response.error_code == 0:
                break
            await self._again("InitProducerId", response.error_code)
        self._producer = (response.producer_id, response.producer_epoch)
        self._sequences.clear()
        self.note(f"{self.transactional_id} is producer {self._producer}")
        self._versions = self._old or await self._find_versions()

    async def _find_versions(self) -> Versions:
        """By the finalized transaction.version, as Java's TransactionManager between two transactions."""
        try:
            response = await self.ask(
                ApiVersionsRequest(client_software_name="simulated", client_software_version="1"), API_VERSIONS_VERSION
            )
        except LostError:
            return self._versions
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        return NEW if levels.get(TRANSACTION_VERSION_FEATURE, 0) >= 2 else OLD

    # -- a transaction ---------------------------------------------------------------------------------------------------

    async def _begin(self) -> Attempt:
        if self._old is None and self.draw.random() < 0.2:
            versions = await self._find_versions()
            if versions.bumps_epochs and not self._versions.bumps_epochs:
                await self._identify(self._producer)  # as Java's clients: the transaction before may still be open in a partition
            else:
                self._versions = versions
        self._added.clear()
        self.attempt = self.ledger.begin(self.name, self.transactional_id, self._producer, self.now_s)
        return self.attempt

    async def _send(self, attempt: Attempt, key: Key, values: list[list[str]]) -> None:
        """Append batches to a partition, all of them on their way at once. Raises AbortError when they may still be on their way."""
        if not self._versions.bumps_epochs:
            await self._add_partition(key)
        self._added[key] = None
        batches = [(each, self._build(attempt, key, each)) for each in values]
        tries_left = self.draw.randint(1, 6)
        while batches:
            if tries_left == 0:
                raise AbortError(f"gives up {key}")
            tries_left -= 1
            try:
                await self._send_once(attempt, key, batches)
            except LostError:
                await self._pause()

    def _build(self, attempt: Attempt, key: Key, values: list[str]) -> bytes:
        records = [
            SimpleRecord(
                None,
                f"{value}:".encode() + self.draw.randbytes(self.draw.randrange(VALUE_SIZE_MAX)),
                timestamp=int((EPOCH_S + self.now_s) * 1000),
            )
            for value in values
        ]
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + len(values)
        for value in values:
            attempt.sends.append((key, None, value))
        producer_id, epoch = self._producer
        return bytes(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True))

    async def _send_once(self, attempt: Attempt, key: Key, batches: list[tuple[list[str], bytes]]) -> None:
        address = await self.leader_of(key)
        connection = await self.connected(address)
        requests = [self._produce(key, records) for _, records in batches]
        if self._late_share and self.draw.random() < DELAYED_SHARE:
            delay_s = self.draw.choice((0.0, self._draw_delay_s()))
            self._repeat_late(self.draw.choice(requests), self._versions.produce, address, delay_s)
            raise AbortError(f"has sent to {key} what does not arrive in time")
        answers = [connection.send(request, self._versions.produce) for request in requests]
        error = 0
        for answer in answers:
            response = await answer
            told = response.responses[0].partition_responses[0]
            if error:
                continue  # behind one that was not appended: it is sent again
            error = told.error_code
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                values, _ = batches.pop(0)
                if error == ErrorCode.NONE:
                    self._note_offsets(attempt, key, values, told.base_offset)
                error = 0
        self._maybe_repeat_late(self.draw.choice(requests), self._versions.produce, address)
        if error:
            if error == ErrorCode.INVALID_TXN_STATE and self._versions is OLDEST:
                raise AbortError("it knows no other code for TRANSACTION_ABORTABLE")
            await self._again(f"Produce {key[0]}-{key[1]}", error)

    def _produce(self, key: Key, records: bytes) -> ProduceRequest:
        data = PartitionProduceData(index=key[1], records=memoryview(bytearray(records)))
        topics = [TopicProduceData(name=key[0], partition_data=[data])]
        return ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=1_500, topic_data=topics)

    def _note_offsets(self, attempt: Attempt, key: Key, values: list[str], base_offset: int) -> None:
        offsets = {value: base_offset + index for index, value in enumerate(values)}
        attempt.sends = [
            (sent, offsets.get(value, offset), value) if sent == key else (sent, offset, value) for sent, offset, value in attempt.sends
        ]

    async def _add_partition(self, key: Key) -> None:
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id, v3_and_below_producer_id=producer_id, v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=key[0], partitions=[key[1]])],
        )  # fmt: skip
        while key not in self._added:
            response = await self._ask_coordinator(TRANSACTIONAL_ID, self.transactional_id, request, ADD_PARTITIONS_VERSION)
            error = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if error == 0:
                self._added[key] = None
            else:
                await self._again("AddPartitionsToTxn", error)

    async def _end(self, attempt: Attempt, *, is_commit: bool) -> None:
        """Ask for the outcome until it is told."""
        if not self._added and not self._versions.bumps_epochs:
            self._end_attempt(COMMITTED if is_commit else ABORTED)  # the coordinator knows nothing of it
            return
        self.ledger.ask(attempt, is_commit=is_commit)
        producer_id, epoch = self._producer
        request = EndTxnRequest(transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit)
        while True:
            response = await self._ask_coordinator(TRANSACTIONAL_ID, self.transactional_id, request, self._versions.end)
            if response.error_code == 0:
                break
            await self._again("EndTxn", response.error_code)
        self._end_attempt(COMMITTED if is_commit else ABORTED)
        if response.producer_id >= 0:
            if response.producer_id != producer_id:
                self.loop.trace.cover("producer id replaced")
            self._producer = (response.producer_id, response.producer_epoch)
            if self._producer != (producer_id, epoch):
                self._sequences.clear()

    async def _abort(self, attempt: Attempt) -> None:
        """After an error. What is still on its way must not count for the next transaction: that one needs another epoch."""
        await self._end(attempt, is_commit=False)
        if not self._versions.bumps_epochs or self._producer == attempt.producer:
            await self._identify(self._producer)

    def _end_attempt(self, outcome: str) -> None:
        attempt, self.attempt = self.attempt, None
        if attempt is None:
            return
        if outcome == UNKNOWN and attempt.asked is not True:
            outcome = ABORTED  # only this client could have asked for a commit
        self.ledger.end(attempt, outcome, self.now_s)
        self.operations_count += 1
        values = ", ".join(f"{topic}-{partition}@{offset} {value}" for (topic, partition), offset, value in attempt.sends[:4])
        self.note(f"{outcome} transaction {attempt.number} of {attempt.producer}: {values}")

    # -- late requests -----------------------------------------------------------------------------------------------------

    def _maybe_repeat_late(self, message: Any, version: int, address: Address) -> None:
        if self._late_share and not isinstance(message, InitProducerIdRequest) and self.draw.random() < self._late_share:
            self._repeat_late(message, version, address, self._draw_delay_s())

    def _draw_delay_s(self) -> float:
        return self.draw.expovariate(1 / LATE_MEAN_S)

    def _repeat_late(self, message: Any, version: int, address: Address, delay_s: float) -> None:
        self._late.append(self.loop.create_task(self._repeat(message, version, address, delay_s)))

    async def _repeat(self, message: Any, version: int, address: Address, delay_s: float) -> None:
        """As a network does that has delivered a request's copy only now."""
        await asyncio.sleep(delay_s)
        what = type(message).__name__.removesuffix("Request")
        try:
            connection = await asyncio.wait_for(self.open_connection(self.network, self.host, *address), 2.0)
        except (LostError, TimeoutError):
            return
        try:
            self.note(f"late {what} answered {await connection.send(message, version)}")
            self.loop.trace.cover(f"late {what}")
        except LostError:
            pass
        finally:
            connection.close()
