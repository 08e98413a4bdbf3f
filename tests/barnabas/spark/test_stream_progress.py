"""A stream's progress in a group: what Kafka's tools see of it, and what maxOffsetsPerTrigger counts from after a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

import barnabas
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.errors import OptionError
from barnabas.spark.progress import Progress, offsets_of
from barnabas.spark.source.offsets import Offsets
from barnabas.spark.source.options import SourceOptions, read_options
from barnabas.spark.source.planner import StreamPlanner

PARTITIONS = 2
RECORDS = 50
"""In each partition."""
PER_TRIGGER = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker({"num.partitions": PARTITIONS}, topics={"orders": PARTITIONS}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(PARTITIONS * RECORDS):
            producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        yield broker


@pytest.fixture
def admin(broker: barnabas.Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def options_of(broker: barnabas.Broker, group: str, **more: str) -> SourceOptions:
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", "startingOffsets": "earliest", "group": group}
    return read_options(texts | more)


def run_batch(planner: StreamPlanner, start: Offsets) -> Offsets:
    """One batch from its plan to its end."""
    end = planner.latest_offsets()
    planner.ranges(start, end)
    return end


def committed(admin: AdminClient, group: str) -> list[int]:
    """As kafka-consumer-groups shows CURRENT-OFFSET, by partition; -1001 for none."""
    wanted = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(30)
    return [each.offset for each in sorted(found.topic_partitions, key=lambda each: each.partition)]


def total(offsets: Offsets) -> int:
    return sum(offsets["orders"].offsets.values())


def test_the_group_has_the_end_of_each_batch_when_the_next_one_is_asked_for(broker: barnabas.Broker, admin: AdminClient) -> None:
    planner = StreamPlanner(options_of(broker, "all"))
    start = planner.initial_offsets()

    end = run_batch(planner, start)
    assert committed(admin, "all") == [0] * PARTITIONS
    planner.latest_offsets()  # the batch is done, nothing is new

    assert committed(admin, "all") == [RECORDS] * PARTITIONS
    assert total(end) == PARTITIONS * RECORDS


def test_with_available_now_spark_says_which_batch_is_done(broker: barnabas.Broker, admin: AdminClient) -> None:
    planner = StreamPlanner(options_of(broker, "now"))
    end = planner.latest_offsets()  # before it asks where the stream begins
    planner.ranges(planner.initial_offsets(), end)

    planner.commit(end)

    assert committed(admin, "now") == [RECORDS] * PARTITIONS


def test_after_a_restart_the_limit_counts_from_the_planned_end(broker: barnabas.Broker, admin: AdminClient) -> None:
    options = options_of(broker, "limited", maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    end = run_batch(planner, run_batch(planner, planner.initial_offsets()))
    assert total(end) == 2 * PER_TRIGGER
    assert sum(committed(admin, "limited")) == PER_TRIGGER

    restarted = StreamPlanner(options)
    after = restarted.latest_offsets()

    assert total(after) == 3 * PER_TRIGGER
    assert sum(committed(admin, "limited")) == PER_TRIGGER  # nobody has said yet that the second batch is done
    restarted.ranges(end, after)
    restarted.latest_offsets()
    assert sum(committed(admin, "limited")) == 3 * PER_TRIGGER
    assert total(StreamPlanner(options).latest_offsets()) == 5 * PER_TRIGGER


def test_offsets_that_were_set_by_hand_limit_nothing(broker: barnabas.Broker, admin: AdminClient) -> None:
    """A batch that ends before the stream would be read twice."""
    options = options_of(broker, "reset", maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    run_batch(planner, planner.initial_offsets())
    by_hand = ConsumerGroupTopicPartitions("reset", [TopicPartition("orders", number, 1) for number in range(PARTITIONS)])
    admin.alter_consumer_group_offsets([by_hand])["reset"].result(30)

    assert total(StreamPlanner(options).latest_offsets()) == PARTITIONS * RECORDS


def test_a_batch_waits_until_its_end_is_noted(broker: barnabas.Broker, admin: AdminClient, caplog: pytest.LogCaptureFixture) -> None:
    options = options_of(broker, "away", maxOffsetsPerTrigger=str(PER_TRIGGER))
    planner = StreamPlanner(options)
    first = run_batch(planner, planner.initial_offsets())
    assert planner._group is not None
    reached, planner._group._cluster = planner._group._cluster, Cluster("localhost:1", timeout_s=1, deadline_s=0)

    with caplog.at_level(logging.WARNING):
        assert planner.latest_offsets() == first
        assert planner.latest_offsets() == first
    planner._group._cluster = reached

    assert total(planner.latest_offsets()) == 2 * PER_TRIGGER
    assert sum(committed(admin, "away")) == PER_TRIGGER
    (told,) = caplog.messages
    assert told.startswith("the progress of a stream is not noted in the group away: ")


def test_without_a_limit_a_group_that_is_away_is_only_a_warning(broker: barnabas.Broker, caplog: pytest.LogCaptureFixture) -> None:
    planner = StreamPlanner(options_of(broker, "warned"))
    planner.initial_offsets()
    assert planner._group is not None
    planner._group._cluster = Cluster("localhost:1", timeout_s=1, deadline_s=0)

    assert total(planner.latest_offsets()) == PARTITIONS * RECORDS
    assert len(caplog.messages) == 1


def test_an_empty_group_is_refused(broker: barnabas.Broker) -> None:
    with pytest.raises(OptionError, match="group is empty"):
        options_of(broker, " ")


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


def test_a_batch_that_is_told_twice_or_late_counts_once(broker: barnabas.Broker, admin: AdminClient) -> None:
    progress = Progress("told", {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.poll.records": "5"})
    for batch, end in ((0, 10), (1, 20), (1, 20), (0, 10)):
        progress.observe("id", "loud", batch=batch, rows=10, ends={("orders", 0): end, ("orders", 1): 0})

    registry = CollectorRegistry()
    registry.register(progress)

    assert committed(admin, "told") == [20, 0]
    assert registry.get_sample_value("barnabas_spark_rows_total", {"query": "loud"}) == 20
    assert registry.get_sample_value("barnabas_spark_lag", {"query": "loud", "topic": "orders", "partition": "0"}) == RECORDS - 20
    progress.close()
