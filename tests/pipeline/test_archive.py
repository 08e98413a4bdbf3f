"""`barnabas pipeline archive` as a user runs it, judged by pyarrow.dataset, which knows nothing of Spark."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.archive import ArchiveJob, Stop, archive
from tests.clients.topics import create_topic
from tests.pipeline.spark_support import kill_group, positions, produce, read_archive, run_pipeline, start_pipeline, unsorted_files
from tests.support.messages import Message
from tests.support.process import LineReader, ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

BEFORE_MIDNIGHT_MS = int(datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC).timestamp() * 1000)

# The records are older than a topic keeps them by default: the broker may delete them from half a minute after its start on.
KEEP_OLD_RECORDS = {"retention.ms": "-1"}


def numbered(count: int, *, partitions: int = 3, first: int = 0) -> list[Message]:
    """Records of which every other one is a day later."""
    return [
        Message(i % partitions, b"key-%d" % i, b"value-%d" % i, (("n", b"%d" % i),), BEFORE_MIDNIGHT_MS + (i % 2))
        for i in range(first, first + count)
    ]


def expected(topic: str, count: int, partitions: int = 3) -> list[tuple[str, int, int]]:
    return sorted((topic, i % partitions, i // partitions) for i in range(count))


def test_once_archives_every_record_once_in_sorted_files_by_topic_and_utc_day(
    server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name, partitions=3, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(3000))

    result = run_pipeline("archive", server, "--topics", topic_name, "--to", str(tmp_path), "--once", "--records-per-batch", "1000")

    assert result.returncode == 0, result.stderr[-2000:]
    assert positions(read_archive(tmp_path)) == expected(topic_name, 3000)
    assert not list(unsorted_files(tmp_path))
    assert sorted(path.name for path in (tmp_path / f"topic={topic_name}").iterdir()) == ["day=2026-03-01", "day=2026-03-02"]
    assert not list(tmp_path.glob("topic=*/day=*/.*")), "hidden checksum files beside the archive's own"


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

    assert said[0].startswith("batch 1: 300 records")
    assert positions(read_archive(tmp_path)) == expected(topic_name, 600)
    assert before < set(tmp_path.glob("topic=*/day=*/*.parquet"))


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


def test_errors_are_one_line_and_a_failing_exit_code(server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    result = run_pipeline("archive", server, "--topics", topic_name, "--to", str(tmp_path))

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"barnabas pipeline: topic {topic_name} does not exist at {server.bootstrap}"
    # The other line is the JVM's, about a module that Spark asks for.
    assert all("incubator" in line for line in result.stderr.splitlines()[:-1])


def test_a_batch_that_fails_ends_the_job_with_its_own_reason(server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    create_topic(server, topic_name, config=KEEP_OLD_RECORDS)
    produce(server, topic_name, numbered(10, partitions=1))
    in_the_way = tmp_path / f"topic={topic_name}"
    in_the_way.write_text("a file where a folder is needed")

    result = run_pipeline("archive", server, "--topics", topic_name, "--to", str(tmp_path))

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith(f"barnabas pipeline: {in_the_way}/day=")
    assert "not a directory" in result.stderr.splitlines()[-1]
    assert not read_archive(tmp_path)
