"""The brokers that are measured: Barnabas from this checkout, and Apache Kafka as its own scripts start it.

Both get the same few settings, and otherwise their defaults.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import cluster
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KAFKA_VERSION, KafkaServer, missing_java
from tests.support.process import ServerProcess

# What kafka-server-start and kafka-run-class pass, with a heap of 1 GB.
KAFKA_JVM_FLAGS = (
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# Deleted topics give their disk space back at once, so that a campaign's volume stays bounded.
SETTINGS = {"log.segment.delete.delay.ms": "1000"}
POLL_INTERVAL_S = 0.0005
START_TIMEOUT_S = 60.0


class BarnabasServer(BrokerProcess):
    """Barnabas with the settings of the benchmark."""


class ApacheKafkaServer(KafkaServer):
    """Apache Kafka with the JVM flags of its own start script."""

    name = "kafka"

    def command(self) -> list[str]:
        command = super().command()
        return ["java", *KAFKA_JVM_FLAGS, *command[command.index("-cp") :]]


@dataclass(frozen=True, slots=True)
class Product:
    """A kind of broker: `barnabas` or `kafka`, or Barnabas as it is at some commit."""

    name: str
    title: str
    server_class: type[BrokerProcess] | type[KafkaServer]
    has_cluster: bool = True
    """Whether nodes of it form a cluster: commits of the first weeks serve alone."""

    def server(self, directory: Path, settings: Mapping[str, str] | None = None) -> ServerProcess:
        return self.server_class(directory, {**SETTINGS, **(settings or {})})

    def cluster(self, directory: Path, nodes: int, settings: Mapping[str, str] | None = None) -> Cluster:
        """Nodes that are broker and voter each, not started yet; Apache Kafka's are formatted with the newest features that it has."""
        kind = cluster.KAFKA if issubclass(self.server_class, KafkaServer) else cluster.BARNABAS
        return Cluster(
            directory, [kind] * nodes, settings={**SETTINGS, **(settings or {})}, node_classes={kind: self.server_class}, format_words=()
        )


BARNABAS = Product("barnabas", "Barnabas", BarnabasServer)
KAFKA = Product("kafka", f"Apache Kafka {KAFKA_VERSION}", ApacheKafkaServer)
PRODUCTS = {product.name: product for product in (BARNABAS, KAFKA)}


def check_available(product: Product) -> None:
    """Raises SystemExit with the cure when the product cannot run here."""
    reason = missing_java() if product is KAFKA else None
    if reason:
        raise SystemExit(reason)


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds from the start of the process."""

    port_open_s: float
    first_answer_s: float


def time_start(server: ServerProcess, is_answered: Callable[[socket.socket], bool]) -> tuple[subprocess.Popen[bytes], StartTimes]:
    """Starts the server's command and returns its process, for the caller to end, with the times to the open port and to the first request
    of `is_answered` that succeeds. The command is prepared (a directory formatted) before the clock starts."""
    command, environment = server.command(), server.environment()
    with server.log_path.open("ab") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=_checkout()
        )
    deadline = started + START_TIMEOUT_S
    port_open_s = 0.0
    while time.perf_counter() < deadline and process.poll() is None:
        try:
            with socket.create_connection((server.host, server.port), timeout=1.0) as connection:
                port_open_s = port_open_s or time.perf_counter() - started
                if is_answered(connection):
                    return process, StartTimes(port_open_s, time.perf_counter() - started)
        except OSError:
            pass  # not listening yet, or not yet willing
        time.sleep(POLL_INTERVAL_S)
    process.kill()
    process.wait()
    raise RuntimeError(f"{server.name} did not serve\n{server.log_tail()[-2000:]}")


def _checkout() -> Path:
    return Path(__file__).resolve().parents[1]
