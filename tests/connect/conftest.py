"""Fixtures of the tests of Kafka Connect: one broker and one worker for all of them, which the next test finds running again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.connectors import Connectors
from tests.support.connect import ConnectWorker
from tests.support.fixtures import new_server, topic_name
from tests.support.process import ServerProcess

__all__ = ["broker", "connectors", "topic_name", "worker"]

GROUP = "connect"
# Its topics are compacted all the time, so that every test is one of that too.
STORES = ("config", "offset", "status")
COMPACTED_SOON = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
WORKER_SETTINGS = {f"{store}.storage.{key}": value for store in STORES for key, value in COMPACTED_SOON.items()}
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100", "auto.create.topics.enable": "false"}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Connect's own. Topics are made by Connect itself, or not at all."""
    process = new_server(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS)
    process.start()
    yield process
    if process.is_running:
        process.stop()


@pytest.fixture(scope="session")
def _worker(broker: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    process = ConnectWorker(tmp_path_factory.mktemp("connect"), broker.bootstrap, GROUP, WORKER_SETTINGS)
    yield process
    process.kill()


@pytest.fixture
def worker(broker: ServerProcess, _worker: ConnectWorker) -> ConnectWorker:
    """The worker, serving; a test may stop and kill it, and the broker too."""
    for process in (broker, _worker):
        if not process.is_running:
            process.start()
    return _worker


@pytest.fixture
def connectors(worker: ConnectWorker, tmp_path: Path, topic_name: str) -> Iterator[Connectors]:
    """Connectors of this test, which end with it."""
    made = Connectors(worker, tmp_path, topic_name)
    yield made
    # A test that failed may have left no broker to ask.
    with contextlib.suppress(AssertionError, OSError):
        made.delete_all()
