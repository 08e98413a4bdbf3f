"""The same requests to Apache Kafka's coordinator and to ours: every answer must be the same, the state that follows it, and the records.

Random dialogues of one producer after another, at each finalized transaction version and at the request versions on both sides of each
change. Each request waits until the one before has had all its consequences, because what is answered meanwhile depends on time. Producer
ids are named by the order in which they come.

Known differences are not asked for: at transaction.version 0 an EndTxn of version 5, or an addition of a broker's, which Kafka fails and
after which the id is pending until the next load; the epoch before an end below version 2, in an EndTxn of version 5, which Kafka takes
for a retry; and what Kafka answers with UNKNOWN_SERVER_ERROR: an InitProducerId with another epoch than the exhausted one, and a commit
with epoch 32767.

Ids near the end of their epochs are put into the log before Kafka reads it, with that epoch 32767 that bugs of its own have left behind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from broker.transactions.state import COMPLETE_ABORT, COMPLETE_COMMIT
from broker.transactions.stored_transaction import encode_key
from broker.transactions.transaction import LAST_CLIENT_EPOCH, LAST_EPOCH
from protocol.codec import decode, encode
from protocol.compression import Buffer
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.messages.stored.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.messages.stored.version_prefix import decode_with_version, encode_with_version
from protocol.records import SimpleRecord, build_batch, iterate_headers, iterate_records
from tests.broker.transactions.room import Room, shown_transaction
from tests.support.kafka import KafkaServer
from tests.support.wire import WireClient, frame

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "unstable.api.versions.enable": "true",
}
TIMEOUT_MS = 60_000
SEEDS = 15
STEPS = 40
SETTLE_S = 20.0
TRANSACTION_KEY = 1
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name
OTHER = 999_999
OLD_IDS = 36
"""Ids that are in the log before the coordinator loads it: each state with each of the last six epochs."""
OLD_PRODUCER_ID, OLD_NEXT_PRODUCER_ID = 500_000, 600_000
OLD_TIMEOUT_MS = 900_000
PRODUCE_VERSION = 9
RESPONSE_HEADER_BYTES = 5
ADMIN_CLIENT_ID = b"__admin_client"
"""A client that may produce to internal topics."""

OLDEST_WITH_BUMP = {"end": 5, "add": 4}
"""The first version of a request that follows the rules of transaction version 2."""


class Step(NamedTuple):
    """A request; `producer` is a name and an epoch, None for a new producer's InitProducerId."""

    kind: str
    version: int
    producer: tuple[int, int] | None
    partition: int = 0
    is_commit: bool = False
    timeout_ms: int = TIMEOUT_MS
    keep_prepared: bool = False


class Names:
    """Producer ids by the order in which they came; -1 stays, and so does an id that no one has."""

    def __init__(self) -> None:
        self._ids: list[int] = []

    def name_of(self, producer_id: int) -> int:
        if producer_id in (-1, OTHER):
            return producer_id
        if producer_id not in self._ids:
            self._ids.append(producer_id)
        return self._ids.index(producer_id)

    def id_of(self, name: int) -> int:
        return self._ids[name] if 0 <= name < len(self._ids) else name

    def shown(self, text: str) -> str:
        """A text of the room's, with the name in place of the id."""
        words = [
            f"{self.name_of(int(word.split(':')[0]))}:{word.split(':')[1]}" if ":" in word and not word.startswith("-") else word
            for word in text.split()
        ]
        return " ".join(words)


class Kafka:
    """Apache Kafka's coordinator, asked by raw requests."""

    def __init__(self, client: WireClient, transactional_id: str) -> None:
        self._client = client
        self._id = transactional_id
        self._names = Names()

    def ask(self, step: Step) -> str:
        end_s = time.monotonic() + SETTLE_S
        while True:
            answer: str = getattr(self, f"_{step.kind}")(step)
            if answer != LOADING:  # it has no producer id at hand
                return self._names.shown(answer)
            assert time.monotonic() < end_s, answer
            time.sleep(0.01)

    def _sender(self, step: Step) -> tuple[int, int]:
        return (-1, -1) if step.producer is None else (self._names.id_of(step.producer[0]), step.producer[1])

    def _init(self, step: Step) -> str:
        producer_id, epoch = self._sender(step)
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=step.timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        if step.version >= 6:
            request.keep_prepared_txn = step.keep_prepared
        response = self._client.request(request, step.version)
        return shown(response.error_code, response.producer_id, response.producer_epoch)

    def _end(self, step: Step) -> str:
        producer_id, epoch = self._sender(step)
        request = EndTxnRequest(transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, committed=step.is_commit)
        response = self._client.request(request, step.version)
        return shown(response.error_code, response.producer_id, response.producer_epoch)

    def _add(self, step: Step, *, verify_only: bool = False) -> str:
        producer_id, epoch = self._sender(step)
        topics = [AddPartitionsToTxnTopic(name="x", partitions=[step.partition])]
        if step.version < 4:
            response = self._client.request(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._id,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                ),
                step.version,
            )
            results = response.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, verify_only=verify_only, topics=topics
            )
            response = self._client.request(AddPartitionsToTxnRequest(transactions=[transaction]), step.version)
            results = response.results_by_transaction[0].topic_results
        return ErrorCode(results[0].results_by_partition[0].partition_error_code).name

    def _verify(self, step: Step) -> str:
        return self._add(step, verify_only=True)

    def settled(self) -> str:
        """The id's state, when no marker is on its way any more."""
        end_s = time.monotonic() + SETTLE_S
        while True:
            (found,) = self._client.request(DescribeTransactionsRequest(transactional_ids=[self._id]), 0).transaction_states
            if not found.transaction_state.startswith("Prepare"):
                break
            assert time.monotonic() < end_s, "a transaction of Kafka's does not come to its end"
            time.sleep(0.001)
        if found.error_code != ErrorCode.NONE:
            return "unknown"
        partitions = " ".join(f"{topic.topic}-{index}" for topic in found.topics for index in sorted(topic.partitions))
        return self._names.shown(f"{found.transaction_state} {found.producer_id}:{found.producer_epoch} {partitions}".strip())


def shown(error_code: int, producer_id: int, producer_epoch: int) -> str:
    name = ErrorCode(error_code).name
    return name if producer_id == -1 else f"{name} {producer_id}:{producer_epoch}"


class Ours:
    """A room's coordinator, whose transactions settle at once."""

    def __init__(self, version: int, old: TransactionLogValue | None = None) -> None:
        self._room = Room(version)
        self._names = Names()
        if old is not None:
            self._room.log.append(0, [stored_record("t", old, version)], lambda error: None)
            self._room.elect()
            self._room.markers.write_all()

    def ask(self, step: Step) -> str:
        room = self._room
        producer = "-1:-1" if step.producer is None else f"{self._names.id_of(step.producer[0])}:{step.producer[1]}"
        client_version = 2 if step.version >= OLDEST_WITH_BUMP.get(step.kind, 0) else 0
        if step.kind == "init":
            expected = None if step.producer is None else producer
            answer = room.init("t", expected, timeout_ms=step.timeout_ms, keep_prepared=step.keep_prepared)
        elif step.kind == "end":
            answer = room.end("t", producer, commit=step.is_commit, version=client_version)
        elif step.kind == "add":
            answer = room.add("t", producer, f"x-{step.partition}", version=client_version)
        else:
            answer = room.verify("t", producer, f"x-{step.partition}").rpartition("=")[2]
        return self._names.shown(answer)

    def settled(self) -> str:
        return self._names.shown(shown_transaction(self._room.machine.table.find("t")))

    def records(self) -> list[Stored]:
        return stored_in(self._room.log.batches).get("t", [])

    def current(self) -> tuple[int, int]:
        """The producer that may go on, by its name."""
        transaction = self._room.machine.table.find("t")
        return (0, 0) if transaction is None else (self._names.name_of(transaction.producer_id), transaction.producer_epoch)

    def previous(self) -> tuple[int, int] | None:
        """The last that a producer had before its epochs were exhausted."""
        transaction = self._room.machine.table.find("t")
        if transaction is None or transaction.previous_producer_id in (-1, transaction.producer_id):
            return None
        return self._names.name_of(transaction.previous_producer_id), LAST_CLIENT_EPOCH

    def was_ended_below_2(self) -> bool:
        transaction = self._room.machine.table.find("t")
        return transaction is not None and (
            transaction.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and transaction.client_transaction_version < 2
        )


class Stored(NamedTuple):
    """A record of `__transaction_state` without its times, and with names instead of producer ids."""

    value_version: int
    status: int
    producer: int
    previous_producer: int
    next_producer: int
    epoch: int
    timeout_ms: int
    partitions: frozenset[tuple[str, int]] | None
    has_begun: bool
    client_transaction_version: int


def stored_in(batches: Iterable[Buffer]) -> dict[str, list[Stored]]:
    """The records of each transactional id, in their order."""
    found: dict[str, list[Stored]] = {}
    names: dict[str, Names] = {}
    for batch in batches:
        for position, _ in iterate_headers(batch):
            for record in iterate_records(batch, position):
                assert record.key is not None
                assert record.value is not None
                key, _ = decode_with_version(TransactionLogKey, record.key)
                value, version = decode_with_version(TransactionLogValue, record.value)
                name_of = names.setdefault(key.transactional_id, Names()).name_of
                found.setdefault(key.transactional_id, []).append(stored(value, version, name_of))
    return found


def stored(value: TransactionLogValue, version: int, name_of: Callable[[int], int]) -> Stored:
    partitions = value.transaction_partitions
    return Stored(
        version,
        value.transaction_status,
        name_of(value.producer_id),
        name_of(value.previous_producer_id),
        name_of(value.next_producer_id),
        value.producer_epoch,
        value.transaction_timeout_ms,
        None if partitions is None else frozenset((each.topic, index) for each in partitions for index in each.partition_ids),
        value.transaction_start_timestamp_ms != -1,
        value.client_transaction_version,
    )


def next_step(source: random.Random, ours: Ours, version: int) -> Step:
    """A request of the producer that may go on, or of one in some relation to it."""
    kind = source.choices(["init", "add", "verify", "end"], [2, 4, 2, 4])[0]
    name, epoch = ours.current()
    relation = source.choices(["same", "retry", "older", "newer", "other"], [12, 3, 1, 1, 1])[0]
    if relation == "other":
        name = OTHER
    current_epoch = epoch
    epoch = min(max(0, epoch + {"retry": -1, "older": -2, "newer": 1}.get(relation, 0)), LAST_EPOCH)
    if (previous := ours.previous()) is not None and source.random() < 0.3:
        name, epoch = previous
    has_bump = version == 2 if source.random() < 0.8 else version > 0
    if kind == "init":
        is_new = source.random() < 0.4 or (current_epoch >= LAST_CLIENT_EPOCH and epoch != current_epoch)
        return Step(
            kind,
            source.choice([4, 5, 6]),
            None if is_new else (name, epoch),
            timeout_ms=source.choice([TIMEOUT_MS] * 8 + [0, 900_001]),
        )
    if kind == "end":
        has_bump = has_bump and not (epoch == current_epoch - 1 and ours.was_ended_below_2())
        is_commit = source.random() < 0.6 and not (has_bump and epoch == LAST_EPOCH)
        return Step(kind, 5 if has_bump else source.choice([2, 3, 4]), (name, epoch), is_commit=is_commit)
    if kind == "add":
        return Step(kind, source.choice([4, 5]) if has_bump else source.choice([2, 3]), (name, epoch), partition=source.randrange(3))
    return Step(kind, source.choice([4, 5]), (name, epoch), partition=source.randrange(3))


class Finalized(NamedTuple):
    """Apache Kafka with that transaction version, and a connection to it."""

    version: int
    client: WireClient
    server: KafkaServer

    def records(self) -> dict[str, list[Stored]]:
        """What is in its log."""
        log = self.server.data_dir / "__transaction_state-0" / f"{0:020}.log"
        return stored_in([log.read_bytes()])


@pytest.fixture(scope="module", params=[0, 1, 2], ids=lambda version: f"transaction.version={version}")
def finalized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finalized]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), SETTINGS)
    server.format_arguments = ("--feature", f"transaction.version={request.param}")
    try:
        server.start()
        with WireClient(server.host, server.port) as client:
            topic = CreatableTopic(name="x", num_partitions=3, replication_factor=1)
            client.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
            await_coordinator(client)
            produce_old_ids(client, request.param)
        server.stop()
        server.start()
        with WireClient(server.host, server.port) as client:
            await_coordinator(client)
            yield Finalized(request.param, client, server)
    finally:
        server.stop()


def old_value(number: int, version: int) -> TransactionLogValue:
    """The state of an id near the end of its epochs."""
    state, epoch, now_ms = number % 6, LAST_EPOCH - number // 6, int(time.time() * 1000)
    value = TransactionLogValue(
        producer_id=OLD_PRODUCER_ID + number,
        producer_epoch=epoch,
        transaction_timeout_ms=OLD_TIMEOUT_MS,
        transaction_status=state,
        transaction_partitions=None if state == 0 else [] if state > 3 else [PartitionsSchema(topic="x", partition_ids=[0])],
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=-1 if state == 0 else now_ms,
    )
    if version >= 1:
        value.previous_producer_id = value.producer_id
    if version == 2 and state != 0:
        value.client_transaction_version = 2
        if state in (2, 3) and epoch == LAST_EPOCH:
            value.next_producer_id = OLD_NEXT_PRODUCER_ID + number
    return value


def stored_record(transactional_id: str, value: TransactionLogValue, version: int) -> SimpleRecord:
    key = encode_key(TransactionLogKey(transactional_id=transactional_id))
    return SimpleRecord(key, encode_with_version(value, min(version, 1)), timestamp=int(time.time() * 1000))


def produce_old_ids(client: WireClient, version: int) -> None:
    """Kafka's coordinator reads them with its next load."""
    batch = build_batch([stored_record(f"old{number}", old_value(number, version), version) for number in range(OLD_IDS)])
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name="__transaction_state", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    client.send_frame(frame(0, PRODUCE_VERSION, encode(request, PRODUCE_VERSION), client_id=ADMIN_CLIENT_ID))
    response, _ = decode(ProduceResponse, PRODUCE_VERSION, client.receive_frame(), RESPONSE_HEADER_BYTES)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def await_coordinator(client: WireClient) -> None:
    """`__transaction_state` is made by the first search for a coordinator."""
    end_s = time.monotonic() + SETTLE_S
    asked: Any = None
    while asked is None or asked.error_code != ErrorCode.NONE:
        assert time.monotonic() < end_s, asked
        (asked,) = client.request(FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=["t"]), 4).coordinators
        if asked.error_code == ErrorCode.NONE:
            (asked,) = client.request(DescribeTransactionsRequest(transactional_ids=["t"]), 0).transaction_states
            asked.error_code = ErrorCode.NONE if asked.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else asked.error_code
        time.sleep(0.01)


def hold_dialogue(source: random.Random, kafka: Kafka, ours: Ours, version: int) -> set[tuple[str, str]]:
    """Asks both the same, and returns which answers there were to which kinds of requests."""
    kinds = set()
    assert kafka.settled() == ours.settled()
    for number in range(STEPS):
        step = next_step(source, ours, version)

        answers = [side.ask(step) for side in (kafka, ours)]
        states = [side.settled() for side in (kafka, ours)]

        assert answers[0] == answers[1], (number, step, states)
        assert states[0] == states[1], (number, step, answers)
        kinds.add((step.kind, answers[0].split()[0]))
    return kinds


def test_random_dialogues_have_the_same_answers_and_records(finalized: Finalized) -> None:
    version, client, _ = finalized
    kinds = set()
    expected: dict[str, list[Stored]] = {}
    for seed in range(SEEDS):
        ours = Ours(version)
        kinds |= hold_dialogue(random.Random(f"{version} {seed}"), Kafka(client, f"t{seed}"), ours, version)
        expected[f"t{seed}"] = ours.records()

    written = finalized.records()
    assert {each: written.get(each, []) for each in expected} == expected
    assert len(kinds) >= 15, "the dialogues are poor"


def test_dialogues_at_the_end_of_the_epochs_have_the_same_answers_and_records(finalized: Finalized) -> None:
    version, client, _ = finalized
    expected: dict[str, list[Stored]] = {}
    for number in range(OLD_IDS):
        ours = Ours(version, old_value(number, version))
        hold_dialogue(random.Random(f"old {version} {number}"), Kafka(client, f"old{number}"), ours, version)
        expected[f"old{number}"] = ours.records()

    written = finalized.records()
    assert {each: written[each] for each in expected} == expected
    replaced = [each for each, records in expected.items() if len({record.producer for record in records}) > 1]
    assert len(replaced) > OLD_IDS / 2, "few have come to the end"


def test_request_that_keeps_a_prepared_transaction_has_the_same_answer(finalized: Finalized) -> None:
    version, client, _ = finalized
    step = Step("init", 6, None, keep_prepared=True)

    assert Kafka(client, "kept").ask(step) == Ours(version).ask(step) == "UNSUPPORTED_VERSION"
