"""A stream's progress in a group: what Kafka's tools see of it, and what maxOffsetsPerTrigger counts from after a restart."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import make_dataclass
from types import ModuleType

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

import barnabas
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.errors import OptionError
from barnabas.spark.progress import Progress, offsets_of
from barnabas.spark.source.offsets import DataLossError, Offsets, from_json
from barnabas.spark.source.options import SourceOptions, read_options
from barnabas.spark.source.planner import StreamPlanner

PARTITIONS = 2
RECORDS = 50
"""In each partition."""
ALL = PARTITIONS * RECORDS
PER_TRIGGER = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker({"num.partitions": PARTITIONS}) as broker:
        yield broker


@pytest.fixture
def admin(broker: barnabas.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def topic(broker: barnabas.Broker, request: pytest.FixtureRequest) -> str:
    """Of this test, with RECORDS in each partition; the groups have its name too."""
    name = request.node.name.removeprefix("test_")[:60]
    broker.create_topic(name, PARTITIONS)
    fill(broker, name)
    return name


def fill(broker: barnabas.Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(ALL):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def options_of(broker: barnabas.Broker, topic: str, **more: str) -> SourceOptions:
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest", "group": topic}
    return read_options(texts | more)


def begin(planner: StreamPlanner) -> Offsets:
    """The first batch of a new query: Spark fixes its end before it asks where the query begins."""
    end = planner.latest_offsets()
    planner.ranges(planner.initial_offsets(), end)
    return end


def go_on(planner: StreamPlanner, start: Offsets) -> Offsets:
    """A later batch from its plan to its end."""
    end = planner.latest_offsets()
    planner.ranges(start, end)
    return end


def committed(admin: AdminClient, topic: str) -> int:
    """The group's offsets of all partitions together, as kafka-consumer-groups shows CURRENT-OFFSET."""
    wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic, wanted)])[topic].result(30)
    return sum(each.offset for each in found.topic_partitions)


def total(offsets: Offsets) -> int:
    return sum(offset for told in offsets.values() for offset in told.offsets.values())


def test_the_group_has_the_end_of_each_batch_when_the_next_one_is_asked_for(
    broker: barnabas.Broker, admin: AdminClient, topic: str
) -> None:
    planner = StreamPlanner(options_of(broker, topic))
    end = begin(planner)
    assert committed(admin, topic) < 0

    planner.latest_offsets()  # the batch is done, nothing is new

    assert committed(admin, topic) == total(end) == ALL


def test_spark_may_say_itself_which_batch_is_done(broker: barnabas.Broker, admin: AdminClient, topic: str) -> None:
    """By a new object: it tells the last batch of a query when it constructs the next one, after a restart too."""
    end = begin(StreamPlanner(options_of(broker, topic)))

    StreamPlanner(options_of(broker, topic)).commit(end)

    assert committed(admin, topic) == ALL


def test_after_a_restart_the_limit_counts_from_the_planned_end(broker: barnabas.Broker, admin: AdminClient, topic: str) -> None:
    options = options_of(broker, topic, maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    first = begin(planner)
    fill(broker, topic)
    end = go_on(planner, go_on(planner, first))
    assert (total(first), total(end)) == (ALL, ALL + 2 * PER_TRIGGER)
    assert committed(admin, topic) == ALL + PER_TRIGGER

    restarted = StreamPlanner(options)
    after = restarted.latest_offsets()

    assert total(after) == ALL + 3 * PER_TRIGGER
    assert committed(admin, topic) == ALL + PER_TRIGGER  # nobody has said yet that the second batch is done
    restarted.ranges(end, after)
    restarted.latest_offsets()
    assert committed(admin, topic) == ALL + 3 * PER_TRIGGER
    assert total(StreamPlanner(options).latest_offsets()) == 2 * ALL


def test_a_spark_that_says_where_it_stands_is_limited_in_the_first_batch_too(
    broker: barnabas.Broker, admin: AdminClient, topic: str
) -> None:
    """As pyspark does from 4.2 on. After a restart nothing is needed from the group."""
    options = options_of(broker, topic, maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    start = planner.initial_offsets()

    first = planner.next_offsets(start, PER_TRIGGER)
    assert sum(part.end - part.start for part in planner.ranges(start, first)) == PER_TRIGGER
    second = StreamPlanner(options).next_offsets(first, PER_TRIGGER)

    assert (total(first), total(second)) == (PER_TRIGGER, 2 * PER_TRIGGER)
    assert committed(admin, topic) == PER_TRIGGER
    assert total(planner.next_offsets(second, None)) == ALL


def test_available_now_ends_where_the_topic_ended_and_not_before_it_begins(broker: barnabas.Broker, topic: str) -> None:
    planner = StreamPlanner(options_of(broker, topic))
    start = planner.initial_offsets()
    planner.end_here()
    fill(broker, topic)
    beyond = StreamPlanner(options_of(broker, topic, startingOffsets="latest")).initial_offsets()

    end = planner.next_offsets(start, PER_TRIGGER)
    while end != start:
        start, end = end, planner.next_offsets(end, PER_TRIGGER)

    assert total(end) == ALL
    assert planner.next_offsets(beyond, None) == beyond


def test_the_reader_for_newer_sparks_takes_start_and_limit(broker: barnabas.Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With classes in the place of pyspark.sql.streaming.datasource (4.2), which the pyspark of the tests lacks."""
    module = ModuleType("pyspark.sql.streaming.datasource")
    for name in ("ReadLimit", "ReadAllAvailable", "SupportsTriggerAvailableNow"):
        setattr(module, name, type(name, (), {}))
    module.ReadMaxRows = make_dataclass("ReadMaxRows", ["max_rows"])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "barnabas.spark.admission", raising=False)
    admission = importlib.import_module("barnabas.spark.admission")
    monkeypatch.delitem(sys.modules, "barnabas.spark.admission")
    reader = admission.AdmissionReader(options_of(broker, topic, maxOffsetsPerTrigger=str(PER_TRIGGER)))

    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(start, limit)

    assert limit.max_rows == PER_TRIGGER
    assert sum(each.part.end - each.part.start for each in reader.partitions(start, end)) == PER_TRIGGER
    assert total(from_json(reader.latestOffset(end, module.ReadAllAvailable()))) == ALL  # type: ignore[attr-defined]


def test_offsets_that_were_set_by_hand_limit_nothing(broker: barnabas.Broker, admin: AdminClient, topic: str) -> None:
    """A batch that ends before the stream would be read twice."""
    options = options_of(broker, topic, maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    first = begin(planner)
    fill(broker, topic)
    go_on(planner, first)
    by_hand = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, number, 1) for number in range(PARTITIONS)])
    admin.alter_consumer_group_offsets([by_hand])[topic].result(30)

    assert total(StreamPlanner(options).latest_offsets()) == 2 * ALL


def test_notes_from_before_a_time_without_the_group_end_the_query(broker: barnabas.Broker, topic: str) -> None:
    options = options_of(broker, topic, maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    first = begin(planner)
    fill(broker, topic)
    noted = go_on(planner, first)
    without = StreamPlanner(options._replace(group=None, offsets_per_trigger=None))
    reached = go_on(without, noted)

    again = StreamPlanner(options)
    end = again.latest_offsets()

    assert total(end) < total(reached)
    with pytest.raises(DataLossError, match=f"the group {topic} has notes of another query.*Delete the group"):
        again.ranges(reached, end)


def test_a_new_query_at_the_end_loses_nothing_that_comes_while_it_is_planned(broker: barnabas.Broker, topic: str) -> None:
    """Spark fixes the end of the first batch before it asks where the query begins."""
    options = options_of(broker, topic, startingOffsets="latest")
    planner = StreamPlanner(options)
    end = planner.latest_offsets()
    fill(broker, topic)
    start = planner.initial_offsets()

    assert total(start) == 2 * ALL and total(end) == ALL
    assert planner.ranges(start, end) == []
    assert sum(part.end - part.start for part in planner.ranges(end, planner.latest_offsets())) == ALL


def test_a_batch_waits_until_its_end_is_noted(
    broker: barnabas.Broker, admin: AdminClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_of(broker, topic, maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    first = begin(planner)
    fill(broker, topic)
    second = go_on(planner, first)
    assert planner._group is not None
    reached, planner._group._cluster = planner._group._cluster, Cluster("localhost:1", timeout_s=1, deadline_s=0)

    with caplog.at_level(logging.WARNING):
        assert planner.latest_offsets() == second
        assert planner.latest_offsets() == second
    planner._group._cluster = reached

    assert total(planner.latest_offsets()) == ALL + 2 * PER_TRIGGER
    assert committed(admin, topic) == ALL + PER_TRIGGER
    (told,) = caplog.messages
    assert told.startswith(f"the progress of a stream is not noted in the group {topic}: ")


def test_without_a_limit_a_group_that_is_away_is_only_a_warning(
    broker: barnabas.Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    planner = StreamPlanner(options_of(broker, topic))
    begin(planner)
    assert planner._group is not None
    planner._group._cluster = Cluster("localhost:1", timeout_s=1, deadline_s=0)

    assert total(planner.latest_offsets()) == ALL
    assert len(caplog.messages) == 1


def test_an_empty_group_is_refused(broker: barnabas.Broker) -> None:
    with pytest.raises(OptionError, match="group is empty"):
        options_of(broker, "orders", group=" ")


@pytest.mark.parametrize(
    ("told", "offsets"),
    [
        ('{"orders":{"0":12,"1":3}}', {("orders", 0): 12, ("orders", 1): 3}),
        ('{"offsets":{"0":1}}', {("offsets", 0): 1}),
        ('{"orders": {"id": "07", "offsets": {"0": 12}}}', {("orders", 0): 12}),
        *((other, {}) for other in ("7", "null", "<none>", "", None, "-", '{"logOffset":3}', '{"a": {"b": "c"}}')),
    ],
)  # fmt: skip
def test_offsets_of_spark_s_source_and_of_ours_are_understood(told: str | None, offsets: dict[tuple[str, int], int]) -> None:
    assert offsets_of(told) == offsets


def test_a_batch_that_is_told_twice_or_late_counts_once(broker: barnabas.Broker, admin: AdminClient, topic: str) -> None:
    progress = Progress(topic, {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.poll.records": "5"})
    for batch, end in ((0, 10), (1, 20), (1, 20), (0, 10)):
        progress.observe("id", "loud", batch=batch, rows=10, ends={(topic, 0): end, (topic, 1): 0})

    registry = CollectorRegistry()
    registry.register(progress)

    assert committed(admin, topic) == 20
    assert registry.get_sample_value("barnabas_spark_rows_total", {"query": "loud"}) == 20
    assert registry.get_sample_value("barnabas_spark_lag", {"query": "loud", "topic": topic, "partition": "0"}) == RECORDS - 20
    progress.close()
