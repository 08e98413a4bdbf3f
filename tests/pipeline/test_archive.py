"""`barnabas pipeline archive` as a user runs it, judged by pyarrow.dataset, which knows nothing of Spark."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from barnabas.spark.archives.hadoop_files import ArchiveFileError
from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.brokers import BrokerError
from pipeline.errors import PipelineError, UsageError
from tests.clients.topics import TIMEOUT_S, create_topic, eventually
from tests.pipeline.spark_support import kill_group, positions, produce, read_archive, run_pipeline, start_pipeline, unsorted_files
from tests.support.messages import Message
from tests.support.process import LineReader, ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BEFORE_MIDNIGHT_MS = int(datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC).timestamp() * 1000)

# The records are older than a topic keeps them by default: the broker may delete them from half a minute after its start on.
KEEP_OLD_RECORDS = {"retention.ms": "-1"}
SHORT_TIMEOUTS = {"default.api.timeout.ms": "3000", "request.timeout.ms": "3000"}


def numbered(count: int, *, partitions: int = 3, first: int = 0) -> list[Message]:
    """Records of which every other one is a day later."""
    return [
        Message(i % partitions, b"key-%d" % i, b"value-%d" % i, (("n", b"%d" % i),), BEFORE_MIDNIGHT_MS + (i % 2))
        for i in range(first, first + count)
    ]


def expected(topic: str, count: int, partitions: int = 3) -> list[tuple[str, int, int]]:
    return sorted((topic, i % partitions, i // partitions) for i in range(count))


def test_once_archives_every_record_once_in_sorted_files_by_topic_and_utc_day_and_leaves_nothing_else(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """No folder `artifacts`, no empty folder, no warning of Java. The session is here so that the connector is fetched already."""
    create_topic(server, topic_name, partitions=3, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(3000))
    archived = tmp_path / "archive"

    arguments = ("--topics", topic_name, "--to", "archive", "--once", "--records-per-batch", "1000")
    result = run_pipeline("archive", server, *arguments, folder=tmp_path)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[:2] == ["starting Spark on local[2]", f"archiving {topic_name} to archive from earliest on"]
    assert positions(read_archive(archived)) == expected(topic_name, 3000)
    assert not list(unsorted_files(archived))
    assert sorted(path.name for path in (archived / f"topic={topic_name}").iterdir()) == ["day=2026-03-01", "day=2026-03-02"]
    assert not list(archived.glob("topic=*/day=*/.*")), "hidden checksum files beside the archive's own"
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    # Spark makes the folder of its state store for each query.
    empty = [path for path in tmp_path.rglob("*") if path.is_dir() and not any(path.iterdir()) and path.name != "state"]
    assert not empty


def test_rows_hold_key_value_headers_and_timestamp_nulls_included(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name, config=KEEP_OLD_RECORDS)
    messages = [
        Message(0, None, b"value", (), BEFORE_MIDNIGHT_MS),
        Message(0, b"key", None, (("a", b"1"), ("a", None)), BEFORE_MIDNIGHT_MS),
    ]
    produce(server, topic_name, messages)

    archive(spark, ArchiveJob(server.bootstrap, ("subscribe", topic_name), str(tmp_path)), stop=Stop(), say=print)

    rows = sorted(read_archive(tmp_path).to_pylist(), key=lambda row: row["offset"])
    assert [(row["key"], row["value"]) for row in rows] == [(None, b"value"), (b"key", None)]
    assert rows[1]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert not rows[0]["headers"]
    assert rows[0]["timestamp"] == datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC)


def test_second_run_adds_only_what_came_since(spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    create_topic(server, topic_name, partitions=3, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(300))
    job = ArchiveJob(server.bootstrap, ("subscribePattern", f"{topic_name[:-1]}[0-9]"), str(tmp_path))
    archive(spark, job, stop=Stop(), say=print)
    before = set(tmp_path.glob("topic=*/day=*/*.parquet"))
    produce(server, topic_name, numbered(300, first=300))
    said: list[str] = []

    archive(spark, job, stop=Stop(), say=said.append)

    assert said[0].endswith(" from batch 1 on")
    assert said[1].startswith("batch 1: 300 records")
    assert positions(read_archive(tmp_path)) == expected(topic_name, 600)
    assert before < set(tmp_path.glob("topic=*/day=*/*.parquet"))


def test_a_group_has_the_progress_and_one_with_members_is_a_complaint(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name, partitions=3, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(300))
    job = ArchiveJob(server.bootstrap, ("subscribe", topic_name), str(tmp_path), group=topic_name)
    complaints: list[str] = []

    archive(spark, job, stop=Stop(), say=print, complain=complaints.append)
    assert committed(server, topic_name) == [100, 100, 100]
    assert complaints == []
    produce(server, topic_name, numbered(30, first=300))
    member = Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic_name, "enable.auto.commit": False})
    try:
        assigned: list[object] = []
        member.subscribe([topic_name], on_assign=lambda _, partitions: assigned.extend(partitions))
        eventually(lambda: member.poll(0.1) or assigned)
        archive(spark, job, stop=Stop(), say=print, complain=complaints.append)
    finally:
        member.close()

    assert committed(server, topic_name) == [100, 100, 100]
    assert len(complaints) == 1 and complaints[0].startswith(f"the group {topic_name} does not have the progress: ")
    assert positions(read_archive(tmp_path)) == expected(topic_name, 330)


def committed(server: ServerProcess, group: str) -> list[int]:
    """The group's offsets of the topic with its name, by partition, as Kafka's tools see them."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)
    return [each.offset for each in sorted(found.topic_partitions, key=lambda each: each.partition)]


def fill(server: ServerProcess, topic: str, count: int) -> None:
    """A topic of one partition with that many records."""
    create_topic(server, topic)
    produce(server, topic, [Message(0, None, b"%d" % number) for number in range(count)])


def contents(**counts: int) -> list[tuple[str, int, int]]:
    return sorted((topic, 0, offset) for topic, count in counts.items() for offset in range(count))


def state(target: Path) -> dict[str, bytes]:
    """Every file of the archive and of its checkpoint, but for the lock, which says who looked last."""
    return {str(path): path.read_bytes() for path in target.rglob("*") if path.is_file() and path.name != "_lock"}


def test_added_topic_comes_from_its_beginning_and_a_removed_one_is_refused(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """`start` is where the archive begins, not where a topic joins it. A plan without a topic would end the archive for good."""
    old, new = f"{topic_name}-old", f"{topic_name}-new"
    fill(server, old, 3)
    archive(spark, ArchiveJob(server.bootstrap, ("subscribe", old), str(tmp_path)), stop=Stop(), say=print)
    fill(server, new, 7)
    produce(server, old, [Message(0, None, b"later")])

    both = ArchiveJob(server.bootstrap, ("subscribe", f"{old},{new}"), str(tmp_path), start="latest", records_per_batch_limit=5)
    archive(spark, both, stop=Stop(), say=print)
    before = state(tmp_path)
    with pytest.raises(PipelineError, match=f"is an archive of topic {new} too"):
        archive(spark, ArchiveJob(server.bootstrap, ("subscribe", old), str(tmp_path)), stop=Stop(), say=print)

    assert positions(read_archive(tmp_path)) == contents(**{old: 4, new: 7})
    assert state(tmp_path) == before


def test_pattern_takes_over_from_names(spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    first, second = f"{topic_name}-a", f"{topic_name}-b"
    fill(server, first, 3)
    archive(spark, ArchiveJob(server.bootstrap, ("subscribe", first), str(tmp_path)), stop=Stop(), say=print)
    fill(server, second, 4)

    archive(spark, ArchiveJob(server.bootstrap, ("subscribePattern", f"{topic_name}-.*"), str(tmp_path)), stop=Stop(), say=print)

    assert positions(read_archive(tmp_path)) == contents(**{first: 3, second: 4})
    with pytest.raises(UsageError, match=r"--topic-pattern \[a-: Illegal character range"):
        archive(spark, ArchiveJob(server.bootstrap, ("subscribePattern", "[a-"), str(tmp_path)), stop=Stop(), say=print)


def test_topic_made_again_is_refused_though_it_has_more_records_than_before(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """Spark sees offsets alone, and would go on with other records at positions that follow on the old ones."""
    job = ArchiveJob(server.bootstrap, ("subscribe", topic_name), str(tmp_path), allow_data_loss=True)
    fill(server, topic_name, 3)
    archive(spark, job, stop=Stop(), say=print)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT_S)
    eventually(lambda: topic_name not in admin.list_topics(timeout=TIMEOUT_S).topics)
    fill(server, topic_name, 9)

    with pytest.raises(PipelineError, match=f"topic {topic_name} was deleted and created again"):
        archive(spark, job, stop=Stop(), say=print)

    assert positions(read_archive(tmp_path)) == contents(**{topic_name: 3})


def test_start_at_a_time_leaves_out_what_is_older(spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    create_topic(server, topic_name, partitions=2, config=KEEP_OLD_RECORDS)
    start_ms = int(time.time() * 1000) - 60_000
    produce(server, topic_name, [Message(0, None, b"x", (), start_ms + i) for i in range(10)])
    job = ArchiveJob(server.bootstrap, ("subscribe", topic_name), str(tmp_path), start_timestamp_ms=start_ms + 6)

    archive(spark, job, stop=Stop(), say=print)

    assert positions(read_archive(tmp_path)) == [(topic_name, 0, offset) for offset in range(6, 10)]


def test_follow_stops_on_sigterm_after_the_running_batch(server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    create_topic(server, topic_name, partitions=3, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(3000))
    arguments = ("--topics", topic_name, "--to", str(tmp_path), "--follow", "--interval", "0.1", "--records-per-batch", "300")
    process = start_pipeline("archive", server, *arguments)
    lines = LineReader(process)
    try:
        lines.wait_for(1, containing="batch 0:", timeout_s=90)
        process.terminate()
        exit_code = process.wait(60)
        last_line = lines.wait_for(1, containing="stopped:")[-1]
    finally:
        kill_group(process)

    assert exit_code == 0
    published = {path.name.split("-")[1] for path in tmp_path.glob("topic=*/day=*/*.parquet")}
    committed = {path.name for path in (tmp_path / "_checkpoint" / "commits").glob("[0-9]*")}
    assert {int(batch) for batch in published} == {int(batch) for batch in committed}
    assert f"in {len(committed)} batches" in last_line


def test_a_batch_that_fails_ends_the_job_with_its_own_reason(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(10, partitions=1))
    in_the_way = tmp_path / f"topic={topic_name}"
    in_the_way.write_text("a file where a folder is needed")

    with pytest.raises(ArchiveFileError) as failed:
        archive(spark, ArchiveJob(server.bootstrap, ("subscribe", topic_name), str(tmp_path)), stop=Stop(), say=print)

    assert str(failed.value).startswith(f"{in_the_way}/day=")
    assert "not a directory" in str(failed.value)
    assert not read_archive(tmp_path)


def test_follow_says_that_the_broker_is_away_and_goes_on_when_it_is_back(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """Also when the outage lasts until Spark's source gives up, which SHORT_TIMEOUTS bring near."""
    target, said, complaints, stop = tmp_path / "archive", list[str](), list[str](), Stop()
    job = ArchiveJob(own_server.bootstrap, ("subscribe", topic_name), str(target), interval_s=0.1, consumer_properties=SHORT_TIMEOUTS)
    fill(own_server, topic_name, 3)

    def say(line: str) -> None:
        said.append(line)
        if "batch 0" in line:
            own_server.kill()
        if "batch 1" in line:
            stop.request()

    def complain(line: str) -> None:
        complaints.append(line)
        if "the query ended" in line:
            own_server.start()
            produce(own_server, topic_name, [Message(0, None, b"later")])

    archive(spark, job, stop=stop, say=say, complain=complain)

    assert positions(read_archive(target)) == contents(**{topic_name: 4})
    assert [line.split(own_server.bootstrap)[0] for line in complaints][:2] == [
        "no broker at ",
        "the query ended on that; it goes on where it stopped when they are back",
    ]
    assert said[-1].startswith("stopped: 4 records in 2 batches")


def test_stop_before_the_first_batch_names_the_broker_that_is_away(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """The exit code tells it from a job that had nothing to do."""
    stop = Stop()
    job = ArchiveJob(
        own_server.bootstrap, ("subscribe", topic_name), str(tmp_path / "archive"), interval_s=0.1, consumer_properties=SHORT_TIMEOUTS
    )
    fill(own_server, topic_name, 3)

    def kill_at_the_start(line: str) -> None:
        if line.startswith("archiving"):
            own_server.kill()

    with pytest.raises(BrokerError, match=f"^stopped before the first batch: no broker at {own_server.bootstrap}: connection refused$"):
        archive(spark, job, stop=stop, say=kill_at_the_start, complain=lambda line: stop.request())


# The last one: its query may still wait for the dead broker when it ends, and until then none of the same name starts in this session.
def test_stop_does_not_wait_for_a_broker_that_is_away(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    stop = Stop()
    job = ArchiveJob(
        own_server.bootstrap, ("subscribe", topic_name), str(tmp_path / "archive"), interval_s=0.1, consumer_properties=SHORT_TIMEOUTS
    )
    fill(own_server, topic_name, 3)

    def kill_after_the_batch(line: str) -> None:
        if line.startswith("batch 0"):
            own_server.kill()

    archive(spark, job, stop=stop, say=kill_after_the_batch, complain=lambda line: stop.request())

    assert positions(read_archive(tmp_path / "archive")) == contents(**{topic_name: 3})
