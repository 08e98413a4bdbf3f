"""Rows of three nodes, run small: real processes, the load proves itself, and all brokers are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.campaign import measure
from bench.cluster_session import NODES, ClusterSession
from bench.rows import ROWS
from bench.servers import BARNABAS, Product
from bench.session import MeasurementError
from bench.usage import cpu_seconds, resident_megabytes
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.broker import BrokerProcess

SCALE = 0.01
TOPIC_RESOURCE = 2


class BrokerThatEnds(BrokerProcess):
    """It can be formatted, and says no more than why it does not serve."""

    is_formatted = False

    def format(self, cluster_id: str, *arguments: str) -> None:
        super().format(cluster_id, *arguments)
        self.is_formatted = True

    def command(self) -> list[str]:
        return [*super().command(), *(("--override", "process.roles=neither") if self.is_formatted else ())]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    session = ClusterSession(BARNABAS, tmp_path_factory.mktemp("session"), SCALE)
    try:
        yield session.open()
    finally:
        session.close()


@pytest.mark.parametrize("name", ["cluster-produce-1kb", "cluster-lock-step", "cluster-rate-1000", "cluster-transactions-10"])
def test_row_of_a_load_has_all_its_figures(session: ClusterSession, name: str) -> None:
    outcome = ROWS[name].measure(session)

    assert {figure.key for figure in ROWS[name].figures} <= outcome.values.keys()
    assert all(value > 0 for value in outcome.values.values())


def test_topic_is_on_all_nodes_and_its_first_partition_is_led_by_the_node_that_clients_are_sent_to(session: ClusterSession) -> None:
    with session.topic(NODES) as topic:
        partitions = session.cluster.metadata(topic).topics[0].partitions

        assert sorted(partition.leader_id for partition in partitions) == [1, 2, 3]
        assert all(sorted(partition.isr_nodes) == [1, 2, 3] for partition in partitions)
        assert session.cluster.nodes[session.cluster.partition(topic).leader_id] is session.server


def test_acks_all_means_two_of_three_for_a_topic_of_the_benchmark(session: ClusterSession) -> None:
    with session.topic() as topic, session.wire() as client:
        asked = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=["min.insync.replicas"])
        (answer,) = client.request(DescribeConfigsRequest(resources=[asked]), 4).results

        assert [config.value for config in answer.configs] == ["2"]


def test_records_are_counted_where_they_are_led(session: ClusterSession) -> None:
    """A load that lost records on one of the nodes must not pass for a fast one."""
    with session.topic(NODES) as topic:
        session.librdkafka("produce", topic, 300, 100)

        assert session.end_offsets(topic, NODES) == 301


def test_cpu_is_all_nodes_together(session: ClusterSession) -> None:
    each_before = [cpu_seconds(pid) for pid in session.pids]
    together = cpu_seconds(*session.pids)
    each_after = [cpu_seconds(pid) for pid in session.pids]

    assert len(set(session.pids)) == NODES
    assert sum(each_before) <= together <= sum(each_after)
    assert cpu_seconds() == 0


def test_memory_is_all_nodes_together_and_the_measured_cluster_is_gone_afterwards(session: ClusterSession) -> None:
    values = ROWS["cluster-memory"].measure(session).values

    assert values["peak_mb"] >= values["loaded_mb"] > 2 * resident_megabytes(session.server.pid)
    assert list(session.directory.iterdir()) == [session.directory / "cluster"]


def test_failover_row_kills_nodes_of_its_own(session: ClusterSession) -> None:
    pids = session.pids

    values = ROWS["cluster-failover"].measure(session).values

    assert 0 < values["next_ack_ms"] <= values["longest_ms"]
    assert session.cluster.running == (1, 2, 3) and session.pids == pids


def test_cluster_that_does_not_start_leaves_nothing_behind(tmp_path: Path) -> None:
    session = ClusterSession(Product("broken", "broken", BrokerThatEnds), tmp_path)

    with pytest.raises(MeasurementError, match="no cluster of broken"):
        session.open()

    assert not list(tmp_path.iterdir())


def test_rows_of_a_cluster_that_does_not_start_are_said_to_have_failed(tmp_path: Path) -> None:
    rows = [ROWS["cluster-lock-step"], ROWS["cluster-memory"]]
    broken = replace(BARNABAS, server_class=BrokerThatEnds)

    results = measure(rows, [broken], runs=2, scale=SCALE, warmup=0, data_dir=tmp_path)

    assert [result.row for result in results] == rows
    assert all(result.runs == [None] and result.notes[0].startswith("failed: no cluster") for result in results)


def test_requests_at_a_rate_hold_the_records_that_a_producer_would_gather(session: ClusterSession) -> None:
    with session.topic() as topic:
        session.client(
            "open_loop", "--topic", topic, "--rate", "200", "--requests", "20", "--warmup", "0", "--records", "5", "--acks", "-1"
        )

        assert session.end_offsets(topic) == 100
