"""The client commands, called in this process, at Barnabas and at Apache Kafka: one server of each for all tests of the folder."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.cli.main import main
from barnabas.cli.settings import ADDRESS_VARIABLES
from tests.support.broker import BrokerProcess
from tests.support.fixtures import java_host, topic_name
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess

__all__ = ["java_host", "topic_name"]


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def data(self) -> Any:
        """Of --output json."""
        return json.loads(self.out)


class Command:
    """Calls `barnabas …` for one server; without one the address is in the arguments."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._patch = patch
        self.bootstrap = ""

    def __call__(self, *words: str, stdin: bytes | str = b"") -> Result:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        self._capture.readouterr()
        try:
            code = main(list(words))
        except SystemExit as e:  # argparse's
            code = int(e.code or 0)
        out, err = self._capture.readouterr()
        return Result(code, out, err.decode())

    def done(self, *words: str, stdin: bytes | str = b"") -> Result:
        """As a call; fails the test unless it is done."""
        result = self(*words, stdin=stdin)
        assert result.code == 0, f"{words}: {result}"
        return result


@pytest.fixture
def barnabas_command(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """With an empty folder for contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in (*ADDRESS_VARIABLES, "BARNABAS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return Command(capfdbinary, monkeypatch)


@pytest.fixture(scope="session", params=["barnabas", "kafka"])
def server_process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kind: type[ServerProcess] = {"barnabas": BrokerProcess, "kafka": KafkaServer}[request.param]
    if kind is KafkaServer:
        kafka_jars()
    process = kind(tmp_path_factory.mktemp(request.param), AUTHORIZER)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def command(barnabas_command: Command, server_process: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Command:
    """For one server after the other."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", server_process.bootstrap)
    barnabas_command.bootstrap = server_process.bootstrap
    return barnabas_command


def fill(command: Command, topic: str, records: list[tuple[int, str]], **times_ms: int) -> None:
    """Records with their partitions, in this order; `timestamp` in `times_ms` is that of all."""
    producer = Producer({"bootstrap.servers": command.bootstrap, "linger.ms": 0})
    for partition, value in records:
        producer.produce(topic, value, partition=partition, **times_ms)
        producer.flush(10)


class Tool:
    """Calls `kafka-NAME.sh …` in this process."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.address = ("--bootstrap-server", command.bootstrap)

    def __call__(self, name: str, *words: str, stdin: str = "") -> tuple[int, str, str]:
        done = self.command("kafka-tool", f"kafka-{name}.sh", *self.address, *words, stdin=stdin)
        return done.code, done.out, done.err


@pytest.fixture
def tool(command: Command) -> Tool:
    return Tool(command)
