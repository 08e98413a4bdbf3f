"""Barnabas and Apache Kafka on copies of one directory that Kafka made, and that has lived: both answer the same.

Its topics: one that was compacted, so that segments have emptied tails, and is `delete` by now; one whose first records were deleted;
one with a rotten batch in the middle. It was killed, or stopped cleanly; copied with times and without.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec, ResourceType

from storage.checkpoint import read_offset_checkpoint
from tests.support.broker import OnKafkasProperties
from tests.support.kafka import SHORT_SESSION, KafkaServer, kafka_jars
from tests.support.process import ServerProcess

SETTINGS = {
    **SHORT_SESSION,
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}
SMALL_SEGMENTS = {"internal.segment.bytes": "4000"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"}
TOPICS = ("compacted", "trimmed", "rotten")
RECORDS = 200
TRIMMED_AT = 75  # inside a segment, so that no file begins there
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What a broker says of one partition."""

    start_offset: int
    end_offset: int
    records: list[tuple[int, int, bytes | None, bytes | None]]
    """Offset, timestamp, key and value."""


@dataclass(frozen=True, slots=True)
class History:
    """Kafka's directories at two moments, each with what Kafka itself answered on a copy."""

    killed: Path
    killed_answers: dict[str, Answers]
    stopped: Path
    stopped_answers: dict[str, Answers]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    kafka_jars()
    root = tmp_path_factory.mktemp("history")
    kafka = KafkaServer(root / "kafka", SETTINGS)
    try:
        kafka.start()
        make_topics(kafka)
        kafka.kill()
        flip_a_bit(kafka.data_dir)
        killed = copy_of(kafka.directory, root / "killed", keeps_times=True)
        kafka.start()
        killed_answers = read_all(kafka)
        kafka.stop()
        stopped = copy_of(kafka.directory, root / "stopped", keeps_times=True)
        kafka.start()
        stopped_answers = read_all(kafka)
    finally:
        kafka.kill()
    return History(killed, killed_answers, stopped, stopped_answers)


def make_topics(kafka: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {"compacted": {**SMALL_SEGMENTS, **COMPACTED}, "trimmed": SMALL_SEGMENTS, "rotten": SMALL_SEGMENTS}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in settings.items()]).values():
        future.result(TIMEOUT_S)
    for name in TOPICS:
        produce(kafka, name, RECORDS)
    admin.delete_records([TopicPartition("trimmed", 0, TRIMMED_AT)])[TopicPartition("trimmed", 0)].result(TIMEOUT_S)
    wait_until(lambda: read_offset_checkpoint(kafka.data_dir / "log-start-offset-checkpoint").get(("trimmed", 0)) == TRIMMED_AT)
    wait_until(lambda: has_emptied_tails(kafka))
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "compacted", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    produce(kafka, "compacted", 5)


def produce(server: ServerProcess, topic: str, count: int) -> int:
    """One record a batch, without idempotence: of an idempotent producer the cleaner keeps an empty batch. Every second record has a
    key of its own, the others share one, so that each segment's end loses records. Returns the last one's offset."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": False, "batch.num.messages": 1, "linger.ms": 0})
    offsets: list[int] = []
    for number in range(count):
        is_single = number % 40 < 20
        key = b"key-%d" % number if is_single else b"shared"
        producer.produce(topic, b"v%d" % number * 20, key, partition=0, on_delivery=lambda error, message: offsets.append(message.offset()))
    producer.flush(TIMEOUT_S)
    assert len(offsets) == count
    return max(offsets)


def wait_until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_reached():
        assert time.monotonic() < deadline, "Kafka did not come to the wanted state"
        time.sleep(0.05)


def has_emptied_tails(kafka: ServerProcess) -> bool:
    """Whether the cleaner has been over all segments but the active one, and some end before the next one begins."""
    active = max((kafka.data_dir / "compacted-0").glob("*.log"))
    cleaned = read_offset_checkpoint(kafka.data_dir / "cleaner-offset-checkpoint").get(("compacted", 0), 0)
    return cleaned >= int(active.stem) > 0


def flip_a_bit(data_dir: Path) -> None:
    paths = sorted((data_dir / "rotten-0").glob("*.log"))
    assert len(paths) > 3
    content = bytearray(paths[1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[1].write_bytes(content)


def base_offsets(directory: Path, topic: str) -> list[int]:
    return [int(path.stem) for path in sorted((directory / "data" / f"{topic}-0").glob("*.log"))]


def copy_of(directory: Path, target: Path, *, keeps_times: bool) -> Path:
    """A copy with properties of its own that name it."""
    shutil.copytree(directory, target, copy_function=shutil.copy2 if keeps_times else shutil.copy)
    properties = target / "server.properties"
    properties.write_text(properties.read_text().replace(str(directory), str(target)))
    return target


def lose_times(directory: Path) -> None:
    """Nothing is left to do: the copy was made without."""


def touch_metadata(directory: Path) -> None:
    for path in directory.rglob("partition.metadata"):
        os.utime(path)


def lose_metadata(directory: Path) -> None:
    """As a power cut may: it is in no checkpoint, and Kafka does not synchronise it."""
    for name in TOPICS:
        (directory / "data" / f"{name}-0" / "partition.metadata").unlink()


def read_all(server: ServerProcess) -> dict[str, Answers]:
    return {name: read(server, name) for name in TOPICS}


def find_offset(admin: AdminClient, partition: TopicPartition, spec: OffsetSpec) -> int:
    """Asks again while Apache Kafka, which has just started, tells a leader epoch that its partition has not taken up yet."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return int(admin.list_offsets({partition: spec})[partition].result(TIMEOUT_S).offset)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_LEADER_EPOCH or time.monotonic() > deadline_s:
                raise


def read(server: ServerProcess, topic: str) -> Answers:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    partition = TopicPartition(topic, 0)
    start, end = (find_offset(admin, partition, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    records = []
    while (message := consumer.poll(TIMEOUT_S)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        records.append((message.offset(), message.timestamp()[1], message.key(), message.value()))
    consumer.close()
    return Answers(start, end, records)


def serve(directory: Path) -> ServerProcess:
    barnabas = OnKafkasProperties(directory)
    properties = dict(line.split("=", 1) for line in (directory / "server.properties").read_text().splitlines())
    barnabas.port = int(properties["listeners"].split(",")[0].rpartition(":")[2])
    barnabas.start()
    return barnabas


@pytest.mark.parametrize("change", [None, lose_times, touch_metadata, lose_metadata], ids=["whole", "no times", "touched", "no metadata"])
@pytest.mark.parametrize("was_killed", [True, False], ids=["killed", "stopped"])
def test_barnabas_answers_as_kafka_does(history: History, tmp_path: Path, was_killed: bool, change: Callable[[Path], None] | None) -> None:
    source = history.killed if was_killed else history.stopped
    directory = copy_of(source, tmp_path / "copy", keeps_times=change is not lose_times)
    if change is not None:
        change(directory)
    expected = history.killed_answers if was_killed else history.stopped_answers

    barnabas = serve(directory)
    try:
        found = read_all(barnabas)
        next_offsets = [produce(barnabas, name, 1) for name in TOPICS]
    finally:
        barnabas.kill()

    assert found == expected
    assert next_offsets == [expected[name].end_offset for name in TOPICS]


def test_the_history_is_what_it_is_said_to_be(history: History) -> None:
    """Else the comparison shows nothing."""
    answers = history.killed_answers
    bases = base_offsets(history.killed, "compacted")
    offsets = {offset for offset, _, _, _ in answers["compacted"].records}

    assert answers["compacted"].end_offset == RECORDS + 5
    assert len(offsets) < RECORDS - 50
    assert any(base > 0 and base - 1 not in offsets for base in bases)
    assert (answers["trimmed"].start_offset, answers["trimmed"].end_offset) == (TRIMMED_AT, RECORDS)
    assert TRIMMED_AT not in base_offsets(history.stopped, "trimmed")
    assert 0 < answers["rotten"].end_offset < RECORDS
    assert history.stopped_answers == answers


def test_kafka_does_not_mind_what_barnabas_set_aside(history: History, tmp_path: Path) -> None:
    directory = copy_of(history.killed, tmp_path / "copy", keeps_times=True)
    barnabas = serve(directory)
    found = read_all(barnabas)
    barnabas.stop()
    aside = directory / "data" / "rotten-0" / "set-aside.1"
    kept = {path.name: path.read_bytes() for path in aside.iterdir()}

    kafka = KafkaServer(directory, SETTINGS)
    kafka.port = barnabas.port
    try:
        kafka.start()
        answers = read_all(kafka)
    finally:
        kafka.kill()

    assert answers == found
    assert len([name for name in kept if name.endswith(".log")]) > 1
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == kept
