"""Kafka Connect's exactly-once sources (KIP-618): records and their offsets are one transaction, and a new task fences the old one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.connect.connectors import Connectors, Feed
from tests.streams.records import Topic
from tests.support.connect import ConnectWorker
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint

TIMEOUT_S = 60.0
GROUP = "exactly-once"
SETTINGS = {
    "exactly.once.source.support": "enabled",
    **{f"{store}.storage.topic": f"{GROUP}-{store}" for store in ("config", "offset", "status")},
}
MIDST = 500


@pytest.fixture
def exact_connectors(endpoint: Endpoint, tmp_path: Path, topic_name: str) -> Iterator[Connectors]:
    """Connectors of a worker of this test's own, whose topics are its own too."""
    worker = ConnectWorker(tmp_path / "worker", endpoint, GROUP, SETTINGS)
    if not endpoint.server.is_running:
        endpoint.server.start()
    worker.start()
    yield Connectors(worker, tmp_path, topic_name)
    worker.kill()


def test_each_line_comes_once_while_worker_and_broker_are_killed(
    exact_connectors: Connectors, broker: ServerProcess, tmp_path: Path
) -> None:
    source_file, topic, worker = tmp_path / "source.txt", exact_connectors.topic, exact_connectors.worker
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    feed = Feed(source_file)
    feed.append(1)
    exact_connectors.start_source(source_file, **{"exactly.once.support": "required"})
    worker.wait_for(lambda: topic in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic")
    with Topic(broker.bootstrap, topic) as reader:
        with feed:
            for process in (worker, broker):
                reader.wait_count(len(reader.records) + MIDST)
                process.restart(hard=True)
            reader.wait_count(len(reader.records) + MIDST)
        reader.wait_count(len(feed.lines))

        assert [record.value for record in reader.read()] == feed.lines
