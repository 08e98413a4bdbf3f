"""The ledger of a sink: what has been decided about its batches, in a compacted topic.

All records of a sink lie in one partition, whose order decides. A generation is a run of one batch; it begins with a record of its own,
whose offset is its number. A decision of a generation counts if no record of a later generation is before it: a driver that was away, and
has been replaced, reads this from the log after it has written, and so does the driver that has replaced it.

| key | value | written by |
| --- | --- | --- |
| `<sink>/generation` | who has begun it | each run of a batch, before it plans |
| `<sink>/query` | the query that owns the sink | the first decision |
| `<sink>/decision/<generation>` | see Decision | `commit`, before it ends the first transaction; once more when all have ended |
| `<sink>/part/<partition>` | see Part | a task, in its transaction |

The key of a decision has its generation, so that compaction never puts a late one in the place of one that counts. The next decision
removes it. Compaction may remove the record of a generation between a decision that does not count and the newest generation; its
transactions were aborted by then, so that nothing of it can be committed.
"""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from ...protocol.compression import Compression
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ...protocol.records import SimpleRecord, build_batch
from ..client.cluster import BACKOFF_S, RETRIED, Cluster, describe
from ..client.fetching import EARLIEST, LATEST, Isolation, RangeReader, list_offsets
from ..client.transaction import OpenTransaction
from ..errors import BrokerError, OptionError
from ..records.arrays import binary_array
from ..records.decode import decode_columns
from ..records.encode import Batch, encode_batches

PARTITIONS_COUNT = 8
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}
"""Small segments, since each batch reads what compaction has left."""
TOPIC_RESOURCE = 2
PRODUCE_TIMEOUT_MS = 30_000
STABLE_DEADLINE_S = 60.0


class LedgerError(BrokerError):
    """The ledger forbids it: another query owns the sink, or a newer driver has replaced this one."""


class Part(NamedTuple):
    """What a task has written of a batch. `checksum` does not depend on the order of the rows."""

    batch: int
    generation: int
    rows: int
    checksum: int


class DecidedPart(NamedTuple):
    """A task's part of a decision, and the transaction that it is in."""

    transaction: OpenTransaction
    rows: int
    checksum: int


class Decision(NamedTuple):
    """A batch is to be committed: each of `parts`, by Spark's partition. `is_done`: all transactions have ended so."""

    batch: int
    generation: int
    query: str
    parts: dict[int, DecidedPart]
    is_done: bool = False

    def to_json(self) -> str:
        parts = {str(number): [*part.transaction, part.rows, part.checksum] for number, part in self.parts.items()}
        return json.dumps({**self._asdict(), "parts": parts}, separators=(",", ":"))

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Self:
        parts = {int(number): DecidedPart(OpenTransaction(*part[:3]), *part[3:]) for number, part in told["parts"].items()}
        return cls(told["batch"], told["generation"], told["query"], parts, told["is_done"])


class State(NamedTuple):
    """What the ledger says of a sink. `query` is "" before its first decision. `generation` is the newest, -1 for none; `decision` the
    newest one that counts; `superseded` are the generations whose decisions are not needed any more."""

    query: str
    generation: int
    decision: Decision | None
    superseded: frozenset[int]
    parts: dict[int, Part]


class Ledger:
    """One sink's part of the topic. Raises BrokerError where the brokers refuse, LedgerError where the ledger does."""

    def __init__(self, cluster: Cluster, topic: str, sink: str) -> None:
        self._cluster = cluster
        self.topic = topic
        self._sink = sink
        self._partition: int | None = None

    @property
    def partition(self) -> int:
        if self._partition is None:
            found = self._cluster.topic(self.topic)
            if found is None:
                raise BrokerError(f"the ledger's topic {self.topic} does not exist")
            self._partition = zlib.crc32(self._sink.encode()) % found.partitions_count
        return self._partition

    def prepare(self) -> None:
        """Make the topic unless it exists. OptionError if it is not compacted."""
        if self._cluster.topic(self.topic) is None:
            config = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIG.items()]
            wanted = CreatableTopic(name=self.topic, num_partitions=PARTITIONS_COUNT, replication_factor=-1, configs=config)
            answer = self._cluster.ask_controller(CreateTopicsRequest(topics=[wanted]), lambda answer: int(answer.topics[0].error_code))
            code = answer.topics[0].error_code
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(
                    f"the ledger's topic {self.topic} cannot be made: {describe(code)} {answer.topics[0].error_message or ''}"
                )
            deadline_s = time.monotonic() + self._cluster.deadline_s
            while self._cluster.topic(self.topic) is None:
                if time.monotonic() > deadline_s:
                    raise BrokerError(f"the ledger's topic {self.topic} was made and is not there")
                time.sleep(BACKOFF_S)
            return
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=self.topic, configuration_keys=["cleanup.policy"])
        answer = self._cluster.ask_any(DescribeConfigsRequest(resources=[resource]), lambda answer: int(answer.results[0].error_code))
        result = answer.results[0]
        if result.error_code:
            raise BrokerError(f"the configuration of the ledger's topic {self.topic}: {describe(result.error_code)}")
        policy = next((each.value for each in result.configs if each.name == "cleanup.policy"), "")
        if policy != "compact":
            raise OptionError(f"the ledger's topic {self.topic} has cleanup.policy={policy}: it has to be compact, or decisions are lost")

    # -- what it says --------------------------------------------------------------------------------------------------

    def read(self) -> State:
        """What drivers have written, up to now. `parts` is empty."""
        return self._state_of(self._records(Isolation.READ_UNCOMMITTED))

    def read_parts(self) -> dict[int, Part]:
        """The parts whose transactions are committed, the newest of each partition. Waits until none of those that are open now is."""
        return self._state_of(self._records(Isolation.READ_COMMITTED)).parts

    def is_over(self, generation: int) -> bool:
        """Whether a later generation has begun, or this one has decided: what begins to write now is of no use."""
        records = self._records(Isolation.READ_UNCOMMITTED, start=generation)
        return any(name == f"decision/{generation}" or (name == "generation" and offset > generation) for offset, name, _ in records)

    def _records(self, isolation: Isolation, start: int | None = None) -> Iterable[tuple[int, str, Any]]:
        """From `start` on, None for the beginning."""
        cluster, partition = self._cluster, self.partition
        end = list_offsets(cluster, self.topic, [partition], LATEST)[partition]
        if isolation is Isolation.READ_COMMITTED:
            self._await_stable(end)
        if start is None:
            start = list_offsets(cluster, self.topic, [partition], EARLIEST)[partition]
        prefix = f"{self._sink}/".encode()
        for payloads in RangeReader(cluster, self.topic, partition, start=start, end=end, isolation=isolation):
            columns = decode_columns(payloads, start_offset=start, end_offset=end)
            for offset, key, value in zip(columns.offset.to_pylist(), columns.key.to_pylist(), columns.value.to_pylist(), strict=True):
                if key is not None and key.startswith(prefix):
                    yield offset, key.removeprefix(prefix).decode(), None if value is None else json.loads(value)

    def _await_stable(self, end: int) -> None:
        deadline_s = time.monotonic() + STABLE_DEADLINE_S
        while True:
            stable = list_offsets(self._cluster, self.topic, [self.partition], LATEST, Isolation.READ_COMMITTED)[self.partition]
            if stable >= end:
                return
            if time.monotonic() > deadline_s:
                where = f"{self.topic}-{self.partition} at offset {stable}"
                raise BrokerError(f"a transaction stays open in {where}: kafka-transactions find-hanging names it")
            time.sleep(BACKOFF_S)

    @staticmethod
    def _state_of(records: Iterable[tuple[int, str, Any]]) -> State:
        query, generation = "", -1
        decision: Decision | None = None
        decided: set[int] = set()
        parts: dict[int, Part] = {}
        for offset, name, told in records:
            kind, _, rest = name.partition("/")
            if kind == "generation":
                generation = offset
            elif kind == "query" and told is not None:
                query = query or told["query"]
            elif kind == "part" and told is not None:
                parts[int(rest)] = Part(**told)
            elif kind == "decision" and told is None:
                decided.discard(int(rest))
            elif kind == "decision":
                found = Decision.from_json(told)
                decided.add(found.generation)
                is_newer = decision is None or found.generation >= decision.generation
                if is_newer and found.generation >= generation:  # otherwise a newer driver has taken over before
                    decision = found
        superseded = frozenset(decided - ({decision.generation} if decision is not None else set()))
        return State(query, generation, decision, superseded, parts)

    # -- what is written -----------------------------------------------------------------------------------------------

    def begin_generation(self) -> State:
        """Take the next generation. Returns the state, in which it is the newest."""
        wanted = self._append([("generation", json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))])
        state = self.read()
        if state.generation != wanted:
            raise LedgerError(f"another driver of the sink {self._sink} has begun a moment later")
        return state

    def bind(self, query: str) -> None:
        """The sink is this query's from now on. LedgerError if it is another's."""
        state = self.read()
        if not state.query:
            self._append([("query", json.dumps({"query": query}))])
            state = self.read()
        check_owner(self._sink, state.query, query)

    def decide(self, decision: Decision, superseded: Iterable[int] = ()) -> None:
        """Returns when it counts. LedgerError if a newer generation has begun before. `superseded` are generations whose decisions are
        removed."""
        self._append([(f"decision/{decision.generation}", decision.to_json()), *((f"decision/{each}", None) for each in superseded)])
        found = self.read().decision
        if found is None or (found.generation, found.batch) != (decision.generation, decision.batch):
            raise LedgerError(f"batch {decision.batch} of the sink {self._sink} is not decided: a newer driver has replaced this one")

    def finish(self, decision: Decision) -> None:
        """All transactions of the decision are committed."""
        self._append([(f"decision/{decision.generation}", decision._replace(is_done=True).to_json())])

    def adopt(self, decision: Decision, generation: int) -> None:
        """A decision of an earlier generation is complete. It becomes one of this generation: a record of the earlier one would not
        count any more."""
        adopted = decision._replace(generation=generation, is_done=True)
        self._append([(f"decision/{generation}", adopted.to_json()), (f"decision/{decision.generation}", None)])

    def forget(self, generation: int) -> None:
        """Remove what is known of a sink that will not be used again; this is its newest generation."""
        self._append([("generation", None), (f"decision/{generation}", None)])

    def part_batch(self, partition: int, part: Part) -> Batch:
        """The record of a task's part, for its transaction."""
        key = binary_array([f"{self._sink}/part/{partition}".encode()])
        value = binary_array([json.dumps(part._asdict()).encode()])
        times = np.array([int(time.time() * 1000)], np.int64)
        return next(encode_batches(key, value, None, times, batch_bytes=1 << 20, codec=Compression.NONE))

    def _append(self, records: list[tuple[str, str | None]]) -> int:
        """Returns the offset of the first record."""
        now_ms = int(time.time() * 1000)
        made = [
            SimpleRecord(f"{self._sink}/{key}".encode(), None if value is None else value.encode(), (), timestamp=now_ms)
            for key, value in records
        ]
        data = PartitionProduceData(index=self.partition, records=bytes(build_batch(made)))
        request = ProduceRequest(
            acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[TopicProduceData(name=self.topic, partition_data=[data])]
        )
        deadline_s = time.monotonic() + self._cluster.deadline_s
        why = ""
        while time.monotonic() < deadline_s:  # a record that is appended twice says the same twice
            try:
                leader = self._cluster.leader(self.topic, self.partition)
                answer = self._cluster.ask_node(leader, request).responses[0].partition_responses[0]
                if not answer.error_code:
                    return int(answer.base_offset)
                if answer.error_code not in RETRIED:
                    raise BrokerError(f"the ledger {self.topic}-{self.partition} refuses a record: {describe(answer.error_code)}")
                why = describe(answer.error_code)
            except OSError as error:
                why = str(error)
            time.sleep(BACKOFF_S)
            try:
                self._cluster.refresh((self.topic,))
            except OSError as error:
                why = str(error)
        raise BrokerError(f"the ledger {self.topic}-{self.partition} took no record for {self._cluster.deadline_s:.0f} s: {why}")


def check_owner(sink: str, owner: str, query: str) -> None:
    """LedgerError if the sink is another query's."""
    if owner and owner != query:
        raise LedgerError(
            f"the sink {sink} belongs to the query {owner}, not to {query}: give this query an id of its own (a query whose checkpoint was "
            "deleted is another query)"
        )
