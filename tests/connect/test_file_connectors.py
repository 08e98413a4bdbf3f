"""Kafka Connect's distributed mode on the broker: lines go from a file into a topic and from there into another file.

Its promise is at_least_once: nothing is lost whatever is killed, and nothing comes twice as long as all stop in good order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.topics import end_offset
from tests.connect.conftest import GROUP, WORKER_SETTINGS
from tests.connect.connectors import SHORT_SESSION, Connectors, Feed, firsts, read_lines
from tests.connect.topics import partition_count, topic_configs
from tests.support.connect import ConnectWorker
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint

TIMEOUT_S = 60.0
LINES = 2_000
MIDST = 500


@pytest.fixture
def source_file(tmp_path: Path) -> Path:
    return tmp_path / "source.txt"


@pytest.fixture
def sink_file(tmp_path: Path) -> Path:
    return tmp_path / "sink.txt"


@pytest.fixture
def second_worker(endpoint: Endpoint, tmp_path: Path) -> Iterator[ConnectWorker]:
    """Another worker of the same group, not started yet."""
    process = ConnectWorker(tmp_path / "second", endpoint, GROUP, WORKER_SETTINGS)
    yield process
    process.kill()


@pytest.mark.secured
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_line_arrives_once_and_in_order(connectors: Connectors, source_file: Path, sink_file: Path, protocol: str) -> None:
    feed = Feed(source_file)
    feed.append(LINES)

    connectors.start_source(source_file)
    sink = connectors.start_sink(sink_file, **{"consumer.override.group.protocol": protocol})
    connectors.wait_lines(sink_file, feed.lines)

    assert read_lines(sink_file) == feed.lines
    committed = [{"partition": {"kafka_topic": connectors.topic, "kafka_partition": 0}, "offset": {"kafka_offset": LINES}}]
    connectors.worker.wait_for(lambda: connectors.offsets(sink) == committed, "the sink's offsets")


def test_connect_makes_topics_as_its_connectors_say(connectors: Connectors, broker: ServerProcess, source_file: Path) -> None:
    """KIP-158."""
    Feed(source_file).append(1)

    configs = {"retention.ms": "7200000", "max.message.bytes": "2000000"}
    creation = {"partitions": "3", **configs}
    connectors.start_source(source_file, **{f"topic.creation.default.{key}": value for key, value in creation.items()})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    connectors.worker.wait_for(lambda: connectors.topic in admin.list_topics(timeout=TIMEOUT_S).topics, "the topic")

    assert partition_count(broker, connectors.topic) == 3
    assert configs.items() <= topic_configs(broker, connectors.topic).items()


def test_records_that_no_converter_reads_go_to_the_dead_letter_queue(
    connectors: Connectors, broker: ServerProcess, source_file: Path, sink_file: Path
) -> None:
    """A queue that does not exist is made, and its records say by headers where they come from (KIP-298)."""
    source_file.write_text('"one"\nno JSON\n"two"\n')
    queue = f"{connectors.topic}-dead"
    errors = {"tolerance": "all", "deadletterqueue.topic.name": queue, "deadletterqueue.topic.replication.factor": "1",
              "deadletterqueue.context.headers.enable": "true"}  # fmt: skip
    converter = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}

    connectors.start_source(source_file)
    connectors.start_sink(sink_file, **converter, **{f"errors.{key}": value for key, value in errors.items()})
    connectors.wait_lines(sink_file, ["one", "two"])

    assert read_lines(sink_file) == ["one", "two"]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition(queue, 0, 0)])
    dead = consumer.poll(TIMEOUT_S)
    consumer.close()
    assert dead is not None and dead.value() == b"no JSON"
    assert dict(dead.headers() or [])["__connect.errors.topic"] == connectors.topic.encode()


def test_a_restarted_worker_goes_on_where_it_stopped(connectors: Connectors, source_file: Path, sink_file: Path) -> None:
    feed = Feed(source_file)
    feed.append(LINES)
    connectors.start_source(source_file)
    connectors.start_sink(sink_file)
    connectors.wait_lines(sink_file, feed.lines)

    connectors.worker.stop()
    feed.append(LINES)
    connectors.worker.start()
    connectors.wait_lines(sink_file, feed.lines)

    assert read_lines(sink_file) == feed.lines


def test_a_killed_worker_loses_nothing(connectors: Connectors, source_file: Path, sink_file: Path) -> None:
    connectors.start_source(source_file)
    connectors.start_sink(sink_file, **SHORT_SESSION)
    with Feed(source_file) as feed:
        connectors.worker.wait_for(lambda: len(read_lines(sink_file)) > MIDST, "the midst")
        connectors.worker.kill()
        connectors.worker.start()
        at_restart = len(feed.lines)
        connectors.worker.wait_for(lambda: len(feed.lines) > at_restart + MIDST, "lines after the restart")
    connectors.wait_lines(sink_file, feed.lines)

    assert firsts(read_lines(sink_file)) == feed.lines


def test_a_killed_broker_loses_nothing(connectors: Connectors, broker: ServerProcess, source_file: Path, sink_file: Path) -> None:
    connectors.start_source(source_file)
    connectors.start_sink(sink_file, **SHORT_SESSION)
    with Feed(source_file) as feed:
        for _ in range(2):
            arrived = len(read_lines(sink_file))
            connectors.worker.wait_for(lambda arrived=arrived: len(read_lines(sink_file)) > arrived + MIDST, "the midst")  # type: ignore[misc]
            broker.restart(hard=True)
    connectors.wait_lines(sink_file, feed.lines)

    assert firsts(read_lines(sink_file)) == feed.lines


def test_workers_share_the_work_and_take_that_of_a_dead_one(
    connectors: Connectors, second_worker: ConnectWorker, source_file: Path, sink_file: Path
) -> None:
    names = connectors.start_source(source_file), connectors.start_sink(sink_file, **SHORT_SESSION)
    first_worker = connectors.worker
    ids = {worker: f"{worker.host}:{worker.port}" for worker in (first_worker, second_worker)}

    def places() -> set[str]:
        found = [connectors.status(name) for name in names]
        return {part["worker_id"] for status in found for part in (status["connector"], *status["tasks"])}

    with Feed(source_file) as feed:
        second_worker.start()
        first_worker.wait_for(lambda: places() == set(ids.values()), "both have work")
        first_worker.kill()  # the leader of the group, for it was there first
        connectors.worker = second_worker
        for name in names:
            connectors.wait_state(name, "RUNNING", workers=(ids[second_worker],))
        first_worker.start()
        first_worker.wait_for(lambda: places() == set(ids.values()), "both have work again")
        second_worker.stop()
        connectors.worker = first_worker
        for name in names:
            connectors.wait_state(name, "RUNNING", workers=(ids[first_worker],))
    connectors.wait_lines(sink_file, feed.lines)

    assert firsts(read_lines(sink_file)) == feed.lines


def test_a_paused_sink_goes_on_when_it_is_resumed(
    connectors: Connectors, broker: ServerProcess, source_file: Path, sink_file: Path
) -> None:
    feed = Feed(source_file)
    feed.append(LINES)
    connectors.start_source(source_file)
    sink = connectors.start_sink(sink_file)
    connectors.wait_lines(sink_file, feed.lines)

    connectors.set_state(sink, "pause", "PAUSED")
    before = list(feed.lines)
    feed.append(LINES)
    connectors.worker.wait_for(lambda: end_offset(broker, connectors.topic) == 2 * LINES, "all lines in the topic")

    assert read_lines(sink_file) == before
    connectors.set_state(sink, "resume", "RUNNING")
    connectors.wait_lines(sink_file, feed.lines)
    assert read_lines(sink_file) == feed.lines


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_stopped_sink_s_offsets_are_reset(connectors: Connectors, source_file: Path, sink_file: Path, protocol: str) -> None:
    """Connect deletes the group."""
    feed = Feed(source_file)
    feed.append(LINES)
    connectors.start_source(source_file)
    sink = connectors.start_sink(sink_file, **{"consumer.override.group.protocol": protocol})
    connectors.wait_lines(sink_file, feed.lines)

    connectors.set_state(sink, "stop", "STOPPED")
    answer = connectors.worker.ask("DELETE", f"/connectors/{sink}/offsets")

    assert answer == {"message": "The offsets for this connector have been reset successfully"}
    assert connectors.offsets(sink) == []
    connectors.set_state(sink, "resume", "RUNNING")
    connectors.worker.wait_for(lambda: read_lines(sink_file) == feed.lines * 2, "every line a second time")


def test_a_stopped_sink_s_offsets_are_altered(connectors: Connectors, broker: ServerProcess, source_file: Path, sink_file: Path) -> None:
    """One partition's is set, the other's removed (OffsetDelete)."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    feed = Feed(source_file)
    feed.append(LINES)
    connectors.start_source(source_file, **{"topic.creation.default.partitions": "2"})
    sink = connectors.start_sink(sink_file)
    connectors.wait_lines(sink_file, feed.lines)
    assert len(admin.list_topics(connectors.topic, TIMEOUT_S).topics[connectors.topic].partitions) == 2
    connectors.set_state(sink, "stop", "STOPPED")
    before = {each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"] for each in connectors.offsets(sink)}
    assert sum(before.values()) == LINES

    first, last = min(before), max(before)
    again = min(before[first], 10) if first != last else 0
    wanted = [
        {"partition": {"kafka_topic": connectors.topic, "kafka_partition": first}, "offset": {"kafka_offset": before[first] - again}},
        {"partition": {"kafka_topic": connectors.topic, "kafka_partition": last}, "offset": None},
    ]
    connectors.worker.ask("PATCH", f"/connectors/{sink}/offsets", {"offsets": wanted})

    assert connectors.offsets(sink) == wanted[:1]
    connectors.set_state(sink, "resume", "RUNNING")
    expected = LINES + again + before[last]
    connectors.worker.wait_for(lambda: len(read_lines(sink_file)) == expected, f"{again} and {before[last]} lines again")


def test_a_stopped_source_s_offsets_are_altered_and_reset(connectors: Connectors, source_file: Path, sink_file: Path) -> None:
    """They are records of connect-offsets, and tombstones."""
    feed = Feed(source_file)
    feed.append(LINES)
    source = connectors.start_source(source_file)
    connectors.start_sink(sink_file)
    connectors.wait_lines(sink_file, feed.lines)
    connectors.set_state(source, "stop", "STOPPED")

    position = len("".join(f"{line}\n" for line in feed.lines[:-10]))
    altered = [{"partition": {"filename": str(source_file)}, "offset": {"position": position}}]
    connectors.worker.ask("PATCH", f"/connectors/{source}/offsets", {"offsets": altered})
    assert connectors.offsets(source) == altered
    connectors.set_state(source, "resume", "RUNNING")
    expected = feed.lines + feed.lines[-10:]
    connectors.worker.wait_for(lambda: read_lines(sink_file) == expected, "the last ten lines again")

    connectors.set_state(source, "stop", "STOPPED")
    connectors.worker.ask("DELETE", f"/connectors/{source}/offsets")
    # Connect lists the partitions that it knows before it reads the tombstone. So the first answer may name one, with offset null.
    connectors.worker.wait_for(lambda: connectors.offsets(source) == [], "no offsets")
    connectors.set_state(source, "resume", "RUNNING")
    connectors.worker.wait_for(lambda: read_lines(sink_file) == expected + feed.lines, "every line again")
