"""Attacks on memory: frames that never end, bombs, answers that nobody takes, and work that others wait behind."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

from protocol import codec
from protocol.compression import Compression, compress
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import NO_TIMESTAMP, BatchHeader, assemble_batch
from protocol.uvarint import uvarint
from tests.attack.attacker import Attacker, drop_answer, framed
from tests.attack.target import HONEST_TOPIC, REWRITTEN_TOPIC
from tests.support.wire import WireClient

MEGABYTE = 1_000_000
FRAME_BYTES = 100 * MEGABYTE
SENT_BYTES = 98 * MEGABYTE
CHUNK_BYTES = 1 << 20

BOMB_BYTES = 40 * MEGABYTE  # more than the 32 MiB that a batch may grow to
EMPTY_RECORDS = 1_000_000
ZSTD_LEVEL = 3

SMALL_FRAME_LIMIT = 16 * MEGABYTE
SMALL_MEMORY_LIMIT = 64 * MEGABYTE
SMALL_MEMORY = {"socket.request.max.bytes": str(SMALL_FRAME_LIMIT), "queued.max.request.bytes": str(SMALL_MEMORY_LIMIT)}


def send_half_frames(attacker: Attacker) -> None:
    """Large frames whose connections close before their end."""
    chunk = bytes(CHUNK_BYTES)
    for _ in range(attacker.count(25, at_least=4)):
        with suppress(OSError), attacker.connect() as connection:  # a stranger's is refused by its size
            connection.sendall(struct.pack(">ihhih", FRAME_BYTES, 0, 7, 1, -1))
            for _ in range(SENT_BYTES // CHUNK_BYTES):
                connection.sendall(chunk)
        attacker.tally.silent += 1


def send_unfinished_frames(attacker: Attacker) -> None:
    """Frames that stop in their midst, on connections that stay: more than the limit of request memory, with an honest producer of
    megabytes beside them."""
    attacker.broker.start_canary("large", HONEST_TOPIC)
    held: list[socket.socket] = []
    part = bytes(SMALL_FRAME_LIMIT * 3 // 4)
    for _ in range(attacker.count(40, at_least=10)):
        connection = attacker.connect(timeout_s=0.2)
        held.append(connection)
        try:
            connection.sendall(struct.pack(">ihhih", SMALL_FRAME_LIMIT, 0, 7, 1, -1) + part)
        except OSError:
            pass  # the broker reads no more of it, or has refused a stranger's by its size: as it should
        attacker.tally.silent += 1
    time.sleep(max(15 * attacker.scale, 2))
    for connection in held:
        connection.close()
    attacker.broker.stop_canary("large")


def send_bombs(attacker: Attacker) -> None:
    """Batches of every codec that would decompress to more than is allowed. Their connections stay until the end."""
    bombs = [(codec_id, _bomb(codec_id)) for codec_id in Compression if codec_id is not Compression.NONE]
    clients: list[WireClient] = []
    for codec_id, batch in itertools.islice(itertools.cycle(bombs), attacker.count(60, at_least=12)):
        clients.append(attacker.client())
        with attacker.step(f"a bomb of {codec_id.name.lower()}"):
            answer = clients[-1].request(_produce(REWRITTEN_TOPIC, batch), 9)
        attacker.tally.answered += 1
        if answer.responses[0].partition_responses[0].error_code == 0:
            attacker.failures.append(f"a bomb of {codec_id.name.lower()} was appended")
    for client in clients:
        client.close()


def send_empty_records(attacker: Attacker) -> None:
    """Batches of a million empty records to a topic whose batches are compressed anew, from connections of their own, with an honest
    producer of lz4 beside them."""
    batch = _empty_records()
    attacker.broker.start_canary("lz4", REWRITTEN_TOPIC)
    clients = [attacker.client() for _ in range(attacker.count(20, at_least=3))]
    for client in clients:
        client.send(_produce(REWRITTEN_TOPIC, batch), 9)
    for client in clients:
        client.receive_frame()
        attacker.tally.answered += 1
        client.close()
    attacker.broker.stop_canary("lz4")


def send_large_produces(attacker: Attacker) -> None:
    """Frames of 90 MB whose one batch is refused for its size, sent whole."""
    batch = assemble_batch(_header(1), bytes(90 * MEGABYTE))
    data = framed(0, 9, codec.encode(_produce(HONEST_TOPIC, batch), 9))
    for _ in range(attacker.count(10, at_least=2)):
        with attacker.connect() as connection, attacker.step("Produce of 90 MB"):
            connection.sendall(data)
            attacker.note(drop_answer(connection))


def read_no_answers(attacker: Attacker) -> None:
    """Requests without end on connections that read nothing."""
    request = framed(3, 9, codec.encode(MetadataRequest(topics=None), 9))
    held = [attacker.connect(timeout_s=0.05) for _ in range(attacker.count(100, at_least=10))]
    for connection in held:
        try:
            for _ in range(200):
                connection.sendall(request * 100)
                attacker.tally.silent += 100
        except OSError:
            continue  # the broker reads no more: as it should
    time.sleep(max(5 * attacker.scale, 1))
    for connection in held:
        connection.close()


def _produce(topic: str, batch: bytes | bytearray) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])


def _header(records_count: int, codec_id: Compression = Compression.NONE) -> BatchHeader:
    now_ms = time.time_ns() // 1_000_000
    return BatchHeader(0, 0, -1, 2, 0, int(codec_id), records_count - 1, now_ms, now_ms, NO_TIMESTAMP, -1, -1, records_count)


def _bomb(codec_id: Compression) -> bytearray:
    """A batch whose one record would be huge."""
    return assemble_batch(_header(1, codec_id), compress(codec_id, bytes(BOMB_BYTES)))


def _empty_records() -> bytearray:
    return assemble_batch(_header(EMPTY_RECORDS, Compression.ZSTD), compress(Compression.ZSTD, b"".join(_records()), ZSTD_LEVEL))


def _records() -> Iterator[bytes]:
    """Records without key, value and headers: length, attributes, timestamp delta, offset delta, -1, -1, no headers."""
    for offset_delta in range(EMPTY_RECORDS):
        delta = uvarint(2 * offset_delta)
        yield uvarint(2 * (5 + len(delta))) + b"\x00\x00" + delta + b"\x01\x01\x00"
