"""The console at Barnabas and at Apache Kafka: one of each for all tests of the folder, and one of each with users who log in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, sync_playwright

from tests.barnabas.console.logins import LoginConsole, add_users, make_cluster, start_console, write_contexts
from tests.barnabas.console.running import BEHIND, HOSTILE, RECORDS, SEEN_S, TOPIC, Console, environment
from tests.support.broker import BrokerProcess
from tests.support.chromium import launch_options
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess

LOADING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture(scope="session", params=["barnabas", "kafka"])
def shown_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a topic of 30 records, a group that has read 10 of them, and what is hostile to a page."""
    kind: type[ServerProcess] = {"barnabas": BrokerProcess, "kafka": KafkaServer}[request.param]
    if kind is KafkaServer:
        kafka_jars()
    server = kind(tmp_path_factory.mktemp(request.param))
    server.start()
    try:
        _fill(server.bootstrap)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def console(shown_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    running = Console("-b", shown_server.bootstrap, environment=environment(tmp_path_factory.mktemp("home"), shown_server))
    yield running
    running.stop()


@pytest.fixture(scope="session", params=["barnabas", "kafka"])
def login_console(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginConsole]:
    """At a secured server; it changes something for users who log in."""
    if request.param == "kafka":
        kafka_jars()
    home = tmp_path_factory.mktemp(f"login-{request.param}")
    with make_cluster(request.param, home) as cluster:
        add_users(cluster)
        write_contexts(home, cluster)
        console = start_console(home, cluster, "--allow-login")
        yield LoginConsole(console, cluster, home)
        console.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(**launch_options())
        yield running
        running.close()


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 3, 1, config={"retention.ms": "7200000"}), NewTopic("hostile", 1, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(RECORDS):
        value = json.dumps({"id": number, "sku": f"SKU-{number:03}"})
        producer.produce(TOPIC, value, key=f"key-{number}", partition=number % 3, headers=[("source", b"shop")])
    producer.produce("hostile", HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    producer.produce("hostile", b"\x00\xff\xfe", key=None)
    producer.produce("hostile", None, key="gone")
    assert producer.flush(30) == 0
    for group, topic in ((BEHIND, TOPIC), (HOSTILE, "hostile")):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        _commit(consumer, TopicPartition(topic, 0, 1 if topic == "hostile" else 0))
        consumer.close()


def _commit(consumer: Consumer, position: TopicPartition) -> None:
    """A coordinator of Apache Kafka that has just been chosen may not have loaded its offsets yet."""
    deadline = time.monotonic() + SEEN_S
    while True:
        try:
            consumer.commit(offsets=[position], asynchronous=False)
            return
        except KafkaException as e:
            if e.args[0].code() not in LOADING or time.monotonic() > deadline:
                raise
