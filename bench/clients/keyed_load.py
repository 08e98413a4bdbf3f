"""Keyed records of 1 KB for a compacted topic: two producers, and a reader that finds the last record of each key.

A record's value begins with its number, and both producers keep the last number of each key in a file. `fill` writes as fast as possible.
`pace` writes on a schedule and reads the topic's end, until its stdin is closed. `read` reads the whole partition and writes the last
numbers to a file in the same format. `python -m bench.clients.keyed_load fill --port 9092 --topic t --records 1000000 --keys 1000 --file F`
prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import struct
import sys
from array import array
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.clients.open_loop import FETCH_VERSION, Frames
from bench.clients.raw_produce import CLIENT_ID, TIMESTAMP_MS, connect, produce_request
from protocol.record_spans import iterate_spans
from protocol.records import build_batch_of, crc_is_valid, iterate_headers, read_payload
from protocol.varint import append_varint

VALUE_SIZE = 1_000
NUMBER_SIZE = 10  # digits of keys and of record numbers
RECORDS_PER_BATCH = 16  # batch.size of Java's producer is 16 KB
IN_FLIGHT = 64
BURST_MAX = 64  # overdue requests before the client reads responses: a broker stops reading from a client that reads none
FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 200
NEVER = -1  # the number of a key without a record
FILLER = b"the quick brown fox jumps over the lazy dog; " * 30
_NO_ERROR = 0


class KeyedRecords:
    """Makes batches of records with drawn keys, numbered from `first` on. `last` is the last number of each key."""

    def __init__(self, keys: int, first: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self.number = first
        self.last = array("q", [NEVER]) * keys
        self._heads = [_record_head(delta) for delta in range(RECORDS_PER_BATCH)]

    def batch(self, count: int) -> bytes:
        """The next `count` records, RECORDS_PER_BATCH at most."""
        payload, last, number = bytearray(), self.last, self.number
        keys = len(last)
        filler = FILLER[number % 40 :][: VALUE_SIZE - NUMBER_SIZE]
        for head in self._heads[:count]:
            key = int(self._draw.random() * keys)
            payload += b"%b%010d\xd0\x0f%010d%b\x00" % (head, key, number, filler)
            last[key] = number
            number += 1
        self.number = number
        return bytes(build_batch_of(payload, count, timestamp=TIMESTAMP_MS, base_offset=0, partition_leader_epoch=-1))


def _record_head(offset_delta: int) -> bytes:
    """A record's bytes before its key; the value's size, 1,000, is two bytes as a varint."""
    body = bytearray(b"\x00\x00")  # attributes and timestamp delta
    append_varint(body, offset_delta)
    append_varint(body, NUMBER_SIZE)
    head = bytearray()
    append_varint(head, len(body) + NUMBER_SIZE + 2 + VALUE_SIZE + 1)
    return bytes(head + body)


class PartitionReader:
    """Reads partition 0 from `position` on: one fetch at a time. Raises RuntimeError for an error, a bad checksum or a strange record."""

    def __init__(self, connection: socket.socket, topic: str, keys: int, position: int = 0) -> None:
        self.connection = connection
        self._frames = Frames(connection)
        self._topic = topic.encode()
        self.position = position
        self.end_offset = position
        self.records = self.megabytes = 0.0
        self.last = array("q", [NEVER]) * keys

    def ask(self) -> None:
        body = struct.pack(">iiiib", -1, FETCH_WAIT_MS, 1, 50 * FETCH_BYTES, 0)
        body += struct.pack(">ih", 1, len(self._topic)) + self._topic + struct.pack(">iiqi", 1, 0, self.position, FETCH_BYTES)
        header = struct.pack(">hhih", 1, FETCH_VERSION, 1, len(CLIENT_ID)) + CLIENT_ID
        self.connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def receive(self) -> bool:
        """Take what arrived; whether an answer is complete."""
        frames = self._frames.receive()
        for frame in frames:
            self._take(frame)
        return bool(frames)

    def _take(self, frame: bytes) -> None:
        at = 4 + 4 + 4  # correlation id, throttle time, one topic
        at += 2 + struct.unpack_from(">h", frame, at)[0] + 4
        _, error, high_watermark, _, aborted_count = struct.unpack_from(">ihqqi", frame, at)
        if error != _NO_ERROR:
            raise RuntimeError(f"fetch: error {error}")
        at += 4 + 2 + 8 + 8 + 4 + 16 * max(aborted_count, 0) + 4
        self.end_offset = high_watermark
        for position, header in iterate_headers(frame, at):
            self._take_batch(frame, position, header)

    def _take_batch(self, frame: bytes, position: int, header: Any) -> None:
        if not crc_is_valid(frame, position, header.size_bytes) or header.next_offset <= self.position:
            raise RuntimeError(f"the batch at offset {header.base_offset}, expected from {self.position} on, is damaged or out of order")
        payload, last = bytes(read_payload(frame, position, header)), self.last
        for _, _, end, _, _, key, _ in iterate_spans(payload, header.records_count):
            number = int(payload[end - 1 - VALUE_SIZE : end - 1 - VALUE_SIZE + NUMBER_SIZE])
            place = int(key or b"-1")
            if number <= last[place]:
                raise RuntimeError(f"key {place}: record {number} comes after {last[place]}")
            last[place] = number
        self.records += header.records_count
        self.megabytes += header.size_bytes / 1e6
        self.position = header.next_offset


def fill(options: argparse.Namespace) -> dict[str, float]:
    """As fast as it goes, IN_FLIGHT requests unanswered."""
    records = KeyedRecords(options.keys, 0, seed=1)
    connection = connect(options.host, options.port)
    answers = Frames(connection)
    sent = answered = 0
    started = perf_counter()
    while answered < sent or records.number < options.records:
        while records.number < options.records and sent - answered < IN_FLIGHT:
            count = min(RECORDS_PER_BATCH, options.records - records.number)
            connection.sendall(produce_request(options.topic, 1, acks=1, records=records.batch(count)))
            sent += 1
        for frame in answers.receive():
            check_produced(frame)
            answered += 1
    seconds = perf_counter() - started
    save(records.last, options.file)
    return {"records": records.number, "seconds": seconds, "megabytes_per_s": records.number * VALUE_SIZE / 1e6 / seconds}


def pace(options: argparse.Namespace) -> dict[str, float]:
    """One record in a request, at `--rate` a second, and a consumer at the topic's end, until stdin is closed or `--seconds` are over.

    Latencies count from the schedule. What the consumer gets must be what was sent."""
    records = KeyedRecords(options.keys, options.first, seed=options.first)
    producer, interval_s = connect(options.host, options.port), 1.0 / options.rate
    answers = Frames(producer)
    reader = PartitionReader(connect(options.host, options.port), options.topic, options.keys, options.first)
    reader.ask()
    latencies: list[float] = []
    sent = 0
    started = perf_counter()
    is_ending = False
    while not is_ending or len(latencies) < sent or reader.position < options.first + sent:
        now = perf_counter()
        for _ in range(BURST_MAX):
            if is_ending or started + sent * interval_s > now:
                break
            producer.sendall(produce_request(options.topic, 1, acks=1, records=records.batch(1)))
            sent += 1
        wait_s = max(started + sent * interval_s - now, 0.0) if not is_ending else 0.1
        watched = [producer, reader.connection, *([] if is_ending or options.seconds else [sys.stdin])]
        readable, _, _ = select.select(watched, [], [], wait_s)
        if producer in readable:
            for frame in answers.receive():
                check_produced(frame)
                latencies.append(perf_counter() - (started + len(latencies) * interval_s))
        if reader.connection in readable and reader.receive():
            reader.ask()
        is_ending = is_ending or sys.stdin in readable or bool(options.seconds and perf_counter() - started > options.seconds)
    if reader.last != records.last:
        raise RuntimeError("the consumer did not read what was sent")
    save(records.last, options.file)
    latencies.sort()
    percentiles = {
        f"p{name}_us": 1e6 * latencies[int(len(latencies) * share)] for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }
    return {"records": sent, "next": records.number, "seconds": perf_counter() - started, "max_us": 1e6 * latencies[-1], **percentiles}


def read(options: argparse.Namespace) -> dict[str, float]:
    """The whole partition, each record looked at."""
    reader = PartitionReader(connect(options.host, options.port), options.topic, options.keys)
    started = perf_counter()
    while True:
        before = reader.position
        reader.ask()
        while not reader.receive():
            pass
        if reader.position >= reader.end_offset or reader.position == before:
            break
    save(reader.last, options.file)
    return {"records": reader.records, "megabytes": reader.megabytes, "end": reader.position, "seconds": perf_counter() - started}


def check_produced(frame: bytes) -> None:
    (name_size,) = struct.unpack_from(">h", frame, 8)
    (error,) = struct.unpack_from(">h", frame, 10 + name_size + 4 + 4)
    if error != _NO_ERROR:
        raise RuntimeError(f"produce: error {error}")


def save(last: array[int], path: Path) -> None:
    path.write_bytes(last.tobytes())


def load(path: Path) -> array[int]:
    """The last number of each key."""
    last = array("q")
    last.frombytes(path.read_bytes())
    return last


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="fill, pace or read a compacted topic of one partition")
    parser.add_argument("mode", choices=("fill", "pace", "read"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True, help="for the last number of each key")
    parser.add_argument("--records", type=int, default=0, help="of fill")
    parser.add_argument("--first", type=int, default=0, help="of pace: the number of its first record, which is the log's end")
    parser.add_argument("--rate", type=int, default=500, help="of pace: records per second")
    parser.add_argument("--seconds", type=float, default=0.0, help="of pace: how long; else until stdin is closed")
    parser.add_argument("--broker-pid", type=int, action="append", default=[])
    options = parser.parse_args(arguments)
    print(json.dumps({"fill": fill, "pace": pace, "read": read}[options.mode](options)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
