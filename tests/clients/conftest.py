"""Fixtures of the client tests: one server and one JVM for all of them."""

from __future__ import annotations

import pytest

from tests.clients.adapters import AioKafka, Client, ConfluentKafka, JavaKafka, KafkaPython
from tests.support.fixtures import java_host, make_server, own_server, server, topic_name

__all__ = ["client", "consumer", "java_host", "make_server", "own_server", "producer", "server", "topic_name"]

CLIENTS = ("kafka-python", "aiokafka", "confluent-kafka", "java")


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
