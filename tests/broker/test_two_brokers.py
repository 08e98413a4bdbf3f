"""Two brokers that want one port: exactly one gets it, the other says so and leaves what it has as it was."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import BrokerProcess
from tests.support.process import LineReader, free_port
from tests.support.wire import WireClient

TRIES = 5
TIMEOUT_S = 30.0


class Started(NamedTuple):
    broker: BrokerProcess
    process: subprocess.Popen[str]
    output: LineReader

    def is_ready(self) -> bool:
        """Waits until it is ready or has ended."""
        try:
            self.output.wait_for(1, containing=" ready on ", timeout_s=TIMEOUT_S)
        except AssertionError:
            self.process.wait(TIMEOUT_S)
            return False
        return True


@pytest.fixture
def start() -> Iterator[Callable[[BrokerProcess], Started]]:
    """Starts a broker without waiting until it serves."""
    processes: list[subprocess.Popen[str]] = []

    def begin(broker: BrokerProcess) -> Started:
        process = subprocess.Popen(
            broker.command(), env=broker.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=Path(__file__).resolve().parents[2],
        )  # fmt: skip
        processes.append(process)
        return Started(broker, process, LineReader(process))

    yield begin
    for process in processes:
        process.kill()
        process.wait(TIMEOUT_S)


def topics_of(broker: BrokerProcess) -> list[str]:
    with WireClient(broker.host, broker.port) as client:
        return [topic.name for topic in client.request(MetadataRequest(topics=None), 12).topics]


def test_of_two_brokers_on_one_port_exactly_one_is_ready(tmp_path: Path, start: Callable[[BrokerProcess], Started]) -> None:
    for number in range(TRIES):
        port = free_port()
        brokers = [BrokerProcess(tmp_path / f"{number}-{name}") for name in ("a", "b")]
        for broker in brokers:
            broker.port = port

        started = [start(broker) for broker in brokers]
        ready = [each for each in started if each.is_ready()]

        assert len(ready) == 1, f"try {number}: {len(ready)} are ready"
        (loser,) = [each for each in started if each not in ready]
        assert loser.process.returncode == 1
        assert [line for line in loser.output.lines if "listen" in line] == [
            f"barnabas: listener PLAINTEXT: can't listen on 127.0.0.1:{port}: Address already in use"
        ]
        assert not any("Traceback" in line for line in loser.output.lines)
        assert topics_of(ready[0].broker) == []
        ready[0].process.terminate()
        assert ready[0].process.wait(TIMEOUT_S) == 0


def test_the_broker_that_came_too_late_has_its_data_as_before(tmp_path: Path, start: Callable[[BrokerProcess], Started]) -> None:
    late = BrokerProcess(tmp_path / "late")
    late.start()
    with WireClient(late.host, late.port) as client:
        client.request(CreateTopicsRequest(topics=[CreatableTopic(name="kept", num_partitions=1, replication_factor=1)]), 5)
    late.stop()
    other = BrokerProcess(tmp_path / "other")
    other.port = late.port
    started = [start(each) for each in (other, late)]

    first_is_ready, late_is_ready = [each.is_ready() for each in started]
    for each in started:
        each.process.terminate()
        each.process.wait(TIMEOUT_S)
    late.port = free_port()
    late.start()
    topics = topics_of(late)
    late.stop()

    assert first_is_ready != late_is_ready
    assert topics == ["kept"]


def test_metrics_on_the_port_of_a_listener_stop_the_start(tmp_path: Path, start: Callable[[BrokerProcess], Started]) -> None:
    port = free_port()
    broker = BrokerProcess(tmp_path, {"barnabas.metrics.listener": f"127.0.0.1:{port}"})
    broker.port = port

    started = start(broker)

    assert not started.is_ready()
    assert started.process.returncode == 1
    assert started.output.lines[-1] == f"barnabas: metrics: can't listen on 127.0.0.1:{port}: Address already in use"
