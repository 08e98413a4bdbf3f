"""Barnabas and Apache Kafka compact copies of one directory: what they leave is the same, and each accepts the other's.

Uncompressed batches are equal to the byte, with their segments and indexes. Compressed ones differ by their libraries, and a batch with
tombstones by the moment at which its delete horizon began: of these, everything else is compared.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.compression import Compression
from protocol.records import DELETE_HORIZON_FLAG, iterate_headers, iterate_records
from storage.checkpoint import read_offset_checkpoint
from tests.peers.test_dump_log import COMPLAINTS, HARMLESS, dump, files
from tests.support.broker import OnKafkasProperties
from tests.support.kafka import SHORT_SESSION, KafkaServer, kafka_jars
from tests.support.process import ServerProcess

SETTINGS = {
    **SHORT_SESSION,
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "100",  # of a broker; file.delete.delay.ms is of topics
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "8000"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOLES = re.compile(r"Non-consecutive offsets in .*|\s*\d+ is followed by \d+")
ALL_FILES = (".log", ".index", ".timeindex", ".txnindex")
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Compacted:
    """The same directory as each of the two left it."""

    by_kafka: Path
    by_barnabas: Path


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Compacted:
    kafka_jars()
    root = tmp_path_factory.mktemp("compaction")
    writer = KafkaServer(root / "written", SETTINGS)
    try:
        writer.start()
        fill(writer)
        writer.stop()
    finally:
        writer.kill()
    kafka = KafkaServer(copy_of(writer.directory, root / "kafka"), SETTINGS)
    kafka.port = writer.port
    compact_with(kafka)
    barnabas = OnKafkasProperties(copy_of(writer.directory, root / "barnabas"))
    barnabas.port = writer.port
    compact_with(barnabas)
    return Compacted(kafka.directory, barnabas.directory)


def copy_of(directory: Path, target: Path, *, is_compacted: bool = True) -> Path:
    """A copy with properties of its own that name it."""
    shutil.copytree(directory, target)
    properties = target / "server.properties"
    text = properties.read_text().replace(str(directory), str(target))
    properties.write_text(text.replace("log.cleaner.enable=false", f"log.cleaner.enable={str(is_compacted).lower()}"))
    return target


def fill(server: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topics = [NewTopic(name, 1, 1, config=TOPIC) for name in ("plain", "mixed")]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)
    for number in range(4):
        produce(server, "plain", number * 300, 300, has_tombstones=False, idempotent=number % 2 == 1, codec="none")
        run_transaction(server, "plain", f"id-{number}", is_committed=number % 2 == 0)
    produce(server, "plain", 1200, 100, has_tombstones=False, idempotent=False, codec="none")
    for number, codec in enumerate(CODECS):
        produce(server, "mixed", number * 300, 300, has_tombstones=True, idempotent=True, codec=codec)
        run_transaction(server, "mixed", f"id-{number}", is_committed=number % 2 == 0)


def produce(server: ServerProcess, topic: str, first: int, count: int, *, has_tombstones: bool, idempotent: bool, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap, "enable.idempotence": idempotent, "compression.type": codec,
            "batch.num.messages": 7, "linger.ms": 1,
        }
    )  # fmt: skip
    for number in range(first, first + count):
        is_single = number % 100 < 20
        key = b"key-%d" % (number if is_single else number % 10)
        value = None if has_tombstones and number % 13 == 0 else b"value %d " % number * 5
        headers = [("header", b"%d" % number)] if number % 3 == 0 else None
        producer.produce(topic, value, key, partition=0, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(TIMEOUT_S) == 0


def run_transaction(server: ServerProcess, topic: str, transactional_id: str, *, is_committed: bool) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": transactional_id, "linger.ms": 1})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, b"in a transaction", b"key-%d" % (number % 10), partition=0)
    producer.flush(TIMEOUT_S)
    if is_committed:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def compact_with(server: ServerProcess) -> None:
    """Serve until both topics are compacted, and stop."""
    try:
        server.start()
        for topic in ("plain", "mixed"):
            active = max(int(path.stem) for path in (server.data_dir / f"{topic}-0").glob("*.log"))
            assert active > 0
            until(lambda name=topic, end=active: clean_end(server, name) >= end)  # type: ignore[misc]
        until(lambda: not list(server.data_dir.glob("*-0/*.deleted")))
        assert server.stop() is not None
    finally:
        server.kill()


def until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def clean_end(server: ServerProcess, topic: str) -> int:
    return read_offset_checkpoint(server.data_dir / "cleaner-offset-checkpoint").get((topic, 0), 0)


def contents(directory: Path, topic: str, *suffixes: str) -> dict[str, bytes]:
    paths = (directory / "data" / f"{topic}-0").iterdir()
    return {path.name: path.read_bytes() for path in sorted(paths) if path.suffix in suffixes and path.stat().st_size}


def described(log: bytes) -> list[tuple[Any, ...]]:
    """The batches, but for what libraries and the moment of a compaction decide."""
    found = []
    for position, header in iterate_headers(log):
        has_horizon = header.attributes & DELETE_HORIZON_FLAG
        own = header._replace(batch_length=0, crc=0, base_timestamp=-1 if has_horizon else header.base_timestamp)
        is_exact = header.compression is Compression.NONE and not has_horizon
        batch = log[position : position + header.size_bytes] if is_exact else b""
        found.append((own, tuple(iterate_records(log, position)), batch))
    return found


def test_plain_segments_are_equal_to_the_byte(compacted: Compacted) -> None:
    ours = contents(compacted.by_barnabas, "plain", *ALL_FILES)
    theirs = contents(compacted.by_kafka, "plain", *ALL_FILES)

    assert list(ours) == list(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert any(name.endswith(".txnindex") for name in ours), "else aborted transactions are not compared"
    assert len([name for name in ours if name.endswith(".log")]) > 1


def test_batches_with_codecs_tombstones_and_transactions_are_equal_in_all_else(compacted: Compacted) -> None:
    ours = contents(compacted.by_barnabas, "mixed", ".log")
    theirs = contents(compacted.by_kafka, "mixed", ".log")
    batches = [batch for log in theirs.values() for batch in described(log)]

    assert [batch for log in ours.values() for batch in described(log)] == batches
    assert {header.compression for header, _, _ in batches} == set(Compression)
    assert any(header.attributes & DELETE_HORIZON_FLAG for header, _, _ in batches)
    assert any(not records for _, records, _ in batches), "else no emptied batch is compared"


@pytest.mark.parametrize("topic", ["plain", "mixed"])
def test_kafkas_dump_log_says_of_both_the_same(compacted: Compacted, topic: str) -> None:
    """It complains of the holes that compaction leaves, of Kafka's too."""
    ours, theirs = (complaints(directory / "data" / f"{topic}-0") for directory in (compacted.by_barnabas, compacted.by_kafka))

    assert ours == theirs
    assert [line for line in ours if not HOLES.fullmatch(line)] == []


def complaints(directory: Path) -> list[str]:
    everything = dump(files(directory, ".log", ".index", ".timeindex"), "--deep-iteration").replace(str(directory), "")
    return sorted(line for line in everything.splitlines() if any(word in line for word in COMPLAINTS) and not HARMLESS.fullmatch(line))


def test_each_serves_what_the_other_compacted(compacted: Compacted, tmp_path: Path) -> None:
    kafka = KafkaServer(copy_of(compacted.by_barnabas, tmp_path / "kafka"), SETTINGS)
    barnabas = OnKafkasProperties(copy_of(compacted.by_kafka, tmp_path / "barnabas"))
    properties = (kafka.directory / "server.properties").read_text()
    found = []

    for server in (kafka, barnabas):
        server.port = int(re.findall(r"listeners=PLAINTEXT://[^:]+:(\d+)", properties)[0])
        try:
            server.start()
            found.append({topic: read_committed(server, topic) for topic in ("plain", "mixed")})
        finally:
            server.kill()

    assert found[0] == found[1]
    assert all(len(records) > 100 for records in found[0].values())


def read_committed(server: ServerProcess, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
        records.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return records
