"""Fixtures of the Kafka Streams tests: one server and one JVM for most of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.fixtures import java_host, make_server, own_server, parametrize_protocol, secured, server
from tests.support.secured_cluster import Endpoint, SecuredCluster, plain
from tests.support.streams import StreamsHost, programs_path

__all__ = [
    "application_id", "endpoint", "java_host", "make_server", "new_host", "own_server", "programs", "secured", "server", "streams_host"
]  # fmt: skip

_application_numbers = itertools.count()


@pytest.fixture(scope="session")
def programs() -> str:
    """The class path with the compiled programs."""
    return programs_path()


@pytest.fixture(scope="session")
def streams_host(programs: str) -> Iterator[StreamsHost]:
    """One JVM for the instances that nobody kills."""
    host = StreamsHost(programs)
    yield host
    host.close()


@pytest.fixture
def new_host(programs: str) -> Iterator[Callable[[], StreamsHost]]:
    """Starts JVMs of this test's own, which it may kill."""
    started: list[StreamsHost] = []

    def start() -> StreamsHost:
        started.append(StreamsHost(programs))
        return started[-1]

    yield start
    for host in started:
        host.close()


@pytest.fixture
def application_id() -> str:
    """The id of a program that no other test of the run uses; its topics' names begin with it."""
    return f"program-{next(_application_numbers)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_protocol(metafunc, "endpoint", "function")


@pytest.fixture
def endpoint(request: pytest.FixtureRequest, application_id: str) -> Endpoint:
    """How the program connects: to the server without security; and to a secured one, with rights to what bears its id."""
    if request.param == "PLAINTEXT":
        return plain(request.getfixturevalue("server"))
    secured: SecuredCluster = request.getfixturevalue("secured")
    topics = [f"{operation} topic {application_id}-*" for operation in ("READ", "WRITE", "CREATE", "DELETE")]
    return secured.add_user(application_id, *topics, f"READ group {application_id}", f"WRITE transactional_id {application_id}-*")
