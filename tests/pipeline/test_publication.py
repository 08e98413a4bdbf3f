"""A batch's way into the archive, broken off at every file operation: what readers see then, and after the next run."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.hadoop_files import HadoopFiles
from pipeline.publication import PublicationError, Publisher
from tests.pipeline.spark_support import positions, read_archive

pytestmark = [pytest.mark.spark]

OPERATIONS_LIMIT = 200
ROWS = [("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)]
Position = tuple[str, int, int]
DEAD_LETTERS = [("a", 0, 2), ("c", 0, 0)]


class CrashError(Exception):
    """Stands for kill -9 just before a file operation."""


class CrashingFiles(HadoopFiles):
    """Real files that stop working after a number of changes; every change is followed by a look of a reader."""

    def __init__(self, spark: SparkSession, root: Path, *, changes: int) -> None:
        super().__init__(spark, str(root))
        self._changes_left = changes
        self._archive = root

    def move(self, source: str, target: str) -> None:
        self._change()
        super().move(source, target)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)

    def make_directories(self, path: str) -> None:
        self._change()
        super().make_directories(path)

    def _change(self) -> None:
        assert_no_doubles(self._archive)
        if self._changes_left == 0:
            raise CrashError
        self._changes_left -= 1


def assert_no_doubles(archive: Path) -> None:
    for place in (archive, archive / "_dead_letters"):
        assert max(Counter(positions(read_archive(place))).values(), default=1) == 1


def plan(archive: Path, batch_id: int, end: str) -> None:
    """What Spark's checkpoint holds before it runs a batch."""
    log = archive / "_checkpoint" / "offsets" / str(batch_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f'v1\n{{"batchTimestampMs":{batch_id}}}\n{end}')


def commit(archive: Path, batch_id: int) -> None:
    log = archive / "_checkpoint" / "commits" / str(batch_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("v1\n{}")


def write_rows(folder: str, rows: list[tuple[str, int, int]]) -> None:
    """Writes as Spark does: a file per topic, day and task; here a task is a partition."""
    for (topic, partition), group in itertools.groupby(rows, key=lambda row: row[:2]):
        target = Path(folder) / f"topic={topic}" / "day=2026-03-01"
        target.mkdir(parents=True, exist_ok=True)
        offsets = [row[2] for row in group]
        table = pa.table({"partition": pa.array([partition] * len(offsets)), "offset": pa.array(offsets)})
        pq.write_table(table, target / f"part-{partition:05d}-0a0b.c000.snappy.parquet")
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / "_SUCCESS").touch()


def publish(
    files: HadoopFiles,
    archive: Path,
    batch_id: int,
    rows: list[tuple[str, int, int]],
    dead_letters: list[tuple[str, int, int]] = DEAD_LETTERS,
) -> None:
    def write(folder: str) -> None:
        write_rows(folder, rows)
        write_rows(f"{folder}/_dead_letters", dead_letters)

    publisher = Publisher(files, str(archive), Checkpoint(files, str(archive / "_checkpoint")))
    publisher.open()
    publisher.publish(batch_id, write)


def test_crash_before_any_change_ends_in_every_record_once_after_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    for changes in range(OPERATIONS_LIMIT):
        archive = tmp_path / str(changes)
        plan(archive, 0, '{"a":{"0":2,"1":1}}')
        try:
            publish(CrashingFiles(spark, archive, changes=changes), archive, 0, ROWS)
            break
        except CrashError:
            publish(CrashingFiles(spark, archive, changes=OPERATIONS_LIMIT), archive, 0, ROWS)
        assert positions(read_archive(archive)) == ROWS
        assert positions(read_archive(archive / "_dead_letters")) == DEAD_LETTERS
    assert changes > 5


def test_batch_run_again_after_it_was_published_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    plan(tmp_path, 0, '{"a":{"0":2}}')
    publish(files, tmp_path, 0, ROWS)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("topic=*/day=*/*")}

    publish(files, tmp_path, 0, ROWS)

    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("topic=*/day=*/*")} == before


def test_batch_planned_anew_replaces_what_the_old_plan_published(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    plan(tmp_path, 0, '{"a":{"0":2}}')
    publish(files, tmp_path, 0, ROWS)
    plan(tmp_path, 0, '{"a":{"0":9}}')

    publish(files, tmp_path, 0, [*ROWS, ("b", 0, 1)], [("d", 0, 0)])

    assert positions(read_archive(tmp_path)) == [*ROWS, ("b", 0, 1)]
    assert positions(read_archive(tmp_path / "_dead_letters")) == [("d", 0, 0)]


def test_a_batch_of_dead_letters_alone_belongs_to_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    plan(tmp_path, 0, '{"c":{"0":1}}')
    publish(files, tmp_path, 0, [], DEAD_LETTERS)
    commit(tmp_path, 0)

    topics = Publisher(files, str(tmp_path), Checkpoint(files, str(tmp_path / "_checkpoint"))).open()

    assert topics == {"a", "c"}


def test_attempt_of_a_killed_driver_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    plan(tmp_path, 0, '{"a":{"0":2}}')

    def killed(folder: str) -> None:
        write_rows(folder, ROWS)
        raise CrashError

    publisher = Publisher(files, str(tmp_path), Checkpoint(files, str(tmp_path / "_checkpoint")))
    with pytest.raises(CrashError):
        publisher.publish(0, killed)
    publish(files, tmp_path, 0, ROWS)

    assert positions(read_archive(tmp_path)) == ROWS
    (decision,) = (tmp_path / "_staging").iterdir()
    assert decision.is_file()


def test_checkpoint_that_is_older_than_the_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(spark, str(tmp_path))
    for batch_id in range(2):
        plan(tmp_path, batch_id, f'{{"a":{{"0":{batch_id}}}}}')
        publish(files, tmp_path, batch_id, [("a", 0, batch_id)])
        commit(tmp_path, batch_id)
    for log in (tmp_path / "_checkpoint").glob("*/*"):
        log.unlink()

    with pytest.raises(PublicationError, match="ends before batch 0"):
        publish(files, tmp_path, 0, [("a", 0, 0)])


def test_checkpoint_of_another_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It has committed a batch that this archive does not hold: what came before it would be missing."""
    files = HadoopFiles(spark, str(tmp_path))
    plan(tmp_path, 0, '{"a":{"0":2}}')
    commit(tmp_path, 0)
    plan(tmp_path, 1, '{"a":{"0":3}}')

    with pytest.raises(PublicationError, match=r"ends with batch 0, which .* does not hold"):
        publish(files, tmp_path, 1, ROWS)


def test_new_checkpoint_for_an_archive_of_one_batch_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The batch would be taken for an attempt of the new checkpoint's first one, and deleted."""
    files = HadoopFiles(spark, str(tmp_path))
    plan(tmp_path, 0, '{"a":{"0":2}}')
    publish(files, tmp_path, 0, ROWS)

    with pytest.raises(PublicationError, match="is a new one"):
        Publisher(files, str(tmp_path), Checkpoint(files, str(tmp_path / "_other"))).open()

    assert positions(read_archive(tmp_path)) == ROWS
