"""What a batch of the source reads, when its topic is not the one for which it was planned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import barnabas
from barnabas.spark.source import offsets, options
from barnabas.spark.source.offsets import DataLossError
from barnabas.spark.source.reading import Range, ranges_between
from tests.support.installed import wait_until


@pytest.fixture
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(topics={"orders": 1}) as broker:
        yield broker


def test_a_planned_batch_reads_nothing_of_a_topic_that_was_made_anew_since(broker: barnabas.Broker) -> None:
    """Spark runs the last batch of its log again after a restart: start and end are both of the topic that is gone."""
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    careful, careless = options.read_options(texts), options.read_options({**texts, "failOnDataLoss": "false"})
    cluster = careful.open()
    start = offsets.starting_offsets(cluster, careful, default=offsets.EARLIEST)
    produce(broker, 2)
    end = offsets.ending_offsets(cluster, careful)
    assert ranges_between(start, end, careful, cluster) == [Range("orders", 0, 0, 2)]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["orders"])["orders"].result(30)

    def is_gone() -> bool:
        cluster.refresh(("orders",))
        return cluster.topic("orders") is None

    wait_until(is_gone, 30, lambda: "the topic is still there")
    with pytest.raises(DataLossError, match="topic orders was deleted, and the query has yet to read records of it"):
        ranges_between(start, end, careful, cluster)
    broker.create_topic("orders", 1)
    produce(broker, 5)

    with pytest.raises(DataLossError, match="topic orders was deleted and made again"):
        ranges_between(start, end, careful, cluster)
    assert ranges_between(start, end, careless, cluster) == []
    latest = offsets.ending_offsets(cluster, careless)
    assert ranges_between(end, latest, careless, cluster) == [Range("orders", 0, 0, 5)]


def test_a_partition_that_ends_before_what_was_read_of_it_ends_the_query(broker: barnabas.Broker) -> None:
    """As after an unclean election, which has truncated it."""
    texts = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    careful, careless = options.read_options(texts), options.read_options({**texts, "failOnDataLoss": "false"})
    cluster = careful.open()
    produce(broker, 2)
    end = offsets.ending_offsets(cluster, careful)
    start = {"orders": end["orders"]._replace(offsets={0: 5})}

    with pytest.raises(DataLossError, match="orders-0 ends at offset 2, and the query has read up to 5: records were lost by an unclean"):
        ranges_between(start, end, careful, cluster)
    assert ranges_between(start, end, careless, cluster) == []


def produce(broker: barnabas.Broker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(30) == 0
