"""A producer with almost no cost of its own: pre-encoded Produce v7 requests of 50-byte records over one connection.

Lock-step (one request in flight) shows latency; pipelined (64 in flight) shows the broker's cost a request. Only the correlation id
differs between requests, so the client's share of the CPU is a `send` and a `recv`; with `--idempotence` each request has its own
sequence number and is encoded beforehand too. Run as a module it drives any Kafka broker:
`python -m bench.clients.raw_produce --port 9092 --topic t --requests 20000 --in-flight 1` prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time, sleep

from bench.clients.wire import WireClient, receive_exactly
from bench.usage import cpu_seconds
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.records import SimpleRecord, build_batch

CLIENT_ID = b"bench"
PRODUCE_VERSION = 7
INIT_PRODUCER_ID_VERSION = 1
RECEIVE_SIZE = 65536  # bytes
TIMEOUT_S = 30
RETRY_S = 0.05
TIMESTAMP_MS = 1_750_000_000_000


@dataclass(frozen=True, slots=True)
class RawProduceResult:
    """Latencies in microseconds; zeros when pipelined."""

    requests: int
    in_flight: int
    seconds: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    max_us: float
    client_cpu_seconds: float
    broker_cpu_seconds: float


def produce_request(topic: str, partitions: int, *, acks: int, records: bytes, correlation_id: int = 0) -> bytearray:
    """One framed Produce v7 request with `records` for partitions [0, `partitions`); its correlation id is at bytes [8, 12)."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">ii", partition, len(records)) + records for partition in range(partitions))
    header = struct.pack(">hhih", 0, PRODUCE_VERSION, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return bytearray(struct.pack(">i", len(header) + len(body)) + header + body)


def encode_requests(options: argparse.Namespace) -> list[bytearray]:
    """The requests in the order of sending: one for all, or one for each sequence number of new idempotent producers in turn."""
    record = SimpleRecord(None, b"x" * options.size, timestamp=TIMESTAMP_MS)
    if not options.idempotence:
        return [produce_request(options.topic, options.partitions, acks=options.acks, records=bytes(build_batch([record])))]
    producer_ids = _new_producer_ids(options)
    requests = []
    for place in range(options.warmup + options.requests):
        sequence, producer = divmod(place, options.producers)
        batch = build_batch([record], producer_id=producer_ids[producer], producer_epoch=0, base_sequence=sequence)
        requests.append(produce_request(options.topic, options.partitions, acks=options.acks, records=bytes(batch)))
    return requests


def _new_producer_ids(options: argparse.Namespace) -> list[int]:
    """Ids that the broker has just given out, all with epoch 0."""
    producer_ids: list[int] = []
    deadline = perf_counter() + TIMEOUT_S
    with WireClient(options.host, options.port) as client:
        while len(producer_ids) < options.producers:
            answer = client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), INIT_PRODUCER_ID_VERSION)
            if not answer.error_code and answer.producer_epoch == 0:
                producer_ids.append(answer.producer_id)
            elif perf_counter() > deadline:
                raise RuntimeError(f"no new producer id: {answer}")
            else:
                sleep(RETRY_S)  # Apache Kafka refuses while it fetches a block of ids
    return producer_ids


def run(options: argparse.Namespace) -> RawProduceResult:
    """Send `warmup` and then `requests` produce requests; raises RuntimeError when the broker answers with an error."""
    requests = encode_requests(options)
    measured_requests = requests[options.warmup :] or requests
    with connect(options.host, options.tls_port or options.port, options.ca) as connection:
        send = lock_step if options.in_flight == 1 else pipelined
        send(connection, requests, options.warmup, options.in_flight)
        broker_cpu = cpu_seconds(*options.broker_pid)
        cpu, started = process_time(), perf_counter()
        latencies = send(connection, measured_requests, options.requests, options.in_flight)
        seconds, cpu = perf_counter() - started, process_time() - cpu
        broker_cpu = cpu_seconds(*options.broker_pid) - broker_cpu
    latencies.sort()
    count = len(latencies)
    p50, p99, longest = (latencies[count // 2], latencies[count * 99 // 100], latencies[-1]) if count else (0.0, 0.0, 0.0)
    return RawProduceResult(
        options.requests, options.in_flight, seconds, options.requests / seconds, p50 * 1e6, p99 * 1e6, longest * 1e6, cpu, broker_cpu
    )


def connect(host: str, port: int, ca: str = "") -> socket.socket:
    """A blocking connection whose time limit is the kernel's: one of Python's would add a poll to each recv. With a CA's file it is one of
    TLS."""
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT_S, 0))
    return ssl.create_default_context(cafile=ca).wrap_socket(connection, server_hostname="localhost") if ca else connection


def lock_step(connection: socket.socket, requests: Sequence[bytearray], count: int, in_flight: int = 1) -> list[float]:
    """Sends `count` requests, each after the answer to the one before, and returns their latencies in seconds."""
    latencies = []
    request_count = len(requests)
    expected_size = 0  # bytes of the answer before: all are alike
    for correlation_id in range(count):
        request = requests[correlation_id % request_count]
        struct.pack_into(">i", request, 8, correlation_id)
        started = perf_counter()
        connection.sendall(request)
        answer = connection.recv(RECEIVE_SIZE)
        if len(answer) < expected_size:
            answer += receive_exactly(connection, expected_size - len(answer))
        latencies.append(perf_counter() - started)
        expected_size = len(answer)
        check_answer(answer, correlation_id)
    return latencies


def pipelined(connection: socket.socket, requests: Sequence[bytearray], count: int, in_flight: int) -> list[float]:
    """Keeps `in_flight` requests unanswered, topping up by half a window at a time. Returns no latencies."""
    sent = received = 0
    response_size = 0  # bytes, the same for every response
    unparsed_size = 0  # bytes of a response that has arrived in part
    request_count = len(requests)
    while received < count:
        window = min(in_flight - (sent - received), count - sent)
        if window >= in_flight // 2 or (window and sent + window == count):
            buffered = bytearray()
            for place in range(sent, sent + window):
                request = requests[place % request_count]
                struct.pack_into(">i", request, 8, place)
                buffered += request
            connection.sendall(buffered)
            sent += window
        data = connection.recv(RECEIVE_SIZE)
        if not data:
            raise RuntimeError("the broker closed the connection")
        if response_size == 0:
            if len(data) < 4:
                data += receive_exactly(connection, 4 - len(data))
            response_size = 4 + struct.unpack_from(">i", data)[0]
            if len(data) < response_size:
                data += receive_exactly(connection, response_size - len(data))
            check_answer(data, 0)
        arrived, unparsed_size = divmod(unparsed_size + len(data), response_size)
        received += arrived
    return []


def check_answer(answer: bytes, correlation_id: int) -> None:
    """Raises RuntimeError unless the first partition of a Produce v7 response was appended to."""
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
    parser.add_argument("--tls-port", type=int, default=0)
    parser.add_argument("--ca", default="", help="the file of an authority: the produce requests go to --tls-port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--acks", type=int, default=1)
    parser.add_argument("--size", type=int, default=50, help="bytes of a record's value")
    parser.add_argument("--partitions", type=int, default=1, help="partitions in each request, one record for each")
    parser.add_argument("--warmup", type=int, default=2_000)
    parser.add_argument("--idempotence", action="store_true")
    parser.add_argument("--producers", type=int, default=1, help="idempotent producers that take turns")
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="once for each broker of a cluster")
    print(json.dumps(asdict(run(parser.parse_args(arguments)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
