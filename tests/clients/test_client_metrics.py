"""KIP-714 end to end: what a Java client pushes comes out of the broker's Prometheus endpoint."""

from __future__ import annotations

from collections.abc import Callable
from urllib.request import urlopen

from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.clients.topics import create_topic
from tests.support.java_host import JavaHost
from tests.support.process import ServerProcess, free_port
from tests.support.wire import WireClient

CLIENT_METRICS = 16
TIMEOUT_S = 10


def test_a_java_producer_s_metrics_come_out_at_a_scrape(
    make_server: Callable[[dict[str, str]], ServerProcess], java_host: JavaHost, topic_name: str
) -> None:
    host = "127.0.0.1"
    port = free_port(host)
    server = make_server({"barnabas.metrics.listener": f"{host}:{port}"})
    create_topic(server, topic_name)
    configs = [AlterableConfig(name="metrics", value="*"), AlterableConfig(name="interval.ms", value="100")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=configs)
    with WireClient(server.host, server.port) as client:
        assert client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0

    properties = [f"bootstrap.servers={server.bootstrap}", "client.id=pushing", "enable.metrics.push=true"]
    load = ["--num-records", "40", "--record-size", "10", "--throughput", "20"]
    java_host.tool("ProducerPerformance", "--topic", topic_name, *load, "--command-property", *properties)
    with urlopen(f"http://{host}:{port}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()

    pushed = [line for line in lines if line.startswith("org_apache_kafka_producer_") and 'client_id="pushing"' in line]
    assert any('client_software_name="apache-kafka-java"' in line for line in pushed), lines[-20:]
