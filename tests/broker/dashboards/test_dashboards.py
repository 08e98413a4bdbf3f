"""The queries of public dashboards and of our own, against one broker and against three: all that a broker can answer are answered."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import yaml

from tests.broker.dashboards.promql import is_foreign, missing, read_samples, with_variables
from tests.clients.adapters import ConfluentKafka
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster, free_ports
from tests.support.messages import Message
from tests.support.prometheus import Prometheus
from tests.support.sources import ROOT

PUBLIC = Path(__file__).parent / "public"
OWN = ROOT / "config" / "grafana" / "dashboards"
TOPIC, GROUP, PARTITIONS, RECORDS, READ = "orders", "readers", 3, 60, 30
NEW_GROUP = "all-readers"
"""Of KIP-848, in the cluster of three; it has read everything."""

CLUSTER_NAME = "my-cluster"
JOB = {"namespace": "test", "strimzi_io_cluster": CLUSTER_NAME, "strimzi_io_name": f"{CLUSTER_NAME}-kafka", "container": "kafka"}
"""Labels that Strimzi's scrape configuration gives to everything. Its dashboards ask for them."""
VARIABLES = {
    "kubernetes_namespace": "test", "strimzi_cluster_name": CLUSTER_NAME, "kafka_broker": ".*", "kraft_node": ".*", "kafka_topic": ".+",
    "kafka_partition": ".*", "consumergroup": ".*", "topic": ".*", "job": "kafka", "instance": CLUSTER_NAME,
}  # fmt: skip
LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")
WITHOUT_SERIES = ("kafka_network_requestmetrics_errors_total",)
"""What has no series until it happens."""

Targets = dict[str, dict[str, str]]
"""The labels of each metrics listener's scrape."""


def queries(name: str) -> list[tuple[str, str]]:
    """A public dashboard's panels and queries."""
    return [(each["panel"], each["query"]) for each in json.loads((PUBLIC / f"{name}.json").read_text())["queries"]]


def own_queries() -> list[tuple[str, str]]:
    """The panels and queries of our own dashboards, and their variables."""
    found = []
    for path in OWN.glob("*.json"):
        dashboard = json.loads(path.read_text())
        found += [(f"{path.stem}: {panel['title']}", target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]
        variables = [(each["name"], LABEL_VALUES.fullmatch(each["query"])) for each in dashboard["templating"]["list"]]
        found += [(f"{path.stem}: ${name}", query[1]) for name, query in variables if query is not None]
    return found


def labels_of(node_id: int) -> dict[str, str]:
    """`instance` is the same for all brokers: kafka_exporter's dashboard shows one instance, which is to be the cluster."""
    return {**JOB, "kubernetes_pod_name": f"{CLUSTER_NAME}-broker-{node_id}", "instance": CLUSTER_NAME, "broker": str(node_id)}


def use(bootstrap: str, group_id: str = GROUP, count: int = READ, *, protocol: str = "classic") -> None:
    """A consumer of a group reads so many records of the topic, and commits as many, the same in each partition."""
    settings = {
        "bootstrap.servers": bootstrap, "group.id": group_id, "group.protocol": protocol,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([TOPIC])
        assert len(consumer.consume(count, timeout=60)) == count
        offsets = [confluent_kafka.TopicPartition(TOPIC, index, count // PARTITIONS) for index in range(PARTITIONS)]
        consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        consumer.close()


MESSAGES = [Message(number % PARTITIONS, None, b"%d" % number) for number in range(RECORDS)]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    """A broker on its own."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    broker = BrokerProcess(tmp_path_factory.mktemp("single"), {"barnabas.metrics.listener": address, "num.partitions": str(PARTITIONS)})
    broker.start()
    try:
        ConfluentKafka().produce(broker, TOPIC, MESSAGES)
        use(broker.bootstrap)
        yield {address: labels_of(1)}
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    """A cluster of three."""
    addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in zip((1, 2, 3), free_ports(3), strict=True)}
    settings = {node_id: {"barnabas.metrics.listener": address} for node_id, address in addresses.items()}
    with Cluster(tmp_path_factory.mktemp("three"), node_settings=settings) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        ConfluentKafka().produce(cluster.nodes[1], TOPIC, MESSAGES)
        use(cluster.bootstrap)
        use(cluster.bootstrap, NEW_GROUP, RECORDS, protocol="consumer")
        yield {address: labels_of(node_id) for node_id, address in addresses.items()}


def scrape(targets: Targets) -> dict[str, list[Mapping[str, str]]]:
    """The labels of all samples, by name."""
    samples: dict[str, list[Mapping[str, str]]] = {}
    for address, labels in targets.items():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for name, found in read_samples(text, {"job": "kafka", **labels}):
            samples.setdefault(name, []).append(found)
    return samples


@pytest.mark.parametrize("servers", ["single", "three"])
def test_every_query_of_our_own_dashboards_finds_its_series(servers: str, request: pytest.FixtureRequest) -> None:
    samples = scrape(request.getfixturevalue(servers))

    unanswered = {panel: missing(with_variables(query, VARIABLES), samples) for panel, query in own_queries()}

    assert {panel: names for panel, names in unanswered.items() if set(names) - set(WITHOUT_SERIES)} == {}


@pytest.mark.parametrize("servers", ["single", "three"])
def test_every_query_of_public_dashboards_that_a_broker_can_answer_finds_its_series(servers: str, request: pytest.FixtureRequest) -> None:
    samples = scrape(request.getfixturevalue(servers))

    unanswered = {
        (dashboard.stem, panel): missing(with_variables(query, VARIABLES), samples)
        for dashboard in PUBLIC.glob("*.json")
        for panel, query in queries(dashboard.stem)
        if not is_foreign(query)
    }

    assert {place: names for place, names in unanswered.items() if names} == {}


def relabelling() -> list[dict[str, Any]]:
    """The rules in docs/operations.md that give Confluent's names."""
    (text,) = re.findall(r"```yaml\n(metric_relabel_configs:.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    rules: list[dict[str, Any]] = yaml.safe_load(text)["metric_relabel_configs"]
    return rules


CONFLUENT = (
    "kafka_server_brokertopicmetrics_bytesinpersec", "kafka_server_brokertopicmetrics_messagesinpersec",
    "kafka_network_requestmetrics_requestspersec", "kafka_controller_controllerstats_uncleanleaderelectionspersec",
    "kafka_server_replicamanager_isrshrinkspersec", "kafka_network_socketserver_networkprocessoravgidlepercent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", "kafka_cluster_partition_underminisr",
    "kafka_server_kafkaserver_linux_disk_read_bytes", "kafka_server_socketservermetrics_connection_count",
)  # fmt: skip
"""Of the dashboard kafka-cluster.json in github.com/confluentinc/jmx-monitoring-stacks, what this broker has."""


def test_prometheus_answers_the_queries_of_all_dashboards(three: Targets, tmp_path: Path) -> None:
    with Prometheus(tmp_path, three, relabelling=relabelling()) as prometheus:
        for dashboard in PUBLIC.glob("*.json"):
            for _, query in queries(dashboard.stem):
                if not is_foreign(query):
                    assert prometheus.wait_for(with_variables(query, VARIABLES))
        for _, query in own_queries():
            if not any(name in query for name in WITHOUT_SERIES):
                assert prometheus.wait_for(with_variables(query, VARIABLES))
        for name in CONFLUENT:
            prometheus.wait_for(f'count(count by (broker) ({name}{{job="renamed"}})) == 3')
        for expression, value in {
            f'sum(kafka_cluster_partition_replicascount{{topic="{TOPIC}",job="kafka"}})': 3 * PARTITIONS,
            f'sum(kafka_cluster_partition_insyncreplicascount{{topic="{TOPIC}",job="kafka"}})': 3 * PARTITIONS,
            "sum(kafka_cluster_partition_underreplicated)": 0,
            f'sum(kafka_consumergroup_lag{{job="kafka",consumergroup="{GROUP}"}})': RECORDS - READ,
            f'sum(kafka_consumergroup_lag_sum{{job="kafka",consumergroup="{GROUP}"}})': RECORDS - READ,
            f'sum(kafka_consumergroup_current_offset{{job="kafka",consumergroup="{GROUP}"}})': READ,
            f'sum(kafka_consumergroup_lag{{job="kafka",consumergroup="{NEW_GROUP}"}})': 0,
            f'count(kafka_consumergroup_lag{{job="kafka",consumergroup="{NEW_GROUP}"}})': PARTITIONS,
            f'sum(kafka_consumergroup_members{{job="kafka",consumergroup="{NEW_GROUP}"}})': 0,
            f'sum(kafka_topic_partition_current_offset{{job="kafka",topic="{TOPIC}"}})': RECORDS,
            f'sum(kafka_topic_partition_replicas{{job="kafka",topic="{TOPIC}"}})': 3 * PARTITIONS,
            f'sum(kafka_topic_partitions{{job="kafka",topic="{TOPIC}"}})': PARTITIONS,
            'count(kafka_topic_partitions{job="kafka"})': 2,  # __consumer_offsets is the other topic
            'sum(kafka_brokers{job="kafka"})': 3,
            'count(kafka_broker_info{job="kafka"})': 3,
            'sum(barnabas_lag_series_left_out{job="kafka"})': 0,
            "sum(kafka_log_logmanager_offlinelogdirectorycount)": 0,
            'count(kafka_server_raftchannelmetrics_request_total{job="kafka"} > 0)': 3,  # of each node to another
            "count(kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent > 0)": 3,
            'count(kafka_server_kafkaserver_linux_disk_write_bytes{job="kafka"} >= 0)': 3,
            'count(barnabas_log_directory_total_bytes{job="kafka"} > barnabas_log_directory_usable_bytes)': 3,
        }.items():
            assert prometheus.wait_for(f"({expression}) == {value}")
