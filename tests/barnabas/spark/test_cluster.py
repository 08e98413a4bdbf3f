"""The client of source and sink, when its only broker ends and is there again: a process of Spark lives longer than its connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.transaction import init_producer, list_open
from barnabas.spark.errors import BrokerError


@pytest.fixture
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(topics={"orders": 2}) as broker:
        yield broker


def test_a_broker_that_was_started_again_is_asked_by_a_new_connection(broker: barnabas.Broker) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    cluster.refresh(("orders",))
    init_producer(cluster, "sink.1.0.0", 60_000)

    broker.kill()
    broker.start()

    cluster.refresh(("orders",))
    assert cluster.topic_names() == ["orders"]
    broker.kill()
    broker.start()
    assert list_open(cluster, "sink.") == []


def test_a_broker_is_waited_for_until_the_deadline(broker: barnabas.Broker) -> None:
    cluster = Cluster(broker.bootstrap_servers)
    assert len(cluster.node_ids()) == 1
    broker.kill()
    back = threading.Timer(0.3, broker.start)
    back.start()

    try:
        assert list_open(cluster, "sink.") == []
    finally:
        back.join()
    broker.kill()
    with pytest.raises(BrokerError, match="Metadata did not succeed within 0 s: no broker answers"):
        Cluster(broker.bootstrap_servers, deadline_s=0.1).refresh(("orders",))
