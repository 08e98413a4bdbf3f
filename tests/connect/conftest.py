"""Fixtures of the tests of Kafka Connect: one broker and one worker for all of them, which the next test finds running again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.connectors import Connectors
from tests.support.connect import ConnectWorker
from tests.support.fixtures import deselect_unasked, new_server, parametrize_protocol, topic_name
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint, SecuredCluster, plain

__all__ = ["broker", "connectors", "endpoint", "topic_name", "worker"]

GROUP = "connect"
# Its topics are compacted all the time, so that every test is one of that too.
STORES = ("config", "offset", "status")
COMPACTED_SOON = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
WORKER_SETTINGS = {f"{store}.storage.{key}": value for store in STORES for key, value in COMPACTED_SOON.items()}
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100", "auto.create.topics.enable": "false"}


# What Kafka's documentation says that a worker and its connectors need; the topics of the tests begin with "test-".
RIGHTS = (
    *(f"{operation} topic {name}*" for operation in ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS") for name in ("connect-", "test-")),
    *(f"{operation} topic exactly-once-*" for operation in ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS")),
    *(f"{operation} group {name}*" for operation in ("READ", "DELETE") for name in ("connect", "exactly-once")),
    *(f"{operation} transactional_id {name}-*" for operation in ("WRITE", "DESCRIBE") for name in ("connect", "exactly-once")),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_protocol(metafunc, "endpoint", "session")
    parametrize_protocol(metafunc, "_mirrored", "module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deselect_unasked(config, items)


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """How workers connect to a broker of their own. Topics are made by Connect itself, or not at all."""
    if request.param == "SASL_SSL":
        directory = tmp_path_factory.mktemp("secured")
        with SecuredCluster(directory, kind=os.environ.get("BARNABAS_TEST_SERVER", "barnabas"), settings=BROKER_SETTINGS) as cluster:
            yield cluster.add_user("connect", *RIGHTS)
        return
    process = new_server(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS)
    process.start()
    yield plain(process)
    if process.is_running:
        process.stop()


@pytest.fixture(scope="session")
def broker(endpoint: Endpoint) -> ServerProcess:
    return endpoint.server


@pytest.fixture(scope="session")
def _worker(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    process = ConnectWorker(tmp_path_factory.mktemp("connect"), endpoint, GROUP, WORKER_SETTINGS)
    yield process
    process.end()


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
