"""KIP-1076: what Kafka Streams says of its own work comes out of the broker's Prometheus endpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.clients.topics import eventually
from tests.streams.records import TIMEOUT_S
from tests.streams.topics import create_topics
from tests.support.process import ServerProcess, free_port
from tests.support.streams import StreamsHost
from tests.support.wire import WireClient

CLIENT_METRICS = 16


def test_metrics_of_the_program_come_out_at_a_scrape(
    make_server: Callable[[dict[str, str]], ServerProcess], streams_host: StreamsHost, application_id: str, tmp_path: Path
) -> None:
    """Those of the instance, which its admin client pushes, and those of its tasks, which their consumers do."""
    host, port = "127.0.0.1", free_port("127.0.0.1")
    server = make_server({"barnabas.metrics.listener": f"{host}:{port}"})
    create_topics(server, application_id, "lines")
    configs = [AlterableConfig(name="metrics", value="org.apache.kafka.stream"), AlterableConfig(name="interval.ms", value="100")]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="streams", configs=configs)
    with WireClient(server.host, server.port) as client:
        assert client.request(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0

    def names_told() -> set[str]:
        with urlopen(f"http://{host}:{port}/metrics", timeout=TIMEOUT_S) as answer:
            return {line.split("{")[0] for line in answer.read().decode().splitlines() if f'client_id="{application_id}-' in line}

    with streams_host.start("word-count", application_id, server.bootstrap, tmp_path / "state"):
        eventually(lambda: names_told() >= {"org_apache_kafka_stream_client_state", "org_apache_kafka_stream_task_process_total"})
        names = names_told()

    assert all(name.startswith("org_apache_kafka_stream_") for name in names)
