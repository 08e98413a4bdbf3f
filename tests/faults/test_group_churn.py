"""Consumers come and go all the time: plain librdkafka, which sends LeaveGroup behind a JoinGroup that still waits.

What counts is the broker's log, which has to be free of warnings and errors, and that the group works afterwards.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.broker import BrokerProcess
from tests.support.wire import WireClient

SECONDS = 6.0
SEED = 8
CONSUMERS = 8
GROUPS = 2
PARTITIONS = 4
TOPIC = "churned"
SETTLE_TIMEOUT_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, {"group.initial.rebalance.delay.ms": "20"})
    process.start()
    yield process
    process.kill()


def new_consumer(broker: BrokerProcess, group: str) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([TOPIC])
    return consumer


def come_and_go(broker: BrokerProcess, source: random.Random, end_s: float) -> None:
    while time.monotonic() < end_s:
        consumer = new_consumer(broker, f"group-{source.randrange(GROUPS)}")
        consumer.poll(source.choice([0.0, 0.02, 0.05, 0.1, 0.3]))
        consumer.close()


def assignment_of_the_only_member(broker: BrokerProcess, group: str) -> set[int]:
    consumer = new_consumer(broker, group)
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    assigned: set[int] = set()
    while len(assigned) < PARTITIONS and time.monotonic() < deadline:
        consumer.poll(0.1)
        assigned = {partition.partition for partition in consumer.assignment()}
    consumer.close()
    return assigned


def test_consumers_come_and_go_without_an_error(broker: BrokerProcess) -> None:
    with WireClient(broker.host, broker.port) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        client.request(CreateTopicsRequest(topics=[topic]), 5)
    end_s = time.monotonic() + SECONDS
    threads = [
        threading.Thread(target=come_and_go, args=(broker, random.Random(SEED + number), end_s), daemon=True) for number in range(CONSUMERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SETTLE_TIMEOUT_S)

    assigned = [assignment_of_the_only_member(broker, f"group-{number}") for number in range(GROUPS)]
    exit_code = broker.stop()

    unusual = [line for line in broker.log_path.read_text().splitlines() if " INFO " not in line and " ready on " not in line]
    assert unusual == []
    assert assigned == [set(range(PARTITIONS))] * GROUPS
    assert exit_code == 0
