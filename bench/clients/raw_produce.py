"""A producer that costs next to nothing itself: pre-encoded Produce v7 requests of one 50-byte record over one connection.

Lock-step (one request in flight) shows latency; pipelined (64 in flight) shows the broker's cost a request. Only the correlation id
differs between requests, so the client's share of the CPU is a `send` and a `recv`. Run as a module it drives any Kafka broker:
`python -m bench.clients.raw_produce --port 9092 --topic t --requests 20000 --in-flight 1` prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from time import perf_counter, process_time

from protocol.records import SimpleRecord, build_batch

CLIENT_ID = b"bench"
RECORD_SIZE = 50  # bytes of value
PRODUCE_VERSION = 7


@dataclass(frozen=True, slots=True)
class RawProduceResult:
    """`latencies_us` are p50, p99 and the maximum in microseconds; zeros when pipelined."""

    requests: int
    in_flight: int
    seconds: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    max_us: float
    client_cpu_seconds: float


def produce_request(topic: str, partition: int, *, acks: int, records: bytes, correlation_id: int = 0) -> bytearray:
    """One framed Produce v7 request; its correlation id is at bytes [8, 12)."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(records)) + records
    header = struct.pack(">hhih", 0, PRODUCE_VERSION, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return bytearray(struct.pack(">i", len(header) + len(body)) + header + body)


def run(host: str, port: int, topic: str, *, requests: int, in_flight: int, acks: int, warmup: int) -> RawProduceResult:
    """Send `warmup` and then `requests` produce requests; raises RuntimeError when the broker answers with an error."""
    records = bytes(build_batch([SimpleRecord(None, b"x" * RECORD_SIZE, timestamp=1_750_000_000_000)]))
    request = produce_request(topic, 0, acks=acks, records=records)
    with socket.create_connection((host, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        send = _lock_step if in_flight == 1 else _pipelined
        send(connection, request, warmup, in_flight)
        cpu, started = process_time(), perf_counter()
        latencies = send(connection, request, requests, in_flight)
        seconds, cpu = perf_counter() - started, process_time() - cpu
    latencies.sort()
    count = len(latencies)
    p50, p99, longest = (latencies[count // 2], latencies[count * 99 // 100], latencies[-1]) if count else (0.0, 0.0, 0.0)
    return RawProduceResult(requests, in_flight, seconds, requests / seconds, p50 * 1e6, p99 * 1e6, longest * 1e6, cpu)


def _lock_step(connection: socket.socket, request: bytearray, count: int, in_flight: int) -> list[float]:
    latencies = []
    for correlation_id in range(count):
        struct.pack_into(">i", request, 8, correlation_id)
        started = perf_counter()
        connection.sendall(request)
        answer = connection.recv(4096)
        latencies.append(perf_counter() - started)
        _check(answer, correlation_id)
    return latencies


def _pipelined(connection: socket.socket, request: bytearray, count: int, in_flight: int) -> list[float]:
    """Keep `in_flight` requests unanswered, topping up by half a window at a time."""
    sent = received = 0
    response_size = 0  # bytes, the same for every response
    unparsed_size = 0  # bytes of a response that has arrived in part
    buffered = b""
    while received < count:
        window = min(in_flight - (sent - received), count - sent)
        if window >= in_flight // 2 or (window and sent + window == count):
            for place in range(window):
                struct.pack_into(">i", request, 8, sent + place)
                buffered += request
            connection.sendall(buffered)
            buffered = b""
            sent += window
        data = connection.recv(65536)
        if not data:
            raise RuntimeError("the broker closed the connection")
        if response_size == 0:
            (response_size,) = struct.unpack_from(">i", data)
            response_size += 4
            _check(data, 0)
        arrived, unparsed_size = divmod(unparsed_size + len(data), response_size)
        received += arrived
    return []


def _check(answer: bytes, correlation_id: int) -> None:
    if len(answer) < 20:
        raise RuntimeError(f"short answer: {answer!r}")
    (name_size,) = struct.unpack_from(">h", answer, 12)
    (error,) = struct.unpack_from(">h", answer, 14 + name_size + 4 + 4)
    if error:
        raise RuntimeError(f"the broker answered error {error} to request {correlation_id}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="produce pre-encoded single-record requests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=2_000)
    options = parser.parse_args(arguments)
    result = run(
        options.host, options.port, options.topic, requests=options.requests, in_flight=options.in_flight, acks=options.acks, warmup=options.warmup
    )
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
