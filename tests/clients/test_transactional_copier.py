"""Kafka's TransactionalMessageCopier while brokers, and itself, are killed: what it copies comes out once, in each partition's order."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from tests.clients.topics import create_topic
from tests.clients.transactional import Server, committed_offset, read
from tests.support.cluster import Cluster
from tests.support.kafka import start_java_tool
from tests.support.process import ServerProcess

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COUNT = 1_500
LONG_COUNT = 6_000
"""So many that a copier which is to be killed is not done before, also where the machine has other work."""
PER_TRANSACTION = 25
ABORTS = "--enable-random-aborts"
WAIT_S = 120.0
SOON = ("--transaction-timeout", "10000")
"""A copier asks for its position before it calls initTransactions. One that was killed between its offsets and their commit leaves that
position undecided until its transaction times out: by Kafka's default after a minute, when the next copier gives up waiting."""
CLUSTER_SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Copier:
    """A process that copies what is in the first partition of `in` now to `out`, and ends."""

    def __init__(self, server: Server, *options: str) -> None:
        self._process = start_java_tool(
            COPIER,
            *("--broker-list", server.bootstrap, "--transactional-id", "copier", "--consumer-group", "copiers"),
            *("--input-topic", "in", "--input-partition", "0", "--output-topic", "out"),
            *("--transaction-size", str(PER_TRANSACTION), *options),
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()  # empty text: it has ended
        self._seen: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def wait_processed(self, count: int) -> None:
        """Wait until it has committed so many records since it began."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            line = self._lines.get(timeout=WAIT_S)
            self._seen.append(line)
            assert line, f"it has ended before {count} records: {self._seen[-5:]}"
            if line.startswith("{") and json.loads(line)["totalProcessed"] >= count:
                return
        raise AssertionError(f"waited {WAIT_S} s for {count} records: {self._seen[-5:]}")

    def wait_end(self) -> None:
        status = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        while not self._lines.empty():
            self._seen.append(self._lines.get())
        assert status == 0, self._seen[-20:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)


@contextmanager
def copying(server: Server, *options: str) -> Iterator[Copier]:
    copier = Copier(server, *options)
    try:
        yield copier
    finally:
        copier.kill()


def fill(server: Server, count: int = COUNT) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce("in", str(number), partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0


def assert_copied_once(server: Server, count: int = COUNT) -> None:
    assert read(server, "out", count=count) == sorted(str(number) for number in range(count))
    assert committed_offset(server, "copiers", "in") == count


def test_records_are_copied_once_while_the_broker_is_killed(own_server: ServerProcess) -> None:
    for topic in ("in", "out"):
        create_topic(own_server, topic)
    fill(own_server)

    with copying(own_server, ABORTS) as copier:
        for count in (300, 800):
            copier.wait_processed(count)
            own_server.restart(hard=True)
        copier.wait_end()

    assert_copied_once(own_server)


def test_records_are_copied_once_while_the_copier_is_killed(own_server: ServerProcess) -> None:
    for topic in ("in", "out"):
        create_topic(own_server, topic)
    fill(own_server, LONG_COUNT)

    for count in (200, 400):
        with copying(own_server, ABORTS, *SOON) as copier:
            copier.wait_processed(count)
            copier.kill()
    with copying(own_server, ABORTS, *SOON) as copier:
        copier.wait_end()

    assert_copied_once(own_server, LONG_COUNT)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=CLUSTER_SETTINGS) as cluster:
        for topic in ("in", "out"):
            cluster.create_topic(topic)
        yield cluster


LEADERS: dict[str, Callable[[Cluster], int]] = {
    topic: lambda cluster, topic=topic: cluster.partition(topic).leader_id  # type: ignore[misc]
    for topic in ("__transaction_state", "out", "__consumer_offsets")
}


def test_records_are_copied_once_while_coordinators_and_leaders_are_killed(cluster: Cluster) -> None:
    fill(cluster)

    with copying(cluster, ABORTS, "--use-group-metadata") as copier:
        for count, leader_of in zip((200, 600, 1_000), LEADERS.values(), strict=True):
            copier.wait_processed(count)
            killed = leader_of(cluster)
            cluster.kill(killed)
            copier.wait_processed(count + 100)
            cluster.start(killed)
            cluster.wait_in_sync()
        copier.wait_end()

    assert_copied_once(cluster)
