"""A producer at a fixed rate whose latencies count from the schedule, not from the send, so that a stall shows in all requests behind it.

Each request is one record, or one batch of `--records`, and is sent at its scheduled time, however many requests are unanswered. With
`--end-to-end` a second connection long-polls Fetch, and the latency is that of the record's arrival there.
`python -m bench.clients.open_loop --port 9092 --topic t --rate 5000` prints one JSON line. The topic must be new: the record's offset
tells which request it was.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import select
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from time import perf_counter, process_time

from bench.clients.raw_produce import CLIENT_ID, TIMESTAMP_MS, connect, produce_request
from bench.usage import cpu_seconds
from protocol.records import SimpleRecord, build_batch, iterate_headers

FETCH_VERSION = 4
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 1024 * 1024
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
RECEIVE_SIZE = 256 * 1024
DRAIN_TIMEOUT_S = 10.0
PR_SET_TIMERSLACK = 29
_NO_ERROR = 0


@dataclass(frozen=True, slots=True)
class OpenLoopResult:
    """Latencies in microseconds from the scheduled time; `late_sends` were sent over a millisecond after it, by the client's fault."""

    rate: int
    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    late_sends: int
    client_cpu_seconds: float
    broker_cpu_seconds: float


class Frames:
    """Cuts what a socket receives into frames."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def receive(self) -> list[bytes]:
        """The frames that are complete after one recv."""
        data = self._connection.recv(RECEIVE_SIZE)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        buffer = self._buffer
        buffer += data
        frames, position = [], 0
        while len(buffer) - position >= 4:
            end = position + 4 + struct.unpack_from(">i", buffer, position)[0]
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[position + 4 : end]))
            position = end
        del buffer[:position]
        return frames


class Tail:
    """A consumer of partition 0 that always has one Fetch v4 waiting at the broker."""

    def __init__(self, connection: socket.socket, topic: str, isolation_level: int = READ_UNCOMMITTED) -> None:
        self.connection = connection
        self._frames = Frames(connection)
        self._topic = topic.encode()
        self._isolation_level = isolation_level
        self.next_offset = 0
        self._ask()

    def receive(self) -> None:
        """Reads what arrived; `next_offset` is then past the last record received."""
        for frame in self._frames.receive():
            # correlation id, throttle time, one topic, its name, one partition, then its index, error, two offsets and the aborted list
            position = 4 + 4 + 4
            position += 2 + struct.unpack_from(">h", frame, position)[0] + 4
            _, error, _, _, aborted_count = struct.unpack_from(">ihqqi", frame, position)
            if error != _NO_ERROR:
                raise RuntimeError(f"fetch: error {error}")
            position += 4 + 2 + 8 + 8 + 4 + 16 * max(aborted_count, 0) + 4
            for _, header in iterate_headers(frame, position):
                self.next_offset = header.next_offset
            self._ask()

    def _ask(self) -> None:
        body = struct.pack(">iiiib", -1, FETCH_WAIT_MS, 1, 50 * FETCH_BYTES_MAX, self._isolation_level)
        body += struct.pack(">ih", 1, len(self._topic)) + self._topic + struct.pack(">iiqi", 1, 0, self.next_offset, FETCH_BYTES_MAX)
        header = struct.pack(">hhih", 1, FETCH_VERSION, 1, len(CLIENT_ID)) + CLIENT_ID
        self.connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)


class OpenLoop:
    """One run: owns the schedule and the latencies."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._interval = 1.0 / options.rate
        self._count = options.requests
        self._warmup = options.warmup
        self._producer = connect(options.host, options.port)
        self._answers = Frames(self._producer)
        self._tail = Tail(connect(options.host, options.port), options.topic) if options.end_to_end else None
        records = bytes(build_batch([SimpleRecord(None, b"x" * options.size, timestamp=TIMESTAMP_MS)] * options.records))
        self._request = bytes(produce_request(options.topic, 1, acks=options.acks, records=records))
        self._sent = self._acked = 0
        self._late_sends = 0
        self.latencies: list[float] = []

    def run(self) -> tuple[float, int]:
        """Sends all requests on schedule and waits for the last answer. Returns the seconds it took and how many sends were late."""
        sockets = [self._producer] + ([self._tail.connection] if self._tail else [])
        started = perf_counter() + 0.01
        deadline = started + self._count * self._interval + DRAIN_TIMEOUT_S
        while len(self.latencies) < self._count or self._acked < self._count:
            now = perf_counter()
            self._send_due(now, started)
            wait_s = started + self._sent * self._interval - now if self._sent < self._count else 0.1
            readable, _, _ = select.select(sockets, [], [], max(wait_s, 0))
            for connection in readable:
                self._receive(connection, started)
            if now > deadline:
                raise RuntimeError(f"{self._acked} of {self._count} requests were answered in time")
        return perf_counter() - started, self._late_sends

    def _send_due(self, now: float, started: float) -> None:
        due = min(int((now - started) / self._interval) + 1, self._count) - self._sent if now >= started else 0
        if due <= 0:
            return
        self._late_sends += max(0, min(due, int((now - started - 0.001) / self._interval) - self._sent))
        self._producer.sendall(self._request * due)
        self._sent += due

    def _receive(self, connection: socket.socket, started: float) -> None:
        if self._tail is not None and connection is self._tail.connection:
            self._tail.receive()
            self._note(self._tail.next_offset, started)
            return
        for frame in self._answers.receive():
            (name_size,) = struct.unpack_from(">h", frame, 8)
            (error,) = struct.unpack_from(">h", frame, 10 + name_size + 4 + 4)
            if error != _NO_ERROR:
                raise RuntimeError(f"produce: error {error}")
            self._acked += 1
        if self._tail is None:
            self._note(self._acked, started)

    def _note(self, done_count: int, started: float) -> None:
        now = perf_counter()
        for place in range(len(self.latencies), done_count):
            self.latencies.append(now - (started + place * self._interval))

    def measured(self) -> list[float]:
        """The latencies after the warm-up, sorted."""
        return sorted(self.latencies[self._warmup :])


def run(options: argparse.Namespace) -> OpenLoopResult:
    """Sends `warmup` + `requests` records at `rate` per second; raises RuntimeError for an error or a missing answer."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)  # wake within a microsecond of the schedule, not within fifty
    options.requests += options.warmup
    loop = OpenLoop(options)
    broker_cpu = cpu_seconds(*options.broker_pid)
    cpu = process_time()
    seconds, late_sends = loop.run()
    cpu = process_time() - cpu
    broker_cpu = cpu_seconds(*options.broker_pid) - broker_cpu
    latencies = loop.measured()
    count = len(latencies)
    p50, p99, p999 = (1e6 * latencies[int(count * share)] for share in (0.5, 0.99, 0.999))
    return OpenLoopResult(options.rate, options.requests, seconds, p50, p99, p999, 1e6 * latencies[-1], late_sends, cpu, broker_cpu)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="produce on a schedule and measure from it")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, required=True, help="requests per second")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--warmup", type=int, default=1_000)
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of a record's value")
    parser.add_argument("--records", type=int, default=1, help="in each request")
    parser.add_argument("--end-to-end", action="store_true", help="of one record in each request")
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="once for each broker of a cluster")
    print(json.dumps(asdict(run(parser.parse_args(arguments)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
