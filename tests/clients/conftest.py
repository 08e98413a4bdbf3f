"""Fixtures of the client tests: one server and one JVM for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.clients.adapters import AioKafka, Client, ConfluentKafka, JavaKafka, KafkaPython
from tests.clients.transactional import PYTHON_PRODUCERS, JavaProducer, MakeProducer, Server, TransactionalProducer, start_java_producers
from tests.support.fixtures import java_host, make_server, own_server, parametrize_protocol, secured, server, topic_name
from tests.support.json_program import JsonProgram
from tests.support.secured_cluster import Endpoint, SecuredCluster, plain

__all__ = ["client", "consumer", "endpoint", "java_host", "make_server", "own_server", "producer", "secured", "server", "topic_name"]

CLIENTS = ("kafka-python", "aiokafka", "confluent-kafka", "java")


# Of a user to whose tests topics and groups belong whose names begin with "test-".
OPERATIONS = {
    "topic": ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "group": ("READ", "DELETE"),
    "transactional_id": ("WRITE",),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_protocol(metafunc, "endpoint", "session")


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """How clients connect: to the server without security, or to a secured one as a user of the tests."""
    if request.param == "PLAINTEXT":
        return plain(request.getfixturevalue("server"))
    secured: SecuredCluster = request.getfixturevalue("secured")
    rights = [f"{operation} {kind} test-*" for kind, operations in OPERATIONS.items() for operation in operations]
    return secured.add_user("tests", *rights)


def find_client(name: str, request: pytest.FixtureRequest) -> Client:
    if name == "java":
        return JavaKafka(request.getfixturevalue("java_host"))
    return {"kafka-python": KafkaPython, "aiokafka": AioKafka, "confluent-kafka": ConfluentKafka}[name]()


@pytest.fixture(params=CLIENTS)
def producer(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, in its part as a producer."""
    return find_client(request.param, request)


@pytest.fixture(params=CLIENTS)
def consumer(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, in its part as a consumer."""
    return find_client(request.param, request)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn."""
    return find_client(request.param, request)


@pytest.fixture(scope="session")
def java_producers() -> Iterator[JsonProgram]:
    """One JVM with Java's transactional producers for the whole run."""
    host = start_java_producers()
    yield host
    host.close()


@pytest.fixture(params=[*PYTHON_PRODUCERS, "java"])
def make_producer(request: pytest.FixtureRequest) -> Iterator[MakeProducer]:
    """Makes transactional producers, of each client in turn. They are closed after the test."""
    if request.param == "java":
        make = partial(JavaProducer, host=request.getfixturevalue("java_producers"))
    else:
        make = PYTHON_PRODUCERS[request.param]
    made: list[TransactionalProducer] = []

    def make_one(server: Server, transactional_id: str, **options: int) -> TransactionalProducer:
        made.append(make(server.bootstrap, transactional_id, **options))
        return made[-1]

    yield make_one
    for producer in made:
        producer.close()
