"""Compaction in a broker's process and its worker's, under load, over kills; and beside Apache Kafka's own cleaner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from storage.checkpoint import read_offset_checkpoint
from tests.support import commits
from tests.support.broker import BrokerProcess
from tests.support.process import ServerProcess

TIMEOUT_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": "100", "replica.high.watermark.checkpoint.interval.ms": "100", "file.delete.delay.ms": "100"}
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "20000"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", SETTINGS)
    process.start()
    yield process
    process.kill()


def until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create_topic(server: ServerProcess, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topic = NewTopic(name, 1, 1, config={**TOPIC, **{key.replace("_", "."): value for key, value in settings.items()}})
    admin.create_topics([topic])[name].result(TIMEOUT_S)


def produce(server: ServerProcess, topic: str, first: int, count: int, keys: int) -> dict[bytes, bytes]:
    """Records of `keys` keys in turn. Returns each key's last value."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1})
    values: dict[bytes, bytes] = {}
    for number in range(first, first + count):
        key, value = b"key-%d" % (number % keys), b"%d " % number * 20
        producer.produce(topic, value, key, partition=0)
        values[key] = value
    assert producer.flush(TIMEOUT_S) == 0
    return values


def read_all(server: ServerProcess, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of every record."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        records.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return records


def clean_end(server: ServerProcess, topic: str) -> int:
    return read_offset_checkpoint(server.data_dir / "cleaner-offset-checkpoint").get((topic, 0), 0)


def last_values(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes | None]:
    return {key: value for _, key, value in records}


def test_a_compacted_topic_stays_small_and_keeps_every_key_over_a_kill(broker: BrokerProcess) -> None:
    create_topic(broker, "compacted")
    values = produce(broker, "compacted", 0, 5000, keys=50)
    until(lambda: clean_end(broker, "compacted") > 4000)

    cleaned = clean_end(broker, "compacted")
    before = read_all(broker, "compacted")
    broker.kill()
    broker.start()
    after = read_all(broker, "compacted")

    assert last_values(before) == last_values(after) == values
    assert len(before) <= 50 + 5000 - cleaned  # one of each key, and all that the cleaner has not seen
    assert after[-1] == before[-1]
    assert produce(broker, "compacted", 5000, 10, keys=50).items() <= last_values(read_all(broker, "compacted")).items()
    assert list((broker.data_dir / "compacted-0").glob("*.cleaned")) == []


def test_committed_offsets_stay_few_and_are_found_after_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", {**SETTINGS, "offsets.topic.num.partitions": "1"})
    broker.start()
    try:
        create_topic(broker, "read")
        assert committed_offset(broker) < 0
        set_config(broker, "__consumer_offsets", "internal.segment.bytes", "20000")
        commit(broker, range(1, 1001))
        until(lambda: clean_end(broker, "__consumer_offsets") > 700)
        directory = broker.data_dir / "__consumer_offsets-0"
        until(lambda: sum(path.stat().st_size for path in directory.glob("*.log")) < 60_000)

        broker.kill()
        broker.start()

        assert committed_offset(broker) == 1000
    finally:
        broker.kill()


def set_config(server: ServerProcess, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def commit(server: ServerProcess, offsets: range) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False})
    for offset in offsets:
        commits.commit(consumer, [TopicPartition("read", 0, offset)], TIMEOUT_S)
    consumer.close()


def committed_offset(server: ServerProcess) -> int:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
    (found,) = commits.committed(consumer, [TopicPartition("read", 0)], TIMEOUT_S)
    consumer.close()
    return int(found.offset)


def test_a_topic_that_is_compacted_and_deleted_loses_what_retention_says(broker: BrokerProcess) -> None:
    create_topic(broker, "both", cleanup_policy="compact,delete", retention_bytes="60000")
    values = produce(broker, "both", 0, 5000, keys=5000)
    until(lambda: clean_end(broker, "both") > 4000)

    assert last_values(read_all(broker, "both")).items() <= values.items()
