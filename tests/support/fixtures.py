"""Fixtures of every test that talks to a server process. A folder's conftest imports the ones that it uses.

BARNABAS_TEST_SERVER=kafka runs the same tests against Apache Kafka: that is how the tests themselves are proven. BARNABAS_TEST_PROTOCOL=
SASL_SSL gives the programs under test brokers with TLS, SCRAM and ACLs wherever a test has an `endpoint`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost
from tests.support.kafka import KafkaServer
from tests.support.process import ServerProcess
from tests.support.secured_cluster import SecuredCluster

SERVERS: dict[str, type[ServerProcess]] = {"barnabas": BrokerProcess, "kafka": KafkaServer}
_topic_numbers = itertools.count()


def new_server(directory: Path, settings: dict[str, str] | None = None, *, kind: str | None = None) -> ServerProcess:
    """A server that is not started yet, of the kind that this run tests."""
    return SERVERS[kind or os.environ.get("BARNABAS_TEST_SERVER", "barnabas")](directory, settings)


def protocols_of_run() -> list[str]:
    """Those of a test that is for both: without security, and TLS with SCRAM; or as BARNABAS_TEST_PROTOCOL says."""
    asked = os.environ.get("BARNABAS_TEST_PROTOCOL")
    return [asked] if asked else ["PLAINTEXT", "SASL_SSL"]


def parametrize_protocol(metafunc: pytest.Metafunc, fixture: str, scope: Literal["function", "module", "session"]) -> None:
    """For pytest_generate_tests. A test that has this fixture gets it without security; with the marker `secured` also with it, and with
    `secured(only=True)` only so. With BARNABAS_TEST_PROTOCOL all tests get that one, but those with `secured(never=True)`; those with
    `secured(asked=True)` run if it asks for security, and are left out otherwise."""
    if fixture not in metafunc.fixturenames:
        return
    marker, protocols = metafunc.definition.get_closest_marker("secured"), protocols_of_run()
    if marker is None:
        protocols = protocols[:1]
    elif marker.kwargs.get("never"):
        protocols = ["PLAINTEXT"]
    elif marker.kwargs.get("only") or marker.kwargs.get("asked"):
        protocols = protocols[-1:]
    metafunc.parametrize(fixture, protocols, indirect=True, scope=scope)


def deselect_unasked(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For pytest_collection_modifyitems: leaves out what needs security and is too expensive for every run."""
    markers = {item: item.get_closest_marker("secured") for item in items}
    unasked = {
        item for item, marker in markers.items() if marker is not None and marker.kwargs.get("asked") and len(protocols_of_run()) > 1
    }
    config.hook.pytest_deselected(items=[item for item in items if item in unasked])
    items[:] = [item for item in items if item not in unasked]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the whole run: tests keep apart by topic and group names (`topic_name`)."""
    process = new_server(tmp_path_factory.mktemp("server"))
    process.start()
    yield process
    process.end()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """A broker with TLS, SCRAM and ACLs for the whole run: tests make users of their own."""
    with SecuredCluster(tmp_path_factory.mktemp("secured"), kind=os.environ.get("BARNABAS_TEST_SERVER", "barnabas")) as cluster:
        yield cluster


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own, already serving, to be stopped, killed and restarted."""
    process = new_server(tmp_path)
    process.start()
    yield process
    process.end()


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], ServerProcess]]:
    """Makes and starts servers with settings of their own; all are stopped after the test."""
    started: list[ServerProcess] = []

    def make(settings: dict[str, str]) -> ServerProcess:
        process = new_server(tmp_path / f"server-{len(started)}", settings)
        started.append(process)
        return process.start()

    yield make
    for process in started:
        process.end()


@pytest.fixture(scope="session")
def java_host() -> Iterator[JavaHost]:
    """One JVM with Kafka's Java clients and tools in it for the whole run."""
    host = JavaHost()
    yield host
    host.close()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of the run uses; the test's own name shows where it comes from."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]
    return f"{plain}-{next(_topic_numbers)}"
