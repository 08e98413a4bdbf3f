"""An ordinary client beside the attack, in a process of its own so that its timings are its own.

    python -m tests.attack.canary KIND PORT TOPIC SAMPLES_FILE

Kinds: `small` produces a record and fetches it every 5 ms; `large` produces 1 MB, `lz4` a compressed batch; `echo` sends as many
bytes as `small` to a trivial server (tests/attack/echo.py) and so measures the machine. Rounds that a stall left out are counted in,
as long as the stall would have delayed them (`with_left_out`): a long round is not one sample among thousands. The process ends with
its parent.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

INTERVALS_S = {"small": 0.005, "echo": 0.005, "large": 0.05, "lz4": 0.02}
TIMEOUT_S = 120.0
RETRY_S = 0.05
LARGE_BYTES = 1_000_000
LZ4_RECORDS, LZ4_RECORD_BYTES = 500, 100
PRODUCE, PRODUCE_VERSION, FETCH, FETCH_VERSION = 0, 7, 1, 10
BASE_OFFSET_POSITION = 2 + 4 + 2  # in a Produce v7 response behind the topic's name: its length, count, index, error code
FETCHED_BYTES_MAX = 64 * 1024
FAILED = 1
PENDING_MIN_NS = 100_000_000  # a round that takes longer is counted before it is over

_SAMPLE = struct.Struct("<qqq")


class Sample(NamedTuple):
    """One round. Times are CLOCK_MONOTONIC's nanoseconds."""

    start_ns: int
    duration_ns: int
    outcome: int


class CanaryProcess:
    """The process from outside."""

    def __init__(self, kind: str, port: int, topic: str, path: Path) -> None:
        self.path = path
        self.interval_ns = int(INTERVALS_S[kind] * 1e9)
        self.stopped_ns = 0
        self._kind = kind
        path.touch()
        command = [sys.executable, "-m", "tests.attack.canary", kind, str(port), topic, str(path)]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def samples(self, start_ns: int, end_ns: int) -> list[Sample]:
        """The rounds that began in that time; one that is not over counts as long as it has taken so far."""
        data = self.path.read_bytes()
        found = [Sample(*fields) for fields in _SAMPLE.iter_unpack(data[: len(data) - len(data) % _SAMPLE.size])]
        end_ns = min(end_ns, self.stopped_ns or end_ns)
        pending_ns = found[-1].start_ns + max(found[-1].duration_ns, self.interval_ns) if found else start_ns
        if end_ns - pending_ns > PENDING_MIN_NS:
            found.append(Sample(pending_ns, end_ns - pending_ns, 0))
        return [sample for sample in found if start_ns <= sample.start_ns <= end_ns]

    def wait_until_running(self, timeout_s: float = 30.0) -> None:
        """Return after the first rounds, which pay for what is done once."""
        deadline = time.monotonic() + timeout_s
        while self.path.stat().st_size < 20 * _SAMPLE.size:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the {self._kind} canary does not get through")
            time.sleep(0.01)

    def stop(self) -> None:
        if not self.stopped_ns:
            self.stopped_ns = time.monotonic_ns()
            self._process.kill()
            self._process.wait()


def with_left_out(durations_ns: Iterable[int], interval_ns: int) -> Iterator[int]:
    """Each round's time, and those of the rounds that would have begun while it lasted."""
    for duration_ns in durations_ns:
        yield from range(duration_ns, 0, -interval_ns)


class Canary:
    """One connection and what is said on it."""

    def __init__(self, kind: str, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic.encode()
        self._socket: socket.socket | None = None
        self._produce = b"" if kind == "echo" else self._produce_frame(kind)
        self.round: Callable[[], object] = self._produce_once
        if kind == "small":
            self.round = self._produce_and_fetch
        elif kind == "echo":
            self.round = self._echo

    def _produce_and_fetch(self) -> None:
        offset = self._produce_once()
        topic = struct.pack(">h", len(self._topic)) + self._topic
        head = struct.pack(">iiiibii", -1, 0, 1, FETCHED_BYTES_MAX, 0, 0, -1)
        partition = struct.pack(">iiqqi", 0, -1, offset, -1, FETCHED_BYTES_MAX)
        body = head + struct.pack(">i", 1) + topic + struct.pack(">i", 1) + partition + struct.pack(">i", 0)
        answer = self._ask(_frame(FETCH, FETCH_VERSION, body))
        if struct.pack(">q", offset) not in answer[-len(self._produce) :]:
            raise ConnectionError("the record just produced did not come back")

    def _produce_once(self) -> int:
        """The offset that the batch got."""
        answer = self._ask(self._produce)
        place = answer.index(self._topic) + len(self._topic)
        _, _, error, offset = struct.unpack_from(">iihq", answer, place)
        if error:
            raise ConnectionError(f"produce was answered with error {error}")
        return int(offset)

    def _echo(self) -> None:
        self._ask(_frame(PRODUCE, PRODUCE_VERSION, bytes(140)))
        self._ask(_frame(FETCH, FETCH_VERSION, bytes(100)))

    def _ask(self, frame: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        received = b""
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionError("closed")
            received += part
        return received

    def reconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _produce_frame(self, kind: str) -> bytes:
        from protocol.compression import Compression
        from protocol.records import SimpleRecord, build_batch

        now_ms = time.time_ns() // 1_000_000
        sizes = {"small": (1, 50), "large": (1, LARGE_BYTES), "lz4": (LZ4_RECORDS, LZ4_RECORD_BYTES)}
        count, size = sizes[kind]
        records = [SimpleRecord(b"key", os.urandom(size), timestamp=now_ms) for _ in range(count)]
        batch = build_batch(records, compression=Compression.LZ4 if kind == "lz4" else Compression.NONE)
        body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(self._topic)) + self._topic + struct.pack(">iii", 1, 0, len(batch)) + batch
        return _frame(PRODUCE, PRODUCE_VERSION, body)


def _frame(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih6s", key, version, 1, 6, b"canary")
    return struct.pack(">i", len(head) + len(body)) + head + body


def run(kind: str, port: int, topic: str, path: Path) -> None:
    """Rounds until the parent is gone; one sample each."""
    canary = Canary(kind, port, topic)
    parent = os.getppid()
    interval_ns = int(INTERVALS_S[kind] * 1e9)
    due_ns = time.monotonic_ns()
    with path.open("ab", buffering=0) as out:
        while os.getppid() == parent:
            time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
            start_ns, outcome = time.monotonic_ns(), 0
            try:
                canary.round()
            except (OSError, ValueError):
                outcome = FAILED
                canary.reconnect()
                time.sleep(RETRY_S)
            out.write(_SAMPLE.pack(start_ns, time.monotonic_ns() - start_ns, outcome))
            due_ns = max(due_ns + interval_ns, time.monotonic_ns())


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
