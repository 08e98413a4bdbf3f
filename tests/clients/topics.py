"""Topics for the client tests, made and inspected through librdkafka's admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.clients.adapters import from_confluent
from tests.support.messages import Message, Stored
from tests.support.process import ServerProcess

TIMEOUT_S = 60.0
EVENTUALLY_INTERVAL_S = 0.05


def create_topic(server: ServerProcess, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Creates a topic and returns once its leaders serve: a retried first batch of a plain producer may be overtaken."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    futures = admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))])
    futures[name].result(TIMEOUT_S)
    eventually(lambda: _leaders_serve(admin, name, partitions))


def _leaders_serve(admin: AdminClient, name: str, partitions: int) -> bool:
    answers = admin.list_offsets({TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)})
    return all(answer.exception(TIMEOUT_S) is None for answer in answers.values())


def eventually(holds: Callable[[], bool]) -> None:
    """Returns once a fact holds. Kafka's brokers learn of the controller's changes a moment after it answers."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"did not come true in {TIMEOUT_S} s"
        time.sleep(EVENTUALLY_INTERVAL_S)


def end_offset(server: ServerProcess, topic: str) -> int:
    """Of partition 0."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "nobody"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    consumer.close()
    return int(end)


def read_to_end(server: ServerProcess, topic: str) -> list[Stored]:
    """The records of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "nobody", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        records.append(from_confluent(message))
    consumer.close()
    assert message is not None, f"the end of {topic} was not reached in {TIMEOUT_S} s"
    return records


def in_order(records: Iterable[Stored]) -> dict[int, list[Message]]:
    """What was read, per partition in the order of reading; AssertionError when offsets do not rise."""
    partitions: dict[int, list[Message]] = {}
    last_offset: dict[int, int] = {}
    for record in records:
        assert record.offset > last_offset.get(record.partition, -1), f"offset {record.offset} came after {last_offset}"
        last_offset[record.partition] = record.offset
        partitions.setdefault(record.partition, []).append(record.message)
    return partitions


def as_sent(messages: Iterable[Message]) -> dict[int, list[Message]]:
    """What was sent, per partition in the order of sending."""
    partitions: dict[int, list[Message]] = {}
    for message in messages:
        partitions.setdefault(message.partition, []).append(message)
    return partitions
