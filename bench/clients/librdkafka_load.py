"""librdkafka as a load: produces or consumes a number of records as fast as it goes and prints one JSON line.

`python -m bench.clients.librdkafka_load produce --port 9092 --topic t --records 1000000 --size 1000`
It runs in a process of its own, so that its CPU time is the client's. With `--broker-pid` it also reads the broker's CPU within exactly the
measured span.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time

from bench.clients.librdkafka import OFFSET_BEGINNING, OFFSET_END, BatchConsumer, BatchProducer, Message, RdKafkaError
from bench.usage import cpu_seconds

ARRAY_COUNT = 2_000  # records per call
OUTSTANDING_BYTES_MAX = 256 * 1024 * 1024
OUTSTANDING_COUNT_MAX = 400_000
PAYLOAD_COUNT = 1_000  # different payloads: 1 MB of text when records have 1 KB
WORD_COUNT = 12_000
PATTERN = b"the quick brown fox jumps over the lazy dog; "
STALL_TIMEOUT_S = 30.0
POLL_MS = 100


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one run did; `seconds` from the first record handed over to the last acknowledged, or from the first received to the last."""

    records: int
    megabytes: float
    seconds: float
    records_per_second: float
    megabytes_per_second: float
    client_cpu_seconds: float
    broker_cpu_seconds: float


class Stopwatch:
    """Wall clock, this process's CPU and that of the brokers from construction to `result`."""

    def __init__(self, broker_pids: Sequence[int]) -> None:
        self._broker_pids = broker_pids
        self._broker_cpu = cpu_seconds(*broker_pids)
        self._cpu, self._started = process_time(), perf_counter()

    def result(self, records: int, size: int) -> LoadResult:
        seconds, cpu = perf_counter() - self._started, process_time() - self._cpu
        broker_cpu = cpu_seconds(*self._broker_pids) - self._broker_cpu
        megabytes = records * size / 1e6
        return LoadResult(records, megabytes, seconds, records / seconds, megabytes / seconds, cpu, broker_cpu)


def pattern_payload(size: int) -> bytes:
    """One payload that compresses to almost nothing, so that a compressing load is bound by the broker."""
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


def text_payloads(size: int, count: int = PAYLOAD_COUNT) -> list[bytes]:
    """Texts of `size` bytes from an invented vocabulary, the same in every run: lz4 makes about half of a batch of them."""
    source = random.Random(1)
    words = ["".join(source.choices("etaoinshrdlucmfwypvbgkjqxz", k=source.randint(3, 11))) for _ in range(WORD_COUNT)]
    popularity = [1 / (rank + 3) for rank in range(WORD_COUNT)]
    texts = []
    for _ in range(count):
        text = " ".join(source.choices(words, popularity, k=size // 5 + 2))
        texts.append(text.encode()[:size])
    return texts


def produce(options: argparse.Namespace) -> LoadResult:
    """Hands over arrays of records as long as the library's queue has room, and counts delivery reports."""
    settings = {
        **_server(options),
        "acks": options.acks,
        "linger.ms": str(options.linger_ms),
        "compression.type": options.compression,
        "enable.idempotence": "true" if options.idempotence else "false",
        "queue.buffering.max.messages": "1000000",
        "queue.buffering.max.kbytes": "1048576",
    }
    payloads = text_payloads(options.size) if options.payload == "text" else [pattern_payload(options.size)]
    messages = (Message * ARRAY_COUNT)()
    for place, message in enumerate(messages):
        message.payload = _address(payloads[place % len(payloads)])
        message.size = options.size
    outstanding_max = min(OUTSTANDING_COUNT_MAX, OUTSTANDING_BYTES_MAX // options.size)
    producer = BatchProducer(settings, options.topic)
    producer.send(messages, 1)
    _drain(producer, 0)  # the connection and the metadata are not part of the span
    watch = Stopwatch(options.broker_pid)
    end_count = options.records + 1
    while producer.sent_count < end_count:
        producer.send(messages, min(ARRAY_COUNT, end_count - producer.sent_count))
        while producer.poll(0):
            pass
        if producer.sent_count - producer.delivered_count > outstanding_max:
            _drain(producer, outstanding_max - ARRAY_COUNT)
    _drain(producer, 0)
    result = watch.result(producer.delivered_count - 1, options.size)
    producer.close()
    return result


def _server(options: argparse.Namespace) -> dict[str, str]:
    if not options.ca:
        return {"bootstrap.servers": f"{options.host}:{options.port}"}
    return {"bootstrap.servers": f"{options.host}:{options.tls_port}", "security.protocol": "ssl", "ssl.ca.location": options.ca}


def _drain(producer: BatchProducer, remaining: int) -> None:
    """Polls until at most `remaining` records are unacknowledged."""
    deadline = perf_counter() + STALL_TIMEOUT_S
    while producer.sent_count - producer.delivered_count > remaining:
        if producer.poll(POLL_MS):
            deadline = perf_counter() + STALL_TIMEOUT_S
        elif perf_counter() > deadline:
            raise RdKafkaError(f"no record was acknowledged for {STALL_TIMEOUT_S} s")


def _address(payload: bytes) -> int:
    """Where the bytes are: the caller keeps the object alive."""
    address = ctypes.cast(ctypes.c_char_p(payload), ctypes.c_void_p).value
    assert address is not None
    return address


def consume(options: argparse.Namespace) -> LoadResult:
    """Reads `--records` records from the beginning (or the end) of all partitions; the clock starts at the first that arrive."""
    settings = {
        **_server(options),
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "group.id": "bench",
        "queued.min.messages": "1000000",
    }
    consumer = BatchConsumer(settings, options.topic)
    for partition in range(options.partitions):
        consumer.start(partition, OFFSET_END if options.tail else OFFSET_BEGINNING)
    deadline = perf_counter() + STALL_TIMEOUT_S
    first_count = received_count = consumer.take(POLL_MS)
    watch = Stopwatch(options.broker_pid)
    while received_count < options.records:
        arrived = consumer.take(POLL_MS)
        if first_count == 0:
            first_count, watch = arrived, Stopwatch(options.broker_pid)
        received_count += arrived
        if arrived:
            deadline = perf_counter() + STALL_TIMEOUT_S
        elif perf_counter() > deadline:
            raise RdKafkaError(f"{received_count} of {options.records} records, then none for {STALL_TIMEOUT_S} s")
    result = watch.result(received_count - first_count, options.size)
    consumer.close()
    return result


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="produce or consume with librdkafka")
    parser.add_argument("mode", choices=("produce", "consume"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, default=0)
    parser.add_argument("--ca", default="", help="the file of an authority: the load goes to --tls-port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a record's value")
    parser.add_argument("--partitions", type=int, default=1, help="to consume; a producer takes them all")
    parser.add_argument("--acks", default="all")
    parser.add_argument("--linger-ms", type=int, default=5)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--payload", choices=("text", "pattern"), default="text")
    parser.add_argument("--idempotence", action="store_true")
    parser.add_argument("--tail", action="store_true", help="consume what comes, not what is there")
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="once for each broker of a cluster")
    options = parser.parse_args(arguments)
    result = produce(options) if options.mode == "produce" else consume(options)
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
