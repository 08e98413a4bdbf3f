"""num.replica.fetchers changes while a broker follows: partitions go over to other fetchers, and nothing is lost or fetched twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from protocol.messages.stored.metadata_records import ConfigRecord
from tests.broker.replication.cluster import Cluster, stored

BROKER_RESOURCE = 4
TOPICS = tuple("abcdefgh")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    for topic in TOPICS:
        cluster.create_topic(topic, min_insync_replicas="3")
    cluster.run()
    return cluster


def set_count(cluster: Cluster, count: int | None, broker: str = "") -> None:
    value = None if count is None else str(count)
    record = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name="num.replica.fetchers", value=value)
    cluster.commit([record])
    cluster.hear_all()


def fetchers_of(cluster: Cluster, node_id: int = 2) -> dict[str, str]:
    """The fetcher's name by the topic of its partition."""
    fetchers = cluster.nodes[node_id].fetchers
    assert fetchers is not None
    return {lag.topic: lag.fetcher_name for lag in fetchers.lags()}


def produce_everywhere(cluster: Cluster, value: str) -> None:
    answers = [cluster.produce(topic, value) for topic in TOPICS]
    cluster.run()
    assert all(each and not each[0].error_code for each in answers)


def check_logs(cluster: Cluster, *values: str) -> None:
    for node in cluster.alive:
        for topic in TOPICS:
            assert [record.value for record in stored(node.log(topic))] == [*values]


def test_more_fetchers_share_the_partitions(cluster: Cluster) -> None:
    produce_everywhere(cluster, "x")
    assert set(fetchers_of(cluster).values()) == {"ReplicaFetcherThread-0-1"}

    set_count(cluster, 2)
    cluster.run()

    assert fetchers_of(cluster).keys() == {*TOPICS}
    assert set(fetchers_of(cluster).values()) == {"ReplicaFetcherThread-0-1", "ReplicaFetcherThread-1-1"}
    produce_everywhere(cluster, "y")
    check_logs(cluster, "x", "y")


def test_fewer_fetchers_take_over_the_partitions(cluster: Cluster) -> None:
    set_count(cluster, 4)
    produce_everywhere(cluster, "x")
    assert len(set(fetchers_of(cluster).values())) > 2

    set_count(cluster, None)
    cluster.run()

    assert Counter(fetchers_of(cluster).values()) == {"ReplicaFetcherThread-0-1": len(TOPICS)}
    produce_everywhere(cluster, "y")
    check_logs(cluster, "x", "y")


def test_a_change_while_fetches_are_under_way_loses_nothing(cluster: Cluster) -> None:
    """An answer to the fetcher that had a partition before is dropped."""
    answers = []
    for round_number, count in enumerate((2, 4, 3, 1)):
        answers += [cluster.produce(topic, f"value {round_number}") for topic in TOPICS]
        for _ in range(5):
            cluster.deliver(cluster.messages[0])
        set_count(cluster, count)

    cluster.settle()

    assert all(each and not each[0].error_code for each in answers)
    check_logs(cluster, *(f"value {number}" for number in range(4)))
    assert cluster.isr("a") == (1, 2, 3)


def test_a_partition_that_comes_later_gets_a_fetcher_by_the_new_count(cluster: Cluster) -> None:
    set_count(cluster, 2)
    cluster.run()
    before = fetchers_of(cluster)

    for topic in TOPICS:
        cluster.change_leader(topic, 3)
        cluster.change_leader(topic, 1)
    cluster.run()

    assert fetchers_of(cluster) == before


def test_the_count_of_one_broker_is_its_own(cluster: Cluster) -> None:
    set_count(cluster, 2, broker="3")
    cluster.run()

    assert [len(set(fetchers_of(cluster, node_id).values())) for node_id in (2, 3)] == [1, 2]
