"""A Kafka-speaking server as a child process of the tests: start, wait until it serves, stop, kill -9, restart.

Owns the process and its log file, not its data: a restart runs on the same directory. `ServerProcess` is what the tests
see; `BrokerProcess` (Barnabas) and `KafkaServer` (Apache Kafka, the reference) only say what command to run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.ports import free_port

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 2.0
PROBE_INTERVAL_S = 0.01
LOG_TAIL_BYTES = 8_000
LINES_TIMEOUT_S = 30.0  # loose: a thread of the server writes its log
FROZEN_STATES = frozenset("TtDZX")  # stopped, traced, in a system call that no signal interrupts, ended

# Settings both servers are given, so that a test means the same on each. Kafka's own defaults suit a cluster.
COMMON_SETTINGS: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


class ServerFailedError(AssertionError):
    """The server did not come up, or went away when it should not have. The message ends with its log's tail."""


def cache_dir() -> Path:
    """Where the tests keep what is costly to make and the same for every run on this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas-tests"


def serves_metadata(host: str, port: int) -> bool:
    """Whether a broker answers Metadata v1 with at least one broker: an open port alone does not mean it serves."""
    request = struct.pack(">hhih4si", 3, 1, 1, 4, b"test", 0)
    try:
        with socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = _receive_exactly(connection, 12)
    except OSError:
        return False
    _, _, broker_count = struct.unpack(">iii", answer)
    return bool(broker_count > 0)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    answer = b""
    while len(answer) < size:
        chunk = connection.recv(size - len(answer))
        if not chunk:
            raise ConnectionResetError("closed before the answer was complete")
        answer += chunk
    return answer


class ServerProcess(ABC):
    """One server on 127.0.0.1. `directory` holds its data and `server.log`; both outlive the process."""

    name = "server"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "server.log"
        self.settings = {**COMMON_SETTINGS, **(settings or {})}
        self.host = "127.0.0.1"
        self.port = free_port()
        self.ready_after_s = 0.0
        self.prefix: list[str] = []
        """What the command is given to: how to enter a network namespace."""
        self.is_frozen = False
        self._process: subprocess.Popen[bytes] | None = None
        self._launched_at_s = 0.0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @abstractmethod
    def command(self) -> list[str]:
        """What to run, without `prefix`."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> ServerProcess:
        """Starts the process and returns once it serves. Raises ServerFailedError with the log's tail."""
        self.launch()
        return self.wait_ready(timeout_s=timeout_s)

    def launch(self) -> None:
        """Starts the process and returns at once: a node of a cluster serves only when enough others have been launched."""
        assert not self.is_running, f"{self.name} runs already"
        command = [*self.prefix, *self.command()]
        self._launched_at_s, self.is_frozen = time.monotonic(), False
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self.environment(), cwd=checkout()
            )

    def wait_ready(self, *, timeout_s: float = READY_TIMEOUT_S) -> ServerProcess:
        """Returns once the launched process serves. Raises ServerFailedError with the log's tail."""
        assert self._process is not None, f"{self.name} was never started"
        while not self.serves():
            if self._process.poll() is not None:
                raise ServerFailedError(f"{self.name} exited with {self._process.returncode} before it served\n{self.log_tail()}")
            if time.monotonic() - self._launched_at_s > timeout_s:
                self.kill()
                raise ServerFailedError(f"{self.name} did not serve within {timeout_s} s\n{self.log_tail()}")
            time.sleep(PROBE_INTERVAL_S)
        self.ready_after_s = time.monotonic() - self._launched_at_s
        return self

    def serves(self) -> bool:
        """Whether it answers clients now."""
        return serves_metadata(self.host, self.port)

    def stop(self) -> int:
        """SIGTERM, then waits. Returns the exit status; a server that ignores it is killed and fails the test."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as e:
            self.kill()
            raise ServerFailedError(f"{self.name} did not stop within {STOP_TIMEOUT_S} s\n{self.log_tail()}") from e

    def wait(self, timeout_s: float) -> int:
        """The exit status of a server that stops by itself."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as e:
            raise ServerFailedError(f"{self.name} did not stop by itself within {timeout_s} s\n{self.log_tail()}") from e

    def freeze(self) -> None:
        """SIGSTOP; returns once no thread can execute an instruction of its own any more: each has stopped, or will before it
        returns from the system call that it is in. For Linux."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_frozen = True
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(state not in FROZEN_STATES for state in _thread_states(self.pid)):
            if time.monotonic() > deadline:
                raise ServerFailedError(f"{self.name} did not freeze within {STOP_TIMEOUT_S} s")

    def thaw(self) -> None:
        """SIGCONT: a frozen server goes on where it was."""
        os.kill(self.pid, signal.SIGCONT)
        self.is_frozen = False

    def kill(self) -> None:
        """kill -9, as a crash would; returns when the process is gone."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def end(self) -> None:
        """The test is over. As `stop`, which fails if the server ignores SIGTERM, whatever the test has done to it."""
        if self.is_running:
            self.stop()

    def restart(self, *, hard: bool = False) -> ServerProcess:
        """Stops (or with `hard` kills) the server and starts it on the same data and port."""
        if self.is_running:
            if hard:
                self.kill()
            else:
                self.stop()
        return self.start()

    def lines_with(self, text: str, *, count: int = 1) -> list[str]:
        """The lines of its log with `text`, once there are at least `count`: a thread writes them, after what they tell has happened."""
        deadline = time.monotonic() + LINES_TIMEOUT_S
        while len(lines := [line for line in self.log_path.read_text(errors="replace").splitlines() if text in line]) < count:
            assert time.monotonic() < deadline, f"{len(lines)} lines with {text!r}, {count} expected\n{self.log_tail()}"
            time.sleep(PROBE_INTERVAL_S)
        return lines

    def log_tail(self) -> str:
        """The end of what the server printed, for a failure's message."""
        if not self.log_path.exists():
            return "(no output)"
        return self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")


def _thread_states(pid: int) -> list[str]:
    """The state letter of each thread (proc_pid_stat(5)), without those that ended meanwhile."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return states


def checkout() -> Path:
    """The folder that holds broker/, tests/ and the rest."""
    return Path(__file__).resolve().parents[2]


class LineReader:
    """Collects a child's standard output line by line on a thread of its own, so that its pipe never fills up.

    `on_line` is called on that thread and may take a line for itself by returning True; the others are kept in `lines`.
    """

    def __init__(self, process: subprocess.Popen[str], on_line: Callable[[str], bool] = lambda line: False) -> None:
        self.lines: list[str] = []
        self._on_line = on_line
        self._process = process
        self._grew = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="line-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if self._on_line(line.rstrip("\n")):
                continue
            with self._grew:
                self.lines.append(line.rstrip("\n"))
                self._grew.notify_all()
        with self._grew:
            self._closed = True
            self._grew.notify_all()

    def wait_for(self, count: int, *, containing: str = "", timeout_s: float = 90.0) -> list[str]:
        """The lines that contain `containing`, once there are `count` of them. AssertionError when they do not come."""
        deadline = time.monotonic() + timeout_s
        with self._grew:
            while True:
                found = [line for line in self.lines if containing in line]
                if len(found) >= count:
                    return found
                left_s = deadline - time.monotonic()
                if self._closed or left_s <= 0:
                    raise AssertionError(f"only {len(found)} of {count} lines with {containing!r}; last: {self.lines[-5:]}")
                self._grew.wait(left_s)


def processes_of_session(session: int) -> list[int]:
    """The processes of a session that run now, also those whose parents have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found
