"""Our storage opens the log directory of a real Apache Kafka, stopped cleanly and killed, with every record; and Kafka opens ours.

Kafka's segments, indexes (preallocated while active), snapshots, checkpoints and markers are read as they are.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from config.topic import LogConfig
from protocol.records import iterate_headers, iterate_records
from storage.log import Log
from storage.log_manager import LogManager
from tests.storage.conftest import NOW_MS, append
from tests.support.kafka import SHORT_SESSION, KafkaServer, kafka_jars

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
RECORDS = 600
SEGMENT_BYTES = 1024 * 1024
SETTINGS = {**SHORT_SESSION, "log.segment.bytes": str(SEGMENT_BYTES), "log.index.interval.bytes": "1024"}
CONFIG = replace(LogConfig(), segment_bytes=SEGMENT_BYTES, index_interval_bytes=1024)


def value_of(number: int) -> bytes:
    return b"%d:" % number + random.Random(number).randbytes(3000)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka with one topic per codec, each written to over several segments."""
    kafka_jars()
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), SETTINGS)
    server.start()
    for codec in CODECS:
        produce(server, topic_of(codec), codec, range(RECORDS))
    yield server
    server.kill()


def topic_of(codec: str | None) -> str:
    return f"codec-{codec or 'none'}"


def produce(server: KafkaServer, topic: str, codec: str | None, numbers: range) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, compression_type=codec, linger_ms=5, enable_idempotence=True)
    for number in numbers:
        producer.send(topic, key=b"%d" % number, value=value_of(number), headers=[("n", b"%d" % number)], partition=0)
    producer.flush()
    producer.close()


def open_copy(server: KafkaServer, target: Path) -> LogManager:
    """Our log manager over a copy of the server's data."""
    shutil.copytree(server.data_dir, target)
    (target / ".lock").unlink(missing_ok=True)
    manager = LogManager([target], random_source=random.Random(1))
    manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


def read_numbers(log: Log) -> list[int]:
    """The number in every record, after checking key, value, header and offset."""
    numbers = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset, minimum_one_batch=True)
        assert not isinstance(records, bytes)
        data = records.read()
        records.release()
        for position, header in iterate_headers(data):
            for record in iterate_records(data, position):
                assert record.value is not None
                number = int(record.value.split(b":")[0])
                assert record.value == value_of(number)
                assert (record.offset, record.key, record.headers) == (len(numbers), b"%d" % number, (("n", b"%d" % number),))
                numbers.append(number)
            offset = header.next_offset
    return numbers


def assert_complete(manager: LogManager) -> None:
    for codec in CODECS:
        log = manager.find_log(topic_of(codec), 0)
        assert log is not None
        assert read_numbers(log) == list(range(RECORDS))
        assert log.topic_id != bytes(16)
        assert log.leader_epochs.latest_epoch is not None
        assert len(log.producers.producers) == 1
        assert append(log, leader_epoch=99).base_offset == RECORDS


def test_directory_of_a_killed_kafka_is_recovered_with_every_record(kafka: KafkaServer, tmp_path: Path) -> None:
    kafka.kill()

    manager = open_copy(kafka, tmp_path / "data")

    assert not manager.directories[0].was_clean_stop
    assert manager.directories[0].meta is not None
    assert_complete(manager)


def test_directory_of_a_cleanly_stopped_kafka_is_opened_with_every_record(kafka: KafkaServer, tmp_path: Path) -> None:
    if not kafka.is_running:
        kafka.start()
    kafka.stop()

    manager = open_copy(kafka, tmp_path / "data")

    assert manager.directories[0].was_clean_stop
    found = manager.find_log(topic_of(None), 0)
    assert found is not None
    assert len(found.segments) > 1
    assert found.high_watermark == RECORDS
    assert_complete(manager)


def test_kafka_serves_what_we_appended_to_its_directory(tmp_path: Path) -> None:
    """The way back: our appends, rolls and clean stop in Kafka's own directory, then Kafka consumes every record."""
    kafka_jars()
    server = KafkaServer(tmp_path / "kafka", SETTINGS)
    server.start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
        admin.create_topics([NewTopic("back", num_partitions=1, replication_factor=1)])
        admin.close()
        produce(server, "back", None, range(50))
        server.stop()
        manager = LogManager([server.data_dir], random_source=random.Random(1))
        manager.open(config_of=lambda topic: replace(CONFIG, segment_bytes=5000), now_ms=NOW_MS)
        log = manager.find_log("back", 0)
        assert log is not None
        epoch = log.leader_epochs.latest_epoch or 0
        for _ in range(100):
            append(log, 2, leader_epoch=epoch)
        log.set_high_watermark(log.log_end_offset)
        manager.close_clean()
        server.start()

        consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=60_000, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("back", 0)])
        offsets = [record.offset for record in itertools.islice(consumer, 250)]
        consumer.close()

        assert offsets == list(range(250))
    finally:
        server.kill()
