"""A compacted topic as a key-value store, as schema registries keep theirs (`_schemas`): what counts is the last value of each key.

Writers append with acks=all; a reader reads the topic to its end, and so does each process that starts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from storage.checkpoint import read_offset_checkpoint
from tests.clients.adapters import ConfluentKafka
from tests.clients.topics import create_topic, end_offset, eventually, read_to_end
from tests.support.messages import Message, Stored
from tests.support.process import ServerProcess

TOPIC = "_schemas"
TIMEOUT_S = 60.0
KEYS = 20
WRITERS = 3
ROUNDS = 3
WRITE_INTERVAL_S = 0.002
TOMBSTONE_SHARE = 0.2
ENOUGH = 300
NOOP = b'{"keytype":"NOOP"}'
SERVER = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100", "auto.create.topics.enable": "false"}
CONFIG = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}


class Writers:
    """Several producers at once, for as long as it is entered; each has keys that others write too. `acked` is by offset."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.acked: dict[int, tuple[bytes, bytes | None]] = {}
        self._server = server
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(seed, number)) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int, number: int) -> None:
        entropy, count = random.Random(f"{seed} {number}"), 0
        producer = Producer({"bootstrap.servers": self._server.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        while not self._is_over.wait(WRITE_INTERVAL_S):
            key = b'{"keytype":"SCHEMA","subject":"%d"}' % entropy.randrange(KEYS)
            value = None if entropy.random() < TOMBSTONE_SHARE else b"version %d of writer %d, round %d" % (count, number, seed)
            producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            producer.poll(0)
            count += 1
        assert producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: object, message: Any) -> None:
        assert error is None, error
        self.acked[message.offset()] = (message.key(), message.value())


def last_values(records: Mapping[int, tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """The store: by key, without what was deleted."""
    latest = {key: value for _, (key, value) in sorted(records.items())}
    return {key: value for key, value in latest.items() if value is not None}


def by_offset(records: list[Stored]) -> dict[int, tuple[bytes, bytes | None]]:
    return {record.offset: (record.key or b"", record.value) for record in records}


def test_a_store_outlives_kills_and_compaction(make_server: Callable[[dict[str, str]], ServerProcess]) -> None:
    server = make_server(SERVER)
    create_topic(server, TOPIC, config=CONFIG)
    written: dict[int, tuple[bytes, bytes | None]] = {}

    for round_number in range(ROUNDS):
        with Writers(server, round_number) as writers:
            eventually(lambda writers=writers: len(writers.acked) > ENOUGH)  # type: ignore[misc]
            server.restart(hard=True)
            eventually(lambda writers=writers: len(writers.acked) > 2 * ENOUGH)  # type: ignore[misc]
        written |= writers.acked
        found = by_offset(read_to_end(server, TOPIC))
        assert found.items() <= written.items()
        assert last_values(found) == last_values(written)

    wait_compacted(server, end_offset(server, TOPIC))
    compacted = by_offset(read_to_end(server, TOPIC))
    assert len(compacted) < len(written) / 2
    assert last_values(compacted) == {**last_values(written), NOOP: b"{}"}
    server.restart(hard=True)
    assert last_values(by_offset(read_to_end(server, TOPIC))) == last_values(compacted)


def wait_compacted(server: ServerProcess, end: int) -> None:
    """Returns once everything before `end` is compacted. Later records close the segment, registries write such too."""

    def is_compacted() -> bool:
        ConfluentKafka().produce(server, TOPIC, [Message(0, NOOP, b"{}")])
        return read_offset_checkpoint(server.data_dir / "cleaner-offset-checkpoint").get((TOPIC, 0), 0) >= end

    eventually(is_compacted)
