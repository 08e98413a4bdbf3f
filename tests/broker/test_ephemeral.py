"""`barnabas serve --ephemeral` as a program in any language starts it: one line of JSON, and no trace at the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.process import serves_metadata

LAUNCHER = Path(__file__).resolve().parents[2] / "barnabas" / "__main__.py"
TIMEOUT_S = 60


class EphemeralBroker:
    """The command with a pipe at its standard input; `ready` is what it said."""

    started: ClassVar[list[EphemeralBroker]] = []

    def __init__(self, *arguments: str, temporary: Path, stdin: int = subprocess.PIPE) -> None:
        environ = {**os.environ, "TMPDIR": str(temporary), "KAFKA_NUM_PARTITIONS": "wrong"}
        self.process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), "serve", "--ephemeral", *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
        )
        self.started.append(self)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(line) if line else {}

    def finish(self) -> tuple[int, str]:
        """The exit status and what it logged, once it has ended by itself. Closes its standard input."""
        _, errors = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, errors

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_S)


@pytest.fixture(autouse=True)
def _end_all() -> Iterator[None]:
    yield
    for broker in EphemeralBroker.started:
        broker.process.kill()
        broker.process.communicate()
    EphemeralBroker.started.clear()


def test_one_line_of_json_says_where_and_who(tmp_path: Path) -> None:
    broker = EphemeralBroker("--port", "0", temporary=tmp_path)

    ready = broker.ready
    assert ready["pid"] == broker.process.pid and Path(ready["data_dir"]).parent == tmp_path
    assert ready["bootstrap_servers"] == f"{ready['host']}:{ready['port']}" and ready["version"]
    assert serves_metadata(ready["host"], ready["port"])


def test_the_end_of_standard_input_ends_it_and_its_data(tmp_path: Path) -> None:
    broker = EphemeralBroker(temporary=tmp_path)
    assert os.listdir(broker.ready["data_dir"])

    assert broker.finish()[0] == 0

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_and_its_data(tmp_path: Path, number: signal.Signals) -> None:
    broker = EphemeralBroker(temporary=tmp_path)

    broker.process.send_signal(number)

    assert broker.wait() == 0
    assert list(tmp_path.iterdir()) == []


def test_data_in_a_given_directory_outlive_a_stop_but_not_standard_input(tmp_path: Path) -> None:
    directory = tmp_path / "given"
    stopped = EphemeralBroker(f"--ephemeral={directory}", temporary=tmp_path)
    stopped.process.send_signal(signal.SIGTERM)
    assert stopped.wait() == 0 and (directory / "meta.properties").exists()

    again = EphemeralBroker(f"--ephemeral={directory}", "--port", str(stopped.ready["port"]), temporary=tmp_path)

    assert again.ready["bootstrap_servers"] == stopped.ready["bootstrap_servers"]
    assert again.finish()[0] == 0 and not directory.exists()


def test_log_directories_of_the_user_s_own_are_closed_in_order_and_kept(tmp_path: Path) -> None:
    data = tmp_path / "mine"
    broker = EphemeralBroker("--override", f"log.dirs={data}", temporary=tmp_path)

    assert broker.finish()[0] == 0

    assert (data / ".kafka_cleanshutdown").exists() and os.listdir(tmp_path) == ["mine"]


def test_standard_input_that_says_nothing_of_a_parent_is_not_waited_for(tmp_path: Path) -> None:
    """/dev/null, as a shell gives a background job, is at its end from the beginning."""
    broker = EphemeralBroker(temporary=tmp_path, stdin=subprocess.DEVNULL)

    assert serves_metadata(broker.ready["host"], broker.ready["port"])


def test_a_socket_is_standard_input_too(tmp_path: Path) -> None:
    """Node.js and others make socket pairs where C makes pipes."""
    ours, theirs = socket.socketpair()
    broker = EphemeralBroker(temporary=tmp_path, stdin=theirs.fileno())
    theirs.close()

    ours.sendall(b"anything")
    assert serves_metadata(broker.ready["host"], broker.ready["port"])
    ours.close()

    assert broker.wait() == 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--override", "num.partition=3"], 1, "barnabas: Unknown configuration num.partition; did you mean num.partitions?\n"),
        (["--override", "num.partitions=x"], 1, "barnabas: Invalid value x for configuration num.partitions: Not a number of type INT"),
        (["--config", "some.properties"], 2, "barnabas serve: --ephemeral reads no file; give settings by --override; barnabas"),
        (["--port", "65536"], 2, "barnabas serve: --port 65536 is not a port; barnabas serve --help says more\n"),
        (["--port", "9", "--override", "listeners=A://:0"], 2, "barnabas serve: --port 9 would be lost beside --override listeners"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(tmp_path: Path, arguments: list[str], status: int, line: str) -> None:
    returned, errors = EphemeralBroker(*arguments, temporary=tmp_path).finish()

    assert returned == status and errors.startswith(line)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    odd = tmp_path / "a,b"
    odd.mkdir()

    _, errors = EphemeralBroker(temporary=odd).finish()

    assert errors.startswith("barnabas: ") and "comma" in errors and list(odd.iterdir()) == []


def test_a_port_without_ephemeral_is_that_of_the_listener(tmp_path: Path) -> None:
    command = [sys.executable, str(LAUNCHER), "serve", "--port", "0", "--override", f"log.dirs={tmp_path}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout is not None
        line = broker.stdout.readline()
        broker.terminate()

    assert "ready on PLAINTEXT://localhost:" in line and "localhost:9092" not in line
