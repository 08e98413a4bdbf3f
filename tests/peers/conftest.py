"""Fixtures of the tests that put Barnabas beside Apache Kafka: servers of both kinds and the JVM with Kafka's tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.fixtures import java_host, topic_name
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess

__all__ = ["java_host", "make_barnabas", "make_kafka", "topic_name"]


def _maker(kind: type[ServerProcess], root: Path) -> Iterator[Callable[..., ServerProcess]]:
    made: list[ServerProcess] = []

    def make(settings: dict[str, str] | None = None, *, data_dir: Path | None = None) -> ServerProcess:
        process = kind(root / f"{kind.name}-{len(made)}", settings)
        process.data_dir = data_dir or process.data_dir
        made.append(process)
        return process.start()

    yield make
    for process in made:
        process.end()


@pytest.fixture
def make_barnabas(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Makes and starts Barnabas, also on a data directory that somebody else wrote; stopped after the test."""
    yield from _maker(BrokerProcess, tmp_path)


@pytest.fixture
def make_kafka(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Makes and starts Apache Kafka of this test's own; stopped after the test."""
    kafka_jars()
    yield from _maker(KafkaServer, tmp_path)
