"""What the programs are sent and what they sent: text records, in partitions by their keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.messages import RECENT_MS

TIMEOUT_S = 60.0
WAIT_MAX_S = 120.0
POLL_S = 0.05
PARTITIONS = 2
PAUSE_S = 0.001
HOUR_MS = 3_600_000
# Some hours ago, for brokers take no record that is more than an hour ahead of their clocks.
BEGIN_MS = (RECENT_MS - 6 * HOUR_MS) // 10_000 * 10_000
KEYS = [f"key{number}" for number in range(6)]
LAST_KEYS = [f"last{number}" for number in range(16)]
"""Keys of records that close all windows: enough of them for each partition to get one."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record with text in it. `timestamp_ms` 0 leaves the time to the client."""

    key: str
    value: str | None
    timestamp_ms: int = 0


def send(bootstrap: str, topic: str, records: Iterable[Record], *, pause_s: float = 0.0) -> None:
    """Send the records, to the partitions that Java would send them to, with a pause after each; done when all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "partitioner": "murmur2"})
    errors: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            errors.append(str(error))

    for each in records:
        producer.produce(topic, each.value, each.key, timestamp=each.timestamp_ms, on_delivery=delivered)
        producer.poll(pause_s)
    assert producer.flush(WAIT_MAX_S) == 0, "not all records were delivered in time"
    assert not errors, errors


def last_values(records: Iterable[Record]) -> dict[str, str]:
    """The table that these updates make."""
    last = {each.key: each.value for each in records}
    return {key: value for key, value in last.items() if value is not None}


@contextmanager
def sending(bootstrap: str, topic: str, records: Iterable[Record]) -> Iterator[None]:
    """The records are sent meanwhile, some hundreds a second, and all are acknowledged at the end."""
    sender = ThreadPoolExecutor(1)
    sent = sender.submit(send, bootstrap, topic, records, pause_s=PAUSE_S)
    try:
        yield
    finally:
        sender.shutdown()
    sent.result()


def read(bootstrap: str, topic: str) -> list[Record]:
    """All that is in the topic now."""
    with Topic(bootstrap, topic) as reader:
        return reader.read()


class Topic:
    """Reads a topic from its beginning, each partition in its order. `with` closes it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.records: list[Record] = []
        """What was read so far."""
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
        self._partitions = [TopicPartition(name, number, OFFSET_BEGINNING) for number in self._numbers(name)]
        self._consumer.assign(self._partitions)

    def _numbers(self, name: str) -> list[int]:
        found = self._consumer.list_topics(name, TIMEOUT_S).topics[name]
        assert found.error is None, found.error
        return sorted(found.partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._consumer.close()

    def wait(self, holds: Callable[[list[Record]], bool], what: str) -> None:
        """Read until `holds` is true of all that was read."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not holds(self.records):
            assert time.monotonic() < deadline_s, (
                f"waited {WAIT_MAX_S} s for {what}; {len(self.records)} records, at last {self.records[-5:]}"
            )
            self._read_some()

    def wait_count(self, count: int) -> None:
        self.wait(lambda records: len(records) >= count, f"{count} records")

    def read(self) -> list[Record]:
        """All that is in the topic by now; no more than was waited for, if nothing has been written since."""
        ends = [end for _, end in self.bounds()]
        deadline_s = time.monotonic() + WAIT_MAX_S
        while any(at.offset < end for at, end in zip(self._consumer.position(self._partitions), ends, strict=True) if end):
            assert time.monotonic() < deadline_s, f"the end of {self._partitions} does not come"
            self._read_some()
        return self.records

    def _read_some(self) -> None:
        for record in self._consumer.consume(1_000, timeout=POLL_S):
            if record.error() is None:
                key, value = record.key(), record.value()
                self.records.append(Record((key or b"").decode(), None if value is None else value.decode(), record.timestamp()[1]))

    def bounds(self) -> list[tuple[int, int]]:
        """The start offset and the end offset of each partition."""
        return [self._bounds_of(each) for each in self._partitions]

    def _bounds_of(self, partition: TopicPartition) -> tuple[int, int]:
        """librdkafka fails at once if the metadata that it has kept names no leader, as it may for a while after a failover."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while True:
            try:
                found: tuple[int, int] = self._consumer.get_watermark_offsets(partition, TIMEOUT_S)
                return found
            except KafkaException as e:
                if e.args[0].code() != KafkaError._UNKNOWN_PARTITION or time.monotonic() > deadline_s:
                    raise
            self._read_some()
