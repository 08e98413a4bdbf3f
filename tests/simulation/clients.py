"""What all thin clients share, and the producer. Consumers, group members and the admin are in files of their own.

A client belongs to no node: it lives through all faults, connects again, and tries again until the run asks it to stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.simulation.connection import ClientConnection, LostError
from tests.simulation.history import History, Key
from tests.simulation.network import SimulatedNetwork

PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
METADATA_VERSION = 9
CONNECT_TIMEOUT_S = 2.0  # where there are other nodes to try
RETRY_MIN_S, RETRY_MAX_S = 0.01, 0.1
VALUE_SIZE_MAX = 300
EPOCH_S = 1_700_000_000.0  # of the true time when a run begins

RETRIED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""What a stock client tries again."""


Address = tuple[str, int]
Opener = Callable[[SimulatedNetwork, str, str, int], Awaitable[ClientConnection]]
"""Connects a host to a node's host and port; raises LostError."""


class Client:
    """One client on a host of its own, with one connection to each node that it needs. `addresses` are those of all nodes.

    `open_connection` and `retried`, the errors that it tries again, are set by worlds whose brokers ask who it is, and what it may do."""

    def __init__(self, name: str, network: SimulatedNetwork, addresses: list[Address], history: History, draw: random.Random) -> None:
        self.name = name
        self.host = name
        self.network = network
        self.loop = network.loop
        self.history = history
        self.draw = draw
        self.is_stopping = False
        self.operations_count = 0
        self.open_connection: Opener = ClientConnection.open
        self.retried = RETRIED
        self._addresses = addresses
        self._home = addresses[0]  # the node that is asked what any node can answer
        self._connections: dict[Address, ClientConnection] = {}
        self._leaders: dict[Key, Address] = {}
        self._brokers: dict[int, Address] = {}  # by node id
        self._leader_epochs: dict[Key, int] = {}  # the newest that this client has heard of

    @property
    def now_s(self) -> float:
        return self.loop.time()

    @property
    def is_of_cluster(self) -> bool:
        return len(self._addresses) > 1

    async def connected(self, to: Address | None = None) -> ClientConnection:
        """The connection to `to`, or to any node, a new one if there is none. LostError when nobody answers."""
        connection = self._connections.get(to or self._home)
        if connection is None or connection.is_closed:
            if to is None and self.is_of_cluster:
                self._home = self.draw.choice(self._addresses)
            address = to or self._home
            opened = self.open_connection(self.network, self.host, *address)
            try:
                connection = await (asyncio.wait_for(opened, CONNECT_TIMEOUT_S) if self.is_of_cluster else opened)
            except TimeoutError as error:
                raise LostError("connecting took too long") from error
            self._connections[address] = connection
        await connection.refresh()
        return connection

    async def ask(self, message: Any, version: int, to: Address | None = None) -> Any:
        """The answer to one request, of `to` or of any node; raises LostError."""
        return await (await self.connected(to)).send(message, version)

    async def leader_of(self, key: Key) -> Address:
        """Where the partition's leader is, as far as this client knows. LostError when nobody tells."""
        if not self.is_of_cluster:
            return self._home
        if key not in self._leaders:
            response = await self.ask(MetadataRequest(topics=None), METADATA_VERSION)
            self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            for topic in response.topics:
                for partition in topic.partitions:
                    self._note_leader(
                        (topic.name, partition.partition_index), partition.leader_epoch, self._brokers.get(partition.leader_id)
                    )
        if key not in self._leaders:
            raise LostError(f"{key} has no leader")
        return self._leaders[key]

    def _note_leader(self, key: Key, epoch: int, leader: Address | None) -> None:
        """As stock clients do (KIP-320): what a node says that is behind, of an epoch that is over, is not believed."""
        if leader is not None and epoch >= self._leader_epochs.get(key, -1):
            self._leaders[key] = leader
            self._leader_epochs[key] = epoch

    def leader_epoch_of(self, key: Key) -> int:
        """The newest that this client has heard of; -1 before it has asked."""
        return self._leader_epochs.get(key, -1)

    def note_leader_epoch(self, key: Key, epoch: int) -> None:
        """There is a leader of `epoch`, or was: one of an earlier epoch is not asked any more."""
        if epoch > self._leader_epochs.get(key, -1):
            self._leader_epochs[key] = epoch
            self._leaders.pop(key, None)

    async def back_off(self) -> None:
        """Wait a little, and ask anew who leads."""
        self._leaders.clear()
        await asyncio.sleep(self.draw.uniform(RETRY_MIN_S, RETRY_MAX_S))

    def note(self, text: str) -> None:
        self.loop.note(self.name, text)

    def unexpected(self, what: str, error: int) -> None:
        """An answer that no fault explains."""
        self.history.find("unexpected-error", (round(self.now_s, 6), self.name, what, name_of(error)))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


@dataclass(slots=True)
class Batch:
    """Records that were given a sequence number, and whether they are acknowledged."""

    values: list[str]
    records: bytes
    sequence: int
    invoked_s: float
    tries_count: int = 0
    offset: int | None = None
    is_done: bool = False


@dataclass(slots=True)
class Lane:
    """What an idempotent producer knows of one partition."""

    key: Key
    acks: int
    sequence: int = 0
    acknowledged_s: float = 0.0
    window: list[Batch] = field(default_factory=list)


class Producer(Client):
    """Idempotent, with up to `depth` batches of a partition on their way; tries again until every batch is acknowledged."""

    def __init__(self, *arguments: Any, keys: Iterable[Key], acks: int, depth: int, pause_s: float) -> None:
        super().__init__(*arguments)
        self._lanes = [Lane(key, acks) for key in keys]
        self._depth = depth
        self._pause_s = pause_s
        self._producer_id = -1
        self._producer_epoch = -1
        self._values_count = 0

    async def run(self) -> None:
        """Send to one partition after the other until stopped. What was begun is ended first."""
        while not self.is_stopping:
            lane = self.draw.choice(self._lanes)
            try:
                await self._identify()
                self._fill(lane)
                await self._send_window(lane)
            except LostError:
                await self.back_off()
                await self._end_window(lane)
            await asyncio.sleep(self.draw.expovariate(1 / self._pause_s))

    async def _end_window(self, lane: Lane) -> None:
        """Try again until all that was sent is acknowledged, or its producer id is given up."""
        while lane.window:
            try:
                await self._identify()
                await self._send_window(lane)
            except LostError:
                await self.back_off()

    async def _identify(self) -> None:
        while self._producer_id < 0:
            response = await self.ask(InitProducerIdRequest(transactional_id=None), INIT_PRODUCER_ID_VERSION)
            if response.error_code == 0:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                self.note(f"is producer {self._producer_id}")
                for lane in self._lanes:
                    lane.sequence = 0
            else:
                if response.error_code not in self.retried:
                    self.unexpected("InitProducerId", response.error_code)
                await self.back_off()

    def _fill(self, lane: Lane) -> None:
        for _ in range(self.draw.randint(1, self._depth)):
            values = []
            for _ in range(self.draw.choice((1, 1, 2, 5))):
                self._values_count += 1
                values.append(f"{self.name}.{self._values_count}")
            records = [SimpleRecord(None, self._padded(value), timestamp=int((EPOCH_S + self.now_s) * 1000)) for value in values]
            batch = build_batch(records, producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=lane.sequence)
            lane.window.append(Batch(values, bytes(batch), lane.sequence, self.now_s))
            lane.sequence += len(values)

    def _padded(self, value: str) -> bytes:
        return f"{value}:".encode() + self.draw.randbytes(self.draw.randrange(VALUE_SIZE_MAX))

    async def _send_window(self, lane: Lane) -> None:
        """Send all that is not acknowledged, in order, until it is. Raises LostError: whether the rest was appended is unknown."""
        while lane.window:
            connection = await self.connected(await self.leader_of(lane.key))
            answers = [connection.send(self._request(lane, batch), PRODUCE_VERSION) for batch in lane.window]
            for batch in lane.window:
                batch.tries_count += 1
            for batch, answer in zip(list(lane.window), answers, strict=True):
                response = await answer
                if not self._take(lane, batch, response.responses[0].partition_responses[0]):
                    break
            else:
                continue
            if not lane.window:
                return  # given up
            for answer in answers:  # those behind it were answered too, and are sent again
                await answer
            await self.back_off()

    def _request(self, lane: Lane, batch: Batch) -> ProduceRequest:
        data = PartitionProduceData(index=lane.key[1], records=memoryview(bytearray(batch.records)))
        return ProduceRequest(acks=lane.acks, timeout_ms=1_500, topic_data=[TopicProduceData(name=lane.key[0], partition_data=[data])])

    def _take(self, lane: Lane, batch: Batch, answer: Any) -> bool:
        """Whether the batch, the first of its window, is acknowledged."""
        error = answer.error_code
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.window.pop(0)
            lane.acknowledged_s = self.now_s
            if error == ErrorCode.NONE and answer.base_offset < 0:
                self.history.find("no-offset", (lane.key, batch.values, answer.base_offset))
            self._record(lane, batch, "ok", answer.base_offset if error == ErrorCode.NONE else None)
            return True
        self.note(f"{lane.key[0]}-{lane.key[1]} sequence {batch.sequence}: {name_of(error)}")
        if error not in self.retried:
            # A power cut may take a batch that was not acknowledged and leave one behind it in the next segment (storage/recovery.py).
            # And a leader of the past, which has not heard of the new one yet, lacks what that one has acknowledged, as with Kafka.
            since_s = batch.invoked_s if self.history.is_durable(lane.key) else 0.0
            may_be_lost = self.is_of_cluster or self.history.lost_power_since(since_s)
            if error not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID) or not may_be_lost:
                self.unexpected(f"Produce {lane.key} sequence {batch.sequence}", error)
            self._give_up()
        return False

    def _give_up(self) -> None:
        """Go on with a new producer id; whether what was sent under the old one is there, or will be, is unknown."""
        for lane in self._lanes:
            for batch in lane.window:
                self._record(lane, batch, "info", None)
            lane.window.clear()
        self._producer_id = -1

    def _record(self, lane: Lane, batch: Batch, outcome: str, base_offset: int | None) -> None:
        self.operations_count += 1
        offsets = [None if base_offset is None else base_offset + index for index in range(len(batch.values))]
        steps = [("send", lane.key, offset, value) for offset, value in zip(offsets, batch.values, strict=True)]
        self.history.add(self.name, "send", outcome, steps, batch.invoked_s, self.now_s)
        where = "?" if base_offset is None else base_offset
        self.note(f"{outcome} {lane.key[0]}-{lane.key[1]}@{where} {batch.values[0]}+{len(batch.values) - 1} tries {batch.tries_count}")


def name_of(error: int) -> str:
    try:
        return ErrorCode(error).name
    except ValueError:
        return str(error)
