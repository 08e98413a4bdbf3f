"""Log directories as rows, those of both kinds of servers: what a consumer reads from the broker is what its files have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.spark.errors import OptionError
from barnabas.spark.log.batches import DamagedError
from barnabas.spark.log.options import read_options
from barnabas.spark.log.partitions import find_segments
from barnabas.spark.log.reading import read_segment
from tests.clients.topics import create_topic
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer
from tests.support.process import ServerProcess

TOPIC, PARTITIONS = "orders", 2
SMALL_SEGMENTS = {"segment.ms": "500", "retention.ms": "-1"}  # the records' times are years ago, a second between codecs
Row = tuple[int, int, Any, Any, int]
TIMESTAMP_MS = 1_700_000_000_000


class Written:
    """A directory whose server has stopped, and what consumers of both kinds had read from it."""

    def __init__(self, server: ServerProcess) -> None:
        self.directory = server.data_dir
        self.committed = consume(server, "read_committed")
        self.all = consume(server, "read_uncommitted")


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    kind: type[ServerProcess] = {"barnabas": BrokerProcess, "kafka": KafkaServer}[request.param]
    server = kind(tmp_path_factory.mktemp(request.param))
    server.start()
    try:
        create_topic(server, TOPIC, partitions=PARTITIONS, config=SMALL_SEGMENTS)
        fill(server)
        written = Written(server)
        server.stop()
        yield written
    finally:
        server.kill()


def fill(server: ServerProcess) -> None:
    """Several segments, with each codec, nulls, headers, committed and aborted transactions, and one that stays open."""
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": codec, "linger.ms": 1000})
        for count in range(200):
            value = None if count % 50 == 0 else f"{codec} {count} ".encode() * 20
            time_ms = TIMESTAMP_MS + number * 1000 + count
            producer.produce(
                TOPIC, value, key=b"%d" % count, partition=count % PARTITIONS, timestamp=time_ms, headers=[("h", b"%d" % count)]
            )
        producer.flush()
    for number, ends in enumerate(("commit", "abort", "commit", "abort", "open")):
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": f"id-{number}"})
        producer.init_transactions()
        producer.begin_transaction()
        for count in range(30):
            producer.produce(TOPIC, f"{ends} {number} {count}".encode() * 30, partition=count % PARTITIONS)
        producer.flush()
        if ends != "open":
            (producer.commit_transaction if ends == "commit" else producer.abort_transaction)()
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(TOPIC, b"after the open one", partition=0)
    producer.flush()


def consume(server: ServerProcess, isolation: str) -> list[Row]:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "none", "isolation.level": isolation, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    rows: list[Row] = []
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None, "the consumer does not reach the end"
        if message.error():
            ended += 1
        else:
            rows.append((message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    return sorted(rows)


def rows_of(directory: Path, **options: str) -> list[Row]:
    """As the driver and its workers find and read them."""
    chosen = read_options({"path": str(directory), "subscribe": TOPIC, **options})
    rows: list[Row] = []
    for segment in find_segments(chosen):
        for batch in read_segment(chosen, segment):
            for row in batch.to_pylist():
                rows.append((row["partition"], row["offset"], row["key"], row["value"], round(row["timestamp"].timestamp() * 1000)))
    return sorted(rows)


def test_rows_are_those_that_a_consumer_reads(written: Written) -> None:
    assert rows_of(written.directory) == written.committed
    assert rows_of(written.directory, **{"kafka.isolation.level": "read_uncommitted"}) == written.all
    assert len(written.all) > len(written.committed) > 1000


def test_headers_and_schema_are_the_source_s(written: Written) -> None:
    options = read_options({"path": str(written.directory), "subscribe": TOPIC, "includeHeaders": "true"})
    first = next(read_segment(options, find_segments(options)[0]))

    assert first.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert first.to_pylist()[0]["headers"] == [{"key": "h", "value": b"0"}]


def test_times_leave_out_rows_and_whole_segments(written: Written) -> None:
    def segments(**options: str) -> int:
        return len(find_segments(read_options({"path": str(written.directory), "subscribe": TOPIC, **options})))

    start, end = TIMESTAMP_MS + 1000, TIMESTAMP_MS + 2000
    expected = [row for row in written.committed if start <= row[4] < end]
    assert rows_of(written.directory, startingTimestamp=str(start), endingTimestamp=str(end)) == expected and expected
    assert segments(startingTimestamp=str(TIMESTAMP_MS + 100_000)) < segments()


def test_directories_of_other_topics_deleted_ones_and_the_metadata_log_are_left_out(written: Written, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(written.directory, tmp_path / "copy"))
    (copy / f"{TOPIC}-1").rename(copy / f"{TOPIC}-1.{'0' * 32}-delete")

    assert {row[0] for row in rows_of(copy)} == {0}
    everything = find_segments(read_options({"path": str(copy)}))
    assert "__cluster_metadata" not in {segment.topic for segment in everything}
    with pytest.raises(OptionError, match="topic other is in none of "):
        rows_of(copy, subscribe="other")


def test_what_is_behind_the_high_watermark_counts_only_if_asked_for(written: Written, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(written.directory, tmp_path / "copy"))
    (copy / "replication-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 20\n")
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}

    assert rows_of(copy) == [row for row in written.committed if row[:2] < (0, 20)]
    assert rows_of(copy, readTo="logEnd", **uncommitted) == written.all


def test_a_damaged_batch_is_an_error_and_no_row(written: Written, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(written.directory, tmp_path / "copy"))
    (path,) = [each for each in (copy / f"{TOPIC}-0").glob("*.log") if int(each.stem) == 0]
    data = bytearray(path.read_bytes())
    first = 12 + int.from_bytes(data[8:12], "big")  # Its baseOffset, its length and what that counts.
    data[first - 1] ^= 1
    path.write_bytes(data)

    with pytest.raises(DamagedError, match=f"{path} is damaged: the CRC of the batch at byte 0, offset 0, does not fit"):
        rows_of(copy)
    path.write_bytes(bytes(data[: first - 1]))
    with pytest.raises(DamagedError, match="is damaged: a batch is cut at byte 0, offset 0"):
        rows_of(copy)
    path.write_bytes(b"\xff" * 300)
    with pytest.raises(DamagedError, match="is damaged at byte 0"):
        rows_of(copy)


def test_a_log_that_ends_before_its_high_watermark_is_an_error(written: Written, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(written.directory, tmp_path / "copy"))
    last = max((copy / f"{TOPIC}-1").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-100])

    with pytest.raises(DamagedError, match=r"it ends at offset \d+, and the log at \d+ or later"):
        rows_of(copy, **{"kafka.isolation.level": "read_uncommitted"})
    assert rows_of(copy, readTo="logEnd", **{"kafka.isolation.level": "read_uncommitted"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no log directory is named"),
        ({"path": "/nowhere"}, "/nowhere is no directory"),
        ({"path": "/tmp", "offset": "1"}, "unknown option 'offset': there are path, subscribe"),
        ({"path": "/tmp", "readTo": "end"}, "readTo is 'end': it is highWatermark or logEnd"),
        ({"path": "/tmp", "kafka.isolation.level": "none"}, "it is read_committed or read_uncommitted"),
        ({"path": "/tmp", "subscribePattern": "("}, "subscribePattern is"),
        ({"path": "/tmp", "startingTimestamp": "now"}, "startingTimestamp is 'now': it is a whole number, 0 or more"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_by_one_sentence(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        find_segments(read_options(options))
