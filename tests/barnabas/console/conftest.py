"""The console as a process of its own, at Barnabas and at Apache Kafka: one of each for all tests of the folder."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.installed import CHECKOUT
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess

SEEN_S = 60
LOADING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
HOSTILE = '<script>document.title="caught"</script><img src=x onerror=alert(1)>"\''
"""As a key, a value, a header and a group's id."""
TOPIC, BEHIND, RECORDS = "orders", "billing", 30


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the console; the body as text."""

    status: int
    headers: http.client.HTTPMessage
    text: str


class Console:
    """`barnabas console` of this checkout; `port` is where it serves, `base` the path of its first cluster."""

    def __init__(self, *words: str, environment: Mapping[str, str], log: Path | None = None) -> None:
        command = [sys.executable, "-m", "barnabas", "console", "--port", "0", *words]
        with open(log or os.devnull, "wb") as stderr:
            self.process = subprocess.Popen(command, cwd=CHECKOUT, env=dict(environment), stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("console on http://localhost:"), line
        self.port = int(line.split()[2].rstrip("/").rpartition(":")[2])
        self.base = urlsplit(self.get("/").headers["location"]).path

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def ask(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: str | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            sent = {"Host": f"localhost:{self.port}", **(headers or {})}
            if body is not None:
                sent |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body.encode()))}
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def page(self, path: str, *, until: str = "") -> str:
        """A page of the first cluster as the script asks for it; once `until` is in it."""
        deadline = time.monotonic() + SEEN_S
        while True:
            answer = self.get(self.base + path, x_again="1")
            if answer.status == 200 and until in answer.text:
                return answer.text
            assert time.monotonic() < deadline, f"{path}: {answer.status}, without {until!r}: {answer.text[-3_000:]}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        assert self.process.wait(30) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


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


def environment(home: Path, server: ServerProcess) -> dict[str, str]:
    """Without the contexts of whoever runs the tests."""
    kept = {name: value for name, value in server.environment().items() if not name.startswith("BARNABAS_")}
    return {**kept, "XDG_CONFIG_HOME": str(home)}


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
