"""The log of a real broker process: nobody has to read it, and it says what an operator asks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.version import VERSION
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.broker import BrokerProcess
from tests.support.process import STOP_TIMEOUT_S, free_port, serves_metadata
from tests.support.wire import WireClient

CHECKOUT = Path(__file__).resolve().parents[3]
READY_TIMEOUT_S = 30


@contextlib.contextmanager
def unread_pipe() -> Iterator[int]:
    """The end to write to of a pipe that is full, and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(65_536)):
            pass
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def running(broker: BrokerProcess, *arguments: str, stdout: int, stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    """`broker` with its output where it is told, serving."""
    process = subprocess.Popen([*broker.command(), *arguments], stdout=stdout, stderr=stderr, env=broker.environment(), cwd=CHECKOUT)
    try:
        wait_until_served(broker, process)
        yield process
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)


def wait_until_served(broker: BrokerProcess, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not serves_metadata(broker.host, broker.port):
        assert process.poll() is None and time.monotonic() < deadline, "the broker does not serve"
        time.sleep(0.01)


@pytest.mark.parametrize("unread", ["stdout", "stderr", "both"])
def test_a_broker_whose_output_nobody_reads_serves_and_stops(tmp_path: Path, unread: str) -> None:
    """A parent that made a pipe for the output and never looks at it: neither a warning at the start, nor the ready line, nor what
    clients cause may stop the broker."""
    broker = BrokerProcess(tmp_path, {"no.such.configuration": "1"})
    with unread_pipe() as full, open(os.devnull, "wb") as nowhere:
        stdout = nowhere.fileno() if unread == "stderr" else full
        stderr = nowhere.fileno() if unread == "stdout" else full
        with running(broker, stdout=stdout, stderr=stderr) as process:
            join_groups(broker, count=50)
            assert serves_metadata(broker.host, broker.port)

            process.terminate()

            assert process.wait(STOP_TIMEOUT_S) == 0


def test_the_log_says_ready_stopping_and_stopped(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    broker.stop()

    said = [line.split(" ", 3)[3] for line in broker.log_path.read_text().splitlines() if " barnabas.server " in line]
    assert said[0].startswith(f"barnabas.server ready version={VERSION} listeners=PLAINTEXT://127.0.0.1:{broker.port} ")
    assert said[1:] == ["barnabas.server stopping reason=SIGTERM", "barnabas.server stopped exit_code=0"]


def test_the_log_as_json_is_an_object_a_line(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"no.such.configuration": "1"})
    with (
        (tmp_path / "log").open("wb") as log,
        running(broker, "--log-format", "json", stdout=subprocess.DEVNULL, stderr=log.fileno()) as process,
    ):
        process.terminate()
        process.wait(STOP_TIMEOUT_S)

    entries = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [entry["level"] for entry in entries] == ["WARNING", "INFO", "INFO", "INFO"]
    assert entries[1]["listeners"] == f"PLAINTEXT://127.0.0.1:{broker.port}"
    assert entries[2]["reason"] == "SIGTERM"


def test_a_level_leaves_out_what_is_less_important(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"no.such.configuration": "1"})
    with (
        (tmp_path / "log").open("wb") as log,
        running(broker, "--log-level", "warning", stdout=subprocess.DEVNULL, stderr=log.fileno()) as process,
    ):
        process.terminate()
        process.wait(STOP_TIMEOUT_S)

    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.endswith("unknown configurations are ignored: no.such.configuration")


def test_a_broker_without_stdout_and_stderr_keeps_its_log_out_of_its_files(tmp_path: Path) -> None:
    """`>&- 2>&-`: the next file or socket would get their numbers."""
    broker = BrokerProcess(tmp_path, {"no.such.configuration": "1"})
    command = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *broker.command()]
    process = subprocess.Popen(command, env=broker.environment(), cwd=CHECKOUT)
    try:
        wait_until_served(broker, process)
        opened = {number: os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (1, 2)}
        process.terminate()
        assert process.wait(STOP_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    assert opened == {1: os.devnull, 2: os.devnull}


def test_what_the_interpreter_would_write_to_stderr_is_logged() -> None:
    """Its own writes wait for whoever reads."""
    code = """
import logging, threading, warnings
from broker.observability.logs import open_console
console = open_console(logging.INFO, "text")
class Broken:
    def __del__(self):
        raise ValueError("in a finalizer")
Broken()
thread = threading.Thread(target=lambda: 1 / 0, name="busy")
thread.start()
thread.join()
warnings.warn("an old call")
console.close()
"""
    outcome = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=30, check=True)

    heads = [line.split(" ", 3)[2:] for line in outcome.stderr.splitlines() if not line.startswith(" ")]
    assert [level for level, _ in heads] == ["ERROR", "ERROR", "WARNING"]
    assert "Exception ignored in" in heads[0][1] and heads[1][1] == "barnabas.log thread busy failed" and "an old call" in heads[2][1]


def test_a_configuration_of_three_lines_says_why_consumers_wait(tmp_path: Path) -> None:
    """What everyone tries first has Kafka's replication factor 3 for the topic of consumer groups."""
    port = free_port()
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path / 'data'}\nbarnabas.auto.format=true\n")
    command = [sys.executable, "-m", "broker.cli.main", "serve", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=CHECKOUT)
    try:
        assert process.stderr is not None
        assert "WARNING barnabas.config offsets.topic.replication.factor=3, but this is a single node" in process.stderr.readline()
        assert " ready " in process.stderr.readline()
        with WireClient("127.0.0.1", port) as client:
            answer = client.request(FindCoordinatorRequest(key="g"), 3)
        line = process.stderr.readline()
    finally:
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "offsets.topic.replication.factor=3 but 1 broker is alive: set it to 1" in line


def join_groups(broker: BrokerProcess, *, count: int) -> None:
    """Consumers that come: what made the broker write most of its lines."""
    with WireClient(broker.host, broker.port) as client:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while client.request(FindCoordinatorRequest(key="group-0"), 3).error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, "there is no coordinator"
        for number in range(count):
            request = JoinGroupRequest(
                group_id=f"group-{number}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            assert client.request(request, 3).error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
