"""A batch is written once, whatever ends between two steps of the sink's protocol. Spark is played by the test: it plans, runs tasks,
commits or aborts, each with what another process would have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import barnabas
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.connection import Connection
from barnabas.spark.client.transaction import OpenTransaction, TransactionWriter, end_transaction, init_producer, list_open
from barnabas.spark.errors import BarnabasError, BrokerError, OptionError
from barnabas.spark.records.encode import encode_batches
from barnabas.spark.sink import protocol
from barnabas.spark.sink.ledger import Ledger, LedgerError
from barnabas.spark.sink.options import read_options
from barnabas.spark.sink.protocol import ChangedBatchError, Work, Written
from barnabas.spark.sink.rows import RowError
from tests.barnabas.spark.played_spark import PARTITIONS, QUERY, Spark
from tests.support.installed import wait_until

SHORT_MS = 1_000
INIT_PRODUCER_ID = 22


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    config = {
        "num.partitions": PARTITIONS,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
        "transactional.id.expiration.ms": 1000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 100,
    }
    with barnabas.Broker(config) as broker:
        yield broker


@pytest.fixture
def spark(broker: barnabas.Broker, request: pytest.FixtureRequest) -> Spark:
    return make_spark(broker, request)


def make_spark(broker: barnabas.Broker, request: pytest.FixtureRequest, **options: str) -> Spark:
    topic = request.node.name.partition("[")[0].replace("test_", "")[:60]
    broker.create_topic(topic, PARTITIONS, exist_ok=True)
    return Spark(broker.bootstrap_servers, topic, options)


ROWS = [["a", "b"], [], ["c"]]
ALL = ["a", "b", "c"]


def test_batches_are_written_once_and_nothing_stays_open(spark: Spark) -> None:
    spark.run(0, ROWS)
    spark.run(1, [["d"], ["e"]])

    assert spark.committed() == [*ALL, "d", "e"]
    assert spark.open_count() == 0


def test_nothing_is_seen_before_the_commit_and_a_batch_that_was_not_decided_is_run_again(spark: Spark) -> None:
    plan = spark.plan()
    for number, values in enumerate(ROWS):
        spark.task(plan, 0, number, values)
    assert spark.committed() == []

    spark.run(0, ROWS)  # the driver was killed before it committed

    assert spark.committed() == ALL
    assert spark.open_count() == 0


@pytest.mark.parametrize("ended_count", [0, 1, 2])
def test_a_decided_batch_is_completed_and_not_written_again(
    broker: barnabas.Broker, request: pytest.FixtureRequest, ended_count: int
) -> None:
    spark = make_spark(broker, request, id=f"ended-{ended_count}")
    before = len(spark.committed())
    decide(spark, ended_count)

    plan = spark.plan()
    again = [spark.task(plan, 0, number, values) for number, values in enumerate(ROWS)]
    protocol.commit(spark.options, 0, again)

    assert all(written.transaction is None for written in again)
    assert len(spark.committed()) == before + len(ALL)
    assert spark.open_count() == 0
    spark.run(1, [["d"]])
    assert len(spark.committed()) == before + len(ALL) + 1


def decide(spark: Spark, ended_count: int) -> list[Written]:
    """A driver that is killed after its decision, and after it has ended so many transactions."""
    plan = spark.plan()
    written = [spark.task(plan, 0, number, values) for number, values in enumerate(ROWS)]
    ended = 0

    def end(cluster: Cluster, opened: object, *, is_commit: bool) -> ErrorCode:
        nonlocal ended
        if ended == ended_count:
            raise KilledError
        ended += 1
        return end_transaction(cluster, opened, is_commit=is_commit)  # type: ignore[arg-type]

    def killed(*_: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(protocol, "end_transaction", end)
        patch.setattr(Ledger, "finish", killed)
        protocol.commit(spark.options, 0, written)
    return written


class KilledError(Exception):
    pass


def test_an_abort_after_the_decision_aborts_nothing(spark: Spark) -> None:
    """Spark aborts a batch whose commit has raised."""
    written = decide(spark, 1)

    protocol.abort(spark.options, 0, written)
    spark.plan()

    assert spark.committed() == ALL


def test_an_abort_before_the_decision_aborts_what_was_written(spark: Spark) -> None:
    plan = spark.plan()
    written = [spark.task(plan, 0, number, values) for number, values in enumerate(ROWS)]
    protocol.abort(spark.options, 0, written)

    assert spark.open_count() == 0
    assert spark.committed() == []


def test_the_decision_of_a_driver_that_was_replaced_is_refused(spark: Spark) -> None:
    plan = spark.plan()
    written = [spark.task(plan, 0, number, values) for number, values in enumerate(ROWS)]
    newer = spark.plan()

    with pytest.raises(LedgerError, match="newer driver"):
        protocol.commit(spark.options, 0, written)
    protocol.abort(spark.options, 0, written)
    protocol.commit(spark.options, 0, [spark.task(newer, 0, number, values) for number, values in enumerate(ROWS)])

    assert spark.committed() == ALL


def test_a_task_of_a_driver_that_was_replaced_leaves_nothing_open(spark: Spark) -> None:
    """Readers of committed records would wait for it until it times out."""
    plan = spark.plan()
    spark.run(0, ROWS)

    with pytest.raises(LedgerError, match="is too late"):
        spark.task(plan, 0, 0, ["zombie"])

    assert spark.committed() == ALL
    assert spark.open_count() == 0


def test_a_task_of_a_driver_that_is_replaced_while_it_opens_leaves_nothing_open(spark: Spark) -> None:
    """The newer driver has looked for open transactions before this one was open."""
    plan = spark.plan()

    def init_later(*arguments: Any) -> OpenTransaction:
        patch.undo()
        spark.run(0, ROWS)
        return init_producer(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "init_producer", init_later)
        with pytest.raises(LedgerError, match="is too late"):
            spark.task(plan, 0, 0, ["zombie"])

    assert spark.committed() == ALL
    assert spark.open_count() == 0


def test_a_task_that_begins_after_its_job_was_aborted_opens_nothing(spark: Spark) -> None:
    """Spark may kill it at any moment, and nobody plans again: it would stay open until it times out."""
    plan = spark.plan()
    protocol.abort(spark.options, None, [])

    with pytest.raises(LedgerError, match="is too late"):
        protocol.write(spark.options, plan, Work("", None, 0, 1), [pa.record_batch({"value": ["a"]})])

    assert list_open(spark.cluster, f"{spark.options.sink}.", states=()) == []


def test_a_twin_that_begins_after_the_decision_leaves_nothing_open(spark: Spark) -> None:
    plan = spark.plan()
    protocol.commit(spark.options, 0, [spark.task(plan, 0, 0, ["a"])])

    with pytest.raises(LedgerError, match="is too late"):
        spark.task(plan, 0, 0, ["a"])

    assert spark.committed() == ["a"]
    assert spark.open_count() == 0


def test_a_driver_that_was_replaced_while_it_recovered_aborts_nothing_of_the_newer_one(spark: Spark) -> None:
    """It was stopped when it had begun its generation, and goes on when the newer one has tasks."""
    written: list[Written] = []

    def list_open_later(cluster: Cluster, prefix: str) -> object:
        if not written:
            written.append(Written(-1, "", 0, None, 0, 0, 0.0))  # the newer driver recovers by this function, too
            newer = spark.plan()
            written[:] = [spark.task(newer, 0, number, values) for number, values in enumerate(ROWS)]
        return list_open(cluster, prefix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "list_open", list_open_later)
        spark.plan()
    protocol.commit(spark.options, 0, written)

    assert spark.committed() == ALL
    assert spark.open_count() == 0


def test_the_transaction_of_another_application_is_left_alone(spark: Spark) -> None:
    """Its id begins as those of the sink do, and has no generation."""
    stranger = TransactionWriter(spark.cluster, init_producer(spark.cluster, f"{spark.topic}.stranger", 60_000))
    rows = encode_batches(pa.array([b"k"]), pa.array([b"v"]), None, np.array([0], np.int64), batch_bytes=1000, codec=Compression.NONE)
    stranger.write(spark.topic, 0, next(rows))
    stranger.flush()

    spark.run(0, ROWS)

    assert end_transaction(spark.cluster, stranger.opened, is_commit=True) is ErrorCode.NONE
    assert spark.committed() == [*ALL, "v"]


@pytest.mark.parametrize("chosen", [0, 1])
def test_attempts_that_lost_are_aborted(broker: barnabas.Broker, chosen: int) -> None:
    """Speculation: both twins end, and Spark takes the one or the other."""
    broker.create_topic(f"twins-{chosen}", PARTITIONS)
    spark = Spark(broker.bootstrap_servers, f"twins-{chosen}", {})
    plan = spark.plan()
    twins = [spark.task(plan, 0, 0, ["a", "b"]) for _ in range(2)]

    protocol.commit(spark.options, 0, [twins[chosen]])

    assert spark.committed() == ["a", "b"]
    assert spark.open_count() == 0


def time_out(spark: Spark) -> None:
    """Decided and not ended: the coordinator aborts the transactions at their timeout."""
    decide(spark, 0)
    wait_until(lambda: spark.open_count() == 0, 30, lambda: "the transactions are still open")


def test_decided_transactions_that_timed_out_are_written_again(broker: barnabas.Broker, request: pytest.FixtureRequest) -> None:
    spark = make_spark(broker, request, **{"kafka.transaction.timeout.ms": str(SHORT_MS)})
    time_out(spark)
    assert spark.committed() == []

    spark.run(0, ROWS)

    assert spark.committed() == ALL
    plan = spark.plan()
    assert plan.lost == frozenset()
    assert plan.decided is not None and plan.decided.is_done


def test_a_decided_batch_is_not_committed_without_a_partition_that_has_to_be_written_again(
    broker: barnabas.Broker, request: pytest.FixtureRequest
) -> None:
    """The query was started again with fewer partitions: Spark would take the batch for done, and its rows would be lost."""
    spark = make_spark(broker, request, **{"kafka.transaction.timeout.ms": str(SHORT_MS)})
    time_out(spark)
    plan = spark.plan()
    again = [spark.task(plan, 0, number, values) for number, values in enumerate(ROWS[:2])]

    with pytest.raises(LedgerError, match=r"its partition 2 timed out.*fewer partitions now: run it with as many as before"):
        protocol.commit(spark.options, 0, again)
    protocol.abort(spark.options, 0, again)
    spark.run(0, ROWS)

    assert spark.committed() == ALL


def test_recovery_does_not_wait_for_another_sink(broker: barnabas.Broker, request: pytest.FixtureRequest) -> None:
    """Sinks share the partitions of the ledger, and a task may take minutes."""
    broker.create_topic("shared-ledger", 1, config={"cleanup.policy": "compact"})
    spark = make_spark(broker, request, ledger="shared-ledger")
    other = make_spark(broker, request, ledger="shared-ledger", id="other")
    other.task(other.plan(), 0, 0, ["of a batch that goes on"])
    decide(spark, 1)

    assert spark.plan().lost == frozenset()


def test_a_decided_batch_is_known_to_be_committed_when_its_ids_have_expired(spark: Spark) -> None:
    """transactional.id.expiration.ms after the commit the coordinator has forgotten it: the ledger's records of the parts tell."""
    written = decide(spark, len(ROWS))
    ended = [message.transaction for message in written if message.transaction is not None]
    wait_until(
        lambda: all(end_transaction(spark.cluster, each, is_commit=True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING for each in ended),
        30,
        lambda: "the ids do not expire",
    )

    assert spark.plan().lost == frozenset()
    assert spark.committed() == ALL


@pytest.mark.parametrize("changed", [["a", "x"], ["a"], ["a", "b", "b"]])
def test_other_rows_than_those_that_were_decided_end_the_query(
    broker: barnabas.Broker, request: pytest.FixtureRequest, changed: list[str]
) -> None:
    spark = make_spark(broker, request, id=f"changed-{'-'.join(changed)}", **{"kafka.transaction.timeout.ms": str(SHORT_MS)})
    before = spark.committed()
    time_out(spark)

    with pytest.raises(ChangedBatchError, match=r"batch 0 of the sink .* partition 0 timed out.*not deterministic"):
        spark.task(spark.plan(), 0, 0, changed)
    assert spark.committed() == before
    assert spark.open_count() == 0


def test_a_write_outside_of_a_stream_that_is_aborted_leaves_nothing_open(spark: Spark) -> None:
    """Spark aborts a job while some of its tasks run: they tell nothing, and nobody plans again."""
    plan = spark.plan()
    rows = [pa.record_batch({"value": ["a"]})]
    protocol.write(spark.options, plan, Work("", None, 0, 1), rows)

    protocol.abort(spark.options, None, [])

    assert spark.open_count() == 0
    with pytest.raises(LedgerError, match="is too late"):
        protocol.write(spark.options, plan, Work("", None, 1, 2), rows)
    assert spark.committed() == []
    assert spark.open_count() == 0


def test_a_decision_too_late_for_its_transactions_is_refused(broker: barnabas.Broker, request: pytest.FixtureRequest) -> None:
    spark = make_spark(broker, request, **{"kafka.transaction.timeout.ms": str(SHORT_MS)})
    written = spark.task(spark.plan(), 0, 0, ["a"])

    with pytest.raises(BarnabasError, match=r"partition 0 was begun .* ago.*kafka\.transaction\.timeout\.ms=1000"):
        protocol.commit(spark.options, 0, [written._replace(begun_s=time.time() - 0.95)])
    protocol.abort(spark.options, 0, [written])

    assert spark.committed() == []


def test_another_query_is_refused(spark: Spark) -> None:
    spark.run(0, ROWS)
    plan = spark.plan()

    with pytest.raises(LedgerError, match=f"belongs to the query {QUERY}, not to other"):
        spark.task(plan, 1, 0, ["d"], query="other")
    assert spark.committed() == ALL


def test_an_old_copy_of_the_checkpoint_is_refused(spark: Spark) -> None:
    spark.run(4, ROWS)

    with pytest.raises(LedgerError, match=r"Spark runs batch 3, and the sink .* has batch 4 already"):
        spark.task(spark.plan(), 3, 0, ["d"])


def test_a_ledger_that_is_not_compacted_is_refused(broker: barnabas.Broker, request: pytest.FixtureRequest) -> None:
    spark = make_spark(broker, request)
    options = spark.options._replace(ledger=spark.topic)

    with pytest.raises(OptionError, match=r"has cleanup\.policy=delete: it has to be compact"):
        protocol.recover(options)


def test_a_timeout_above_the_brokers_is_refused(broker: barnabas.Broker, request: pytest.FixtureRequest) -> None:
    spark = make_spark(broker, request, **{"kafka.transaction.timeout.ms": "900001"})

    with pytest.raises(BarnabasError, match=r"transaction\.timeout\.ms 900001 is above the broker's"):
        spark.task(spark.plan(), 0, 0, ["a"])


def test_a_broker_without_transactions_is_named_and_nothing_is_written(
    broker: barnabas.Broker, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says by ApiVersions that it has no InitProducerId."""
    opened = Connection._open

    def open_without(connection: Connection, door: Any) -> None:
        opened(connection, door)
        del connection._served[INIT_PRODUCER_ID]

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_open", open_without)
        other = Spark(broker.bootstrap_servers.replace("127.0.0.1", "localhost"), spark.topic, {})  # by connections of its own
        with pytest.raises(BrokerError, match=r"^the broker \S+ does not serve InitProducerId: it needs to be as new as Apache Kafka"):
            other.task(other.plan(), 0, 0, ["a"])

    assert spark.committed() == []
    assert spark.open_count() == 0


@pytest.mark.parametrize(
    ("columns", "topic", "why"),
    [
        ({"value": ["a"], "topic": [None]}, None, "a row has no topic"),
        ({"value": ["a"], "topic": ["missing"]}, None, "topic missing does not exist"),
        ({"value": ["a"], "partition": [3]}, "bad", "topic bad has 3 partitions: there is no partition 3"),
        ({"value": ["a"], "partition": [-1]}, "bad", "a row has a negative partition"),
        ({"value": ["a" * 2_000_000]}, "bad", "a record is larger than the topic's max.message.bytes"),
    ],
)
def test_a_bad_row_ends_its_task_and_leaves_nothing(
    broker: barnabas.Broker, columns: dict[str, list[object]], topic: str | None, why: str
) -> None:
    broker.create_topic("bad", PARTITIONS, exist_ok=True)
    spark = Spark(broker.bootstrap_servers, "bad", {})
    options = spark.options._replace(topic=topic)
    types = {"value": pa.string(), "topic": pa.string(), "partition": pa.int32()}
    good = pa.record_batch({"value": ["good"], "topic": ["bad"], "partition": pa.array([0], pa.int32())})
    bad = pa.record_batch({name: pa.array(values, types[name]) for name, values in columns.items()})

    with pytest.raises(BarnabasError, match=why):
        protocol.write(options, spark.plan(), Work(QUERY, 0, 0, 1), [good, bad])
    assert spark.open_count() == 0
    assert spark.committed() == []


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"topic": "t", "id": "s"}, "kafka.bootstrap.servers is ''"),
        ({"kafka.bootstrap.servers": "h:1", "topic": "t"}, "the option 'id' is missing"),
        ({"kafka.bootstrap.servers": "h:1", "id": "a b"}, "id is 'a b'"),
        ({"kafka.bootstrap.servers": "h:1", "id": "s", "topik": "t"}, "unknown option 'topik'"),
        ({"kafka.bootstrap.servers": "h:1", "id": "s", "kafka.compression.type": "rar"}, "kafka.compression.type is 'rar'"),
        ({"kafka.bootstrap.servers": "h:1", "id": "s", "kafka.transaction.timeout.ms": "1"}, "a whole number from 1000"),
    ],
)
def test_a_wrong_option_is_named(texts: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_options(texts)
    assert why in str(raised.value)


def test_rows_of_no_known_column_are_refused() -> None:
    from barnabas.spark.sink.rows import check_schema

    for fields, topic, why in (
        ({"key": "string"}, "t", "no column 'value'"),
        ({"value": "string"}, None, "no topic"),
        ({"value": "int"}, "t", "'value' is int: it has to be string or binary"),
        ({"value": "string", "headers": "string"}, "t", "'headers' is string"),
    ):
        with pytest.raises(RowError, match=why):
            check_schema(fields, topic)
