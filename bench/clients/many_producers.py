"""Many connections, each with one small Produce request in flight: their total throughput and the latencies.

One thread serves them all by epoll, so that a thousand connections cost the client little more than one.
`python -m bench.clients.many_producers --port 9092 --topic t --connections 64 --requests 20000` prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
from collections import deque
from dataclasses import asdict, dataclass
from time import perf_counter, process_time

from bench.clients.raw_produce import RECEIVE_SIZE, TIMESTAMP_MS, check_answer, connect, produce_request
from bench.usage import cpu_seconds
from protocol.records import SimpleRecord, build_batch

STALL_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ManyProducersResult:
    """Latencies in microseconds."""

    connections: int
    requests: int
    seconds: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    max_us: float
    client_cpu_seconds: float
    broker_cpu_seconds: float


def run(options: argparse.Namespace) -> ManyProducersResult:
    """Request i goes to partition i modulo `partitions` over the connection that has waited longest."""
    connections = [connect(options.host, options.port) for _ in range(options.connections)]
    requests = _requests(options)
    _exchange(connections, requests, max(options.connections, options.warmup), options.active)
    broker_cpu = cpu_seconds(*options.broker_pid)
    cpu, started = process_time(), perf_counter()
    latencies = sorted(_exchange(connections, requests, options.requests, options.active))
    seconds, cpu = perf_counter() - started, process_time() - cpu
    broker_cpu = cpu_seconds(*options.broker_pid) - broker_cpu
    count = len(latencies)
    p50, p99, longest = 1e6 * latencies[count // 2], 1e6 * latencies[count * 99 // 100], 1e6 * latencies[-1]
    return ManyProducersResult(len(connections), count, seconds, count / seconds, p50, p99, longest, cpu, broker_cpu)


def _requests(options: argparse.Namespace) -> list[bytes]:
    """One request for each partition; only its place in the frame of a one-partition request differs."""
    records = bytes(build_batch([SimpleRecord(None, b"x" * options.size, timestamp=TIMESTAMP_MS)]))
    frame = produce_request(options.topic, 1, acks=options.acks, records=records)
    position = len(frame) - len(records) - 8
    requests = []
    for partition in range(options.partitions):
        struct.pack_into(">i", frame, position, partition)
        requests.append(bytes(frame))
    return requests


def _exchange(connections: list[socket.socket], requests: list[bytes], count: int, active: int) -> list[float]:
    """Sends `count` requests, `active` of them in flight together, over the connections in turn; returns the latencies in seconds."""
    places = {connection.fileno(): place for place, connection in enumerate(connections)}
    idle = deque(range(len(connections)))
    sent_at = [0.0] * len(connections)
    latencies: list[float] = []
    sent = 0
    with select.epoll() as poll:
        for descriptor in places:
            poll.register(descriptor, select.EPOLLIN)
        while len(latencies) < count:
            while sent < count and idle and sent - len(latencies) < active:
                place = idle.popleft()
                sent_at[place] = perf_counter()
                connections[place].sendall(requests[sent % len(requests)])
                sent += 1
            events = poll.poll(STALL_TIMEOUT_S)
            if not events:
                raise RuntimeError(f"no answer for {STALL_TIMEOUT_S} s")
            for descriptor, _ in events:
                place = places[descriptor]
                answer = connections[place].recv(RECEIVE_SIZE)
                latencies.append(perf_counter() - sent_at[place])
                check_answer(answer, len(latencies))
                idle.append(place)
    return latencies


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="produce small requests over many connections")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--active", type=int, default=1_000_000, help="requests in flight together; all connections without it")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--warmup", type=int, default=1_000)
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--size", type=int, default=50, help="bytes of a record's value")
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="once for each broker of a cluster")
    print(json.dumps(asdict(run(parser.parse_args(arguments)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
