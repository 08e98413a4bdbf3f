"""Transactional producers with almost no cost of their own: each sends one batch, commits, and begins the next transaction.

They follow transaction version 2 (Produce 12, EndTxn 5), as the producers of Java and librdkafka do with a broker that has it: the leader
adds its partition to the transaction, and each commit gives the epoch of the next transaction. The frames are encoded beforehand; what
differs between transactions (epoch, sequence, CRC) is patched. One thread serves all producers by epoll.

Each producer has one connection to the leader of its partition and one to its coordinator, or one for both if that is the same broker. On
several brokers it never is: a transactional id is chosen whose coordinator is another broker.

Without `--rate` a producer begins as soon as its last transaction is committed. With it the only producer begins on a schedule, latencies
count from the schedule, and a second connection reads the partition with READ_COMMITTED: the latency that is measured then is that of the
record's arrival there.
`python -m bench.clients.transactions --port 9092 --topic t --producers 10` prints one JSON line.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import select
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time

from bench.clients.open_loop import READ_COMMITTED, Tail
from bench.clients.raw_produce import RECEIVE_SIZE, TIMESTAMP_MS, connect
from bench.clients.wire import CLIENT_ID, WireClient
from bench.usage import cpu_seconds
from protocol.checksum import crc32c
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.headers import RequestHeader
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch

PRODUCE_KEY, PRODUCE_VERSION = 0, 12
END_TXN_KEY, END_TXN_VERSION = 26, 5
FLEXIBLE_HEADER = 2
INIT_VERSION, FIND_VERSION, METADATA_VERSION = 5, 4, 8
TRANSACTIONAL_ID = 1  # key type
TRANSACTION_TIMEOUT_MS = 60_000
IDS_AT_ONCE = 32  # one with a coordinator in the right place is chosen from so many

# Positions within a batch.
CRC, CRC_START, PRODUCER_ID = 17, 21, 43

RETRY_S = 0.02
"""Kafka's producer waits so long, or longer, where it may try again."""
RETRIABLE = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS})
NOT_READY = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, *RETRIABLE})
READY_TIMEOUT_S = 60.0
STALL_TIMEOUT_S = 30.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TransactionsResult:
    """Latencies in microseconds. `requests` are the measured transactions; `transactions` are all that were committed, those of the warm-up
    included. The arrival is zero without `--rate`. `retries` are answers that made a producer wait and ask again."""

    producers: int
    requests: int
    transactions: int
    seconds: float
    transactions_per_second: float
    commit_p50_us: float
    commit_p99_us: float
    whole_p50_us: float
    whole_p99_us: float
    arrival_p50_us: float
    arrival_p99_us: float
    retries: int
    client_cpu_seconds: float
    broker_cpu_seconds: float


class Producer:
    """One transaction at a time. Owns its two frames; the connections are the load's."""

    def __init__(self, options: argparse.Namespace, found: Found) -> None:
        self.leader = connect(*found.leader)
        self.coordinator = self.leader if found.coordinator == found.leader else connect(*found.coordinator)
        record = SimpleRecord(None, b"x" * options.size, timestamp=TIMESTAMP_MS)
        batch = bytes(build_batch([record] * options.records, producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True))
        data = [
            TopicProduceData(name=options.topic, partition_data=[PartitionProduceData(index=found.partition, records=memoryview(batch))])
        ]
        request = ProduceRequest(transactional_id=found.transactional_id, acks=-1, timeout_ms=30_000, topic_data=data)
        self._produce = _frame(PRODUCE_KEY, PRODUCE_VERSION, request)
        self._batch = self._produce.index(batch)
        self._batch_end = self._batch + len(batch)
        self._end = _frame(END_TXN_KEY, END_TXN_VERSION, EndTxnRequest(transactional_id=found.transactional_id, committed=True))
        self._end_producer = len(self._end) - 12  # an id, an epoch, the outcome, no tags
        self._error_position = 4 + 5 + 1 + 1 + len(options.topic) + 1 + 4  # size, header, one topic, its name, one partition, its index
        self.set_identity(found.producer_id, found.producer_epoch)
        self.is_committing = False
        self.began_at = self.commit_at = 0.0

    def set_identity(self, producer_id: int, producer_epoch: int) -> None:
        """Of the next transaction."""
        frame, batch = self._produce, self._batch
        struct.pack_into(">qhi", frame, batch + PRODUCER_ID, producer_id, producer_epoch, 0)
        struct.pack_into(">I", frame, batch + CRC, crc32c(memoryview(frame)[batch + CRC_START : self._batch_end]))
        struct.pack_into(">qh", self._end, self._end_producer, producer_id, producer_epoch)

    def send(self) -> None:
        """Send what is to be answered next."""
        if self.is_committing:
            self.coordinator.sendall(self._end)
        else:
            self.leader.sendall(self._produce)

    def receive(self) -> int:
        """Read the answer and return its error. The answer to a commit has the next transaction's producer."""
        answer = (self.coordinator if self.is_committing else self.leader).recv(RECEIVE_SIZE)
        if not answer:
            raise ConnectionResetError("the broker closed the connection")
        if not self.is_committing:
            return int(struct.unpack_from(">h", answer, self._error_position)[0])
        error, producer_id, producer_epoch = struct.unpack_from(">hqh", answer, 13)
        if not error:
            self.set_identity(producer_id, producer_epoch)
        return int(error)


@dataclass(frozen=True, slots=True)
class Found:
    """Where a producer's partition is led and its id is coordinated, and what it begins with."""

    transactional_id: str
    partition: int
    leader: Address
    coordinator: Address
    producer_id: int
    producer_epoch: int


class Load:
    """The producers, driven together. Owns the latencies of the last run, in seconds."""

    def __init__(self, producers: Sequence[Producer], tail: Tail | None, rate: int) -> None:
        self._producers = producers
        self._tail = tail
        self._interval = 1.0 / rate if rate else 0.0
        self._by_descriptor = {
            connection.fileno(): place for place, each in enumerate(producers) for connection in (each.leader, each.coordinator)
        }
        self._due: list[tuple[float, int]] = []  # when a producer sends, by its place
        self._begun: list[float] = []  # of a schedule, from the first run on
        self._arrived_count = 0
        self._stops_at = 0.0
        self._working_count = 0
        self.committed_count = self.retries = 0
        self.commits: list[float] = []
        self.wholes: list[float] = []
        self.arrivals: list[float] = []

    def run(self, seconds: float) -> float:
        """Transactions that begin within `seconds`, to the end of the last. Returns how long that took."""
        self.commits, self.wholes, self.arrivals = [], [], []
        started = perf_counter()
        self._stops_at = started + seconds
        self._working_count = len(self._producers)
        for place in range(len(self._producers)):
            self._begin_at(started, place)
        with select.epoll() as poll:
            for descriptor in self._by_descriptor:
                poll.register(descriptor, select.EPOLLIN)
            if self._tail is not None:
                poll.register(self._tail.connection.fileno(), select.EPOLLIN)
            while self._working_count or self._arrived_count < len(self._begun):
                self._send_due()
                events = poll.poll(max(self._due[0][0] - perf_counter(), 0.0) if self._due else STALL_TIMEOUT_S)
                if not events and not self._due:
                    raise RuntimeError(f"no answer for {STALL_TIMEOUT_S} s")
                for descriptor, _ in events:
                    place = self._by_descriptor.get(descriptor)
                    if place is None:
                        self._take_records()
                    else:
                        self._take_answer(place)
        return perf_counter() - started

    def _begin_at(self, time_s: float, place: int) -> None:
        self._producers[place].began_at = time_s
        if self._tail is not None:
            self._begun.append(time_s)
        heapq.heappush(self._due, (time_s, place))

    def _send_due(self) -> None:
        now = perf_counter()
        while self._due and self._due[0][0] <= now:
            self._producers[heapq.heappop(self._due)[1]].send()

    def _take_answer(self, place: int) -> None:
        producer = self._producers[place]
        error = producer.receive()
        now = perf_counter()
        if error in RETRIABLE:
            self.retries += 1
            heapq.heappush(self._due, (now + RETRY_S, place))
        elif error:
            raise RuntimeError(f"{'commit' if producer.is_committing else 'produce'}: error {ErrorCode(error).name}")
        elif not producer.is_committing:
            producer.is_committing, producer.commit_at = True, now
            producer.send()
        else:
            producer.is_committing = False
            self.committed_count += 1
            self.commits.append(now - producer.commit_at)
            self.wholes.append(now - producer.began_at)
            next_s = producer.began_at + self._interval if self._interval else now
            if next_s < self._stops_at:
                self._begin_at(next_s, place)
            else:
                self._working_count -= 1

    def _take_records(self) -> None:
        """A transaction is a record and a marker: both have an offset."""
        assert self._tail is not None
        self._tail.receive()
        now = perf_counter()
        for place in range(self._arrived_count, (self._tail.next_offset + 1) // 2):
            self.arrivals.append(now - self._begun[place])
            self._arrived_count += 1


def run(options: argparse.Namespace) -> TransactionsResult:
    """`warmup` and then `seconds` of transactions; raises RuntimeError when the broker answers with an error."""
    found = _find(options)
    load = Load(
        [Producer(options, each) for each in found],
        Tail(connect(*found[0].leader), options.topic, READ_COMMITTED) if options.rate else None,
        options.rate,
    )
    load.run(options.warmup)
    retries = load.retries
    broker_cpu = cpu_seconds(*options.broker_pid)
    cpu = process_time()
    seconds = load.run(options.seconds)
    cpu = process_time() - cpu
    broker_cpu = cpu_seconds(*options.broker_pid) - broker_cpu
    count = len(load.wholes)
    return TransactionsResult(
        options.producers,
        count,
        load.committed_count,
        seconds,
        count / seconds,
        *_quantiles(load.commits),
        *_quantiles(load.wholes),
        *_quantiles(load.arrivals),
        load.retries - retries,
        cpu,
        broker_cpu,
    )


def _quantiles(latencies: list[float]) -> tuple[float, float]:
    """p50 and p99 in microseconds, zeros without latencies."""
    latencies.sort()
    count = len(latencies)
    return (1e6 * latencies[count // 2], 1e6 * latencies[count * 99 // 100]) if count else (0.0, 0.0)


def _frame(key: int, version: int, request: object) -> bytearray:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=0, client_id=CLIENT_ID)
    frame = encode(header, FLEXIBLE_HEADER) + encode(request, version)
    return bytearray(struct.pack(">i", len(frame)) + frame)


# Preparation.


def _find(options: argparse.Namespace) -> list[Found]:
    """A place and an id for each producer: producer i writes to partition i modulo the topic's partitions."""
    with WireClient(options.host, options.port) as client:
        metadata = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=options.topic)]), METADATA_VERSION)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        leaders = {each.partition_index: each.leader_id for each in metadata.topics[0].partitions}
        others = dict(zip(sorted(brokers), [*sorted(brokers)[1:], min(brokers)], strict=True))
        ids = _Ids(client)
        found = []
        for number in range(options.producers):
            partition = number % len(leaders)
            leader = leaders[partition]
            transactional_id = ids.take(others[leader])
            producer_id, epoch = _new_producer(brokers[others[leader]], transactional_id)
            found.append(Found(transactional_id, partition, brokers[leader], brokers[others[leader]], producer_id, epoch))
    return found


class _Ids:
    """Transactional ids by their coordinators. They are new in each run, so that none begins within another run's transaction."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._names = (f"bench-{os.getpid()}-{time.monotonic_ns()}-{number}" for number in itertools.count())
        self._by_node: dict[int, list[str]] = {}

    def take(self, node_id: int) -> str:
        """An id that this node coordinates."""
        deadline = perf_counter() + READY_TIMEOUT_S
        while not self._by_node.get(node_id):
            keys = list(itertools.islice(self._names, IDS_AT_ONCE))
            answer = self._client.request(FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=keys), FIND_VERSION)
            for each in answer.coordinators:
                if not each.error_code:
                    self._by_node.setdefault(each.node_id, []).append(each.key)
            if perf_counter() > deadline:
                raise RuntimeError(f"no transactional id has its coordinator on node {node_id}: {answer}")
            if answer.coordinators[0].error_code:
                time.sleep(RETRY_S)  # the first one makes the broker create `__transaction_state`
        return self._by_node[node_id].pop()


def _new_producer(coordinator: Address, transactional_id: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    deadline = perf_counter() + READY_TIMEOUT_S
    with WireClient(*coordinator) as client:
        while True:
            answer = client.request(request, INIT_VERSION)
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            if answer.error_code not in NOT_READY or perf_counter() > deadline:
                raise RuntimeError(f"no producer id: {answer}")
            time.sleep(RETRY_S)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="commit small transactions")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--records", type=int, default=1, help="in each transaction")
    parser.add_argument("--size", type=int, default=100, help="bytes of a record's value")
    parser.add_argument("--rate", type=int, default=0, help="transactions per second of a single producer with one record each")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds")
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="once for each broker of a cluster")
    print(json.dumps(asdict(run(parser.parse_args(arguments)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
