"""`verify`: what is wrong with an archive is found by offset or by file, and nothing else is."""

from __future__ import annotations

import json
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.archives import compaction, verification
from barnabas.spark.archives.compaction import Compacted, compact
from barnabas.spark.archives.reading import ArchiveError
from barnabas.spark.archives.verification import Finding, Verification, verify
from pipeline.archive import ArchiveJob, Stop
from pipeline.archive import archive as archive_topics
from pipeline.cli import parser
from pipeline.findings import findings_json, findings_lines
from tests.clients.topics import create_topic
from tests.pipeline.job_kills.gated_command import without_exchange
from tests.pipeline.spark_support import needs_java, produce
from tests.support.messages import Message
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

TIMEOUT_S = 120
BEFORE, WITHIN = 40, 60
"""Records of each partition before the transaction that is aborted, and behind it."""


@pytest.fixture(scope="module")
def topic(server: ServerProcess) -> str:
    """Two partitions with headers, tombstones and, in partition 0, an aborted transaction and markers."""
    name = "verified"
    create_topic(server, name, partitions=2)
    send(server, name, BEFORE)
    aborting = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "verified-aborting"})
    aborting.init_transactions()
    aborting.begin_transaction()
    aborting.produce(name, b"never", partition=0)
    aborting.abort_transaction()
    send(server, name, WITHIN)
    return name


def send(server: ServerProcess, topic: str, count: int) -> None:
    messages = [
        Message(partition, b"k" if i % 3 else None, b"v%d" % i if i % 5 else None, (("h", None), ("h", b"%d" % i)) * (i % 2))
        for i in range(count)
        for partition in (0, 1)
    ]
    produce(server, topic, messages)


@pytest.fixture(scope="module")
def original(spark: SparkSession, server: ServerProcess, topic: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In several batches, with a file for each partition in each."""
    folder = tmp_path_factory.mktemp("original") / "archive"
    job = ArchiveJob(server.bootstrap, ("subscribe", topic), str(folder), records_per_batch_limit=70)
    archive_topics(spark, job, stop=Stop(), say=print)
    return folder


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "archive"))


def verified(
    spark: SparkSession, server: ServerProcess, archive: Path, *, source: str = "kafka", say: Callable[[str], None] = print
) -> Verification:
    return verify(spark, str(archive), {"kafka.bootstrap.servers": server.bootstrap}, source=source, say=say)


def files_with(archive: Path, partition: int, offset: int) -> Iterator[Path]:
    for path in sorted(archive.glob("topic=*/day=*/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        if (partition, offset) in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            yield path


def rewrite(path: Path, table: object) -> None:
    """Another content, of which the folder's list does not know the size: such damage is found in the records."""
    pq.write_table(table, path)
    (path.parent / "_files").unlink(missing_ok=True)


def test_whole_archive_has_no_findings(spark: SparkSession, server: ServerProcess, archive: Path) -> None:
    found = verified(spark, server, archive)

    assert (found.is_whole, found.matching, found.deleted, found.absent, found.findings) == (True, 2 * (BEFORE + WITHIN), 0, 0, [])
    assert findings_lines(found, "a") == ["a: 200 records as in the topics; nothing is wrong"]


def test_records_that_differ_are_twice_or_missing_are_found_by_offset(
    spark: SparkSession, server: ServerProcess, topic: str, archive: Path
) -> None:
    """In partition 0: a value changed to null at 5, 7 to 9 left out, 11 written twice; what only the archive has is counted."""
    (path,) = files_with(archive, 0, 5)
    rows = pq.read_table(path, partitioning=None).to_pylist()
    changed = []
    for row in rows:
        at = row["partition"], row["offset"]
        if at == (0, 5):
            row = {**row, "value": b"" if row["value"] is None else None}
        if at not in {(0, 7), (0, 8), (0, 9)}:
            changed += [row] * (2 if at == (0, 11) else 1)
    rewrite(path, pq.read_table(path, partitioning=None).from_pylist(changed, pq.read_schema(path)))

    found = verified(spark, server, archive)

    assert found.counts == {"missing": 3, "twice": 1, "differs": 1} and found.matching == 2 * (BEFORE + WITHIN) - 5
    assert found.findings == [
        Finding("differs", topic, 0, 5, 5, 1), Finding("missing", topic, 0, 7, 9, 3), Finding("twice", topic, 0, 11, 11, 1),
    ]  # fmt: skip
    assert json.loads(findings_json(found))["counts"] == found.counts
    assert findings_lines(found, "a")[2].split() == ["missing", topic, "0", "7", "to", "9", "3"]


def test_files_that_are_lost_cut_or_unreadable_are_named(spark: SparkSession, server: ServerProcess, topic: str, archive: Path) -> None:
    """One is gone, one has no end, and one has another byte in the middle of a page, which only its checksum shows."""
    (lost,), (cut,), (spoilt,) = (list(files_with(archive, partition, offset)) for partition, offset in ((0, 0), (0, 95), (1, 0)))
    lost.unlink()
    cut.write_bytes(cut.read_bytes()[:-9])
    data = bytearray(spoilt.read_bytes())
    data[40] ^= 0xFF
    spoilt.write_bytes(data)

    found = verified(spark, server, archive)

    of_files = {(each.kind, each.file) for each in found.findings if each.file}
    assert of_files == {
        ("file missing", str(lost)), ("file cut", str(cut)), ("file unreadable", str(cut)), ("file unreadable", str(spoilt)),
    }  # fmt: skip
    assert found.counts["missing"] > 0 and found.matching + found.counts["missing"] == 2 * (BEFORE + WITHIN)


def test_what_the_topic_deletes_is_counted_and_an_older_start_is_no_finding(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """What was never to be archived is no finding. Also by the source without a connector."""
    name, now_ms = f"deleting-{tmp_path.name}", int(time.time() * 1000)
    create_topic(server, name, partitions=1)
    produce(server, name, [Message(0, None, b"early", timestamp_ms=now_ms - 3_600_000)] * 10)
    produce(server, name, [Message(0, None, b"late", timestamp_ms=now_ms)] * 10)
    job = ArchiveJob(server.bootstrap, ("subscribe", name), str(tmp_path / "archive"), start_timestamp_ms=now_ms - 1_800_000)
    archive_topics(spark, job, stop=Stop(), say=print)
    produce(server, name, [Message(0, None, b"not archived yet")] * 5)

    whole = verified(spark, server, tmp_path / "archive", source="barnabas")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_records([TopicPartition(name, 0, 14)])[TopicPartition(name, 0, 14)].result(30)
    deleted = verified(spark, server, tmp_path / "archive")

    assert (whole.is_whole, whole.matching, whole.deleted) == (True, 10, 0)
    assert (deleted.is_whole, deleted.matching, deleted.deleted) == (True, 6, 4)


def test_files_that_compact_replaces_between_listing_and_reading_are_no_finding(
    spark: SparkSession, server: ServerProcess, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, said, compacted = verification.read_records, list[str](), list[Compacted]()

    def list_then_compact(*arguments: Any, **options: Any) -> DataFrame:
        rows = listed(*arguments, **options)
        compacted.extend([] if compacted else compact(spark, str(archive)))
        return rows

    monkeypatch.setattr(verification, "read_records", list_then_compact)
    found = verified(spark, server, archive, say=said.append)

    assert len(compacted) == 1 and compacted[0].files_after == 1
    assert (found.is_whole, found.matching, found.findings) == (True, 2 * (BEFORE + WITHIN), [])
    assert said[1::2] == ["compact has changed the archive's files; they are compared again"]


def test_files_that_compact_has_hidden_while_it_moves_them_are_waited_for(
    spark: SparkSession, server: ServerProcess, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that cannot exchange folders."""
    monkeypatch.setattr(compaction, "exchange", without_exchange)
    hidden, go_on, said = threading.Event(), threading.Event(), list[str]()

    def step(name: str) -> None:
        if name == "hidden":
            hidden.set()
            assert go_on.wait(TIMEOUT_S)

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("compact changes"):
            go_on.set()

    compacting = threading.Thread(target=compact, args=(spark, str(archive)), kwargs={"step": step})
    compacting.start()
    try:
        assert hidden.wait(TIMEOUT_S)
        found = verified(spark, server, archive, say=say)
    finally:
        go_on.set()
        compacting.join()

    assert (found.is_whole, found.matching, found.findings) == (True, 2 * (BEFORE + WITHIN), [])
    assert said[1::2] == ["compact changes the archive's files; once it has ended, they are compared again"]


def test_archiving_and_compaction_go_on_meanwhile_and_nothing_is_found(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """It compares what was archived when it began: more each time."""
    name, target, stop, batches = f"following-{tmp_path.name}", tmp_path / "archive", Stop(), queue.Queue[str]()
    create_topic(server, name, partitions=2)
    send(server, name, 20)

    def say(line: str) -> None:
        if line.startswith("batch "):
            send(server, name, 20)
            batches.put(line)

    job = ArchiveJob(server.bootstrap, ("subscribe", name), str(target), interval_s=0.1)
    archiving = threading.Thread(target=archive_topics, args=(spark, job), kwargs={"stop": stop, "say": say})
    archiving.start()
    try:
        matching = [0]
        for _ in range(2):
            for _ in range(3):
                batches.get(timeout=TIMEOUT_S)
            compacting = threading.Thread(target=compact, args=(spark, str(target)))
            compacting.start()
            found = verified(spark, server, target)
            compacting.join()
            assert (found.findings, found.deleted, found.absent) == ([], 0, 0)
            matching.append(found.matching)
    finally:
        stop.request()
        archiving.join()

    assert matching == sorted(set(matching)) and list(target.glob("topic=*/day=*/compact-*"))
    assert verified(spark, server, target).is_whole


def test_topic_that_was_made_anew_and_a_folder_without_an_archive_are_refused(
    spark: SparkSession, server: ServerProcess, topic: str, archive: Path, tmp_path: Path
) -> None:
    note = archive / "_subscription.json"
    note.write_text(note.read_text().replace(json.loads(note.read_text())["topic_ids"][topic], "BBBBBBBBBBBBBBBBBBBBBB"))
    kafka = {"kafka.bootstrap.servers": server.bootstrap}

    with pytest.raises(ArchiveError, match=f"topic {topic} was deleted and made again"):
        verify(spark, str(archive), kafka)
    with pytest.raises(ArchiveError, match="has no topic other"):
        verify(spark, str(archive), kafka, topics=["other"])
    with pytest.raises(ArchiveError, match="is no archive"):
        verify(spark, str(tmp_path / "nothing"), kafka)


def test_command_prints_findings_and_exits_with_1(server: ServerProcess, archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(archive.glob("topic=*/day=*/*.parquet")).unlink()
    arguments = parser().parse_args(
        ["verify", str(archive), "--bootstrap-servers", server.bootstrap, "--master", "local[2]", "--limit", "1"]
    )

    assert arguments.run(arguments) == 1
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[:2]] == ["kind", "file missing"]
