"""`compact`, broken off at each of its steps: what readers see then, and after the next run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives import compaction
from barnabas.spark.archives.changes import compacting
from barnabas.spark.archives.compaction import Compacted, compact
from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.manifest import read_manifest
from barnabas.spark.archives.reading import ArchiveError
from tests.pipeline.job_kills import kills
from tests.pipeline.made_archive import DAY, write_file
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper
from tests.pipeline.spark_support import needs_java, positions, read_archive, unsorted_files

pytestmark = [pytest.mark.spark, needs_java()]

FILES, RECORDS = 6, 3
EXPECTED = sorted(("orders", 0, number) for number in range(FILES * RECORDS))
LAST = FILES - 1
KILLS = (kills.Kill("compact:linked"), kills.Kill("compact:exchanged"), kills.Kill("compact:hidden", skipped=1, moves=True))
Step = Callable[[str], None]


class CrashError(Exception):
    """Stands for kill -9 at a step."""


def make_archive(archive: Path) -> None:
    """A file for each of FILES batches, the last of which is the newest decision."""
    for batch in range(FILES):
        write_file(archive, "orders", [(0, batch * RECORDS + number) for number in range(RECORDS)], batch=batch)
    decision = archive / "_staging" / f"batch-{LAST:012d}-0123456789ab"
    decision.parent.mkdir()
    decision.write_text("attempt")


def without_exchange(first: str, second: str) -> None:
    raise OSError(22, "as on a file system that cannot do it")


def data_files(archive: Path) -> list[str]:
    return sorted(path.name for path in archive.glob("topic=*/day=*/*.parquet"))


def crash_at(wanted: int, archive: Path) -> Step:
    """A crash at the step of that number; no reader may see a record twice at any of them."""
    seen: list[str] = []

    def step(name: str) -> None:
        assert max(Counter(positions(read_archive(archive))).values()) == 1, f"a reader sees records twice when {name}"
        if len(seen) == wanted:
            raise CrashError
        seen.append(name)

    return step


def test_small_files_of_a_day_become_one_but_for_the_newest_batch_s(spark: SparkSession, tmp_path: Path) -> None:
    make_archive(tmp_path)
    done: list[Compacted] = []

    compact(spark, str(tmp_path), say=done.append)

    assert done == [Compacted("orders", DAY, FILES - 1, 1, (FILES - 1) * RECORDS)]
    first, second = data_files(tmp_path)
    assert first == f"batch-{LAST:012d}-0123456789ab-00000000.parquet" and second.startswith("compact-")
    assert positions(read_archive(tmp_path)) == EXPECTED and not list(unsorted_files(tmp_path))
    assert (read_manifest(HadoopFiles(spark, str(tmp_path)), str(tmp_path / "topic=orders" / f"day={DAY}")) or {}).keys() == {second}
    assert not list((tmp_path / "_compaction").iterdir())
    assert compact(spark, str(tmp_path)) == [], "there is nothing left to do"


def test_days_that_are_too_young_and_files_that_are_large_stay(spark: SparkSession, tmp_path: Path) -> None:
    make_archive(tmp_path)
    before = data_files(tmp_path)

    assert compact(spark, str(tmp_path), before_day=DAY) == []
    assert compact(spark, str(tmp_path), target_bytes=100) == []
    assert data_files(tmp_path) == before


@pytest.mark.parametrize("way", ["exchange", "moves"])
def test_crash_at_any_step_shows_nothing_twice_and_the_next_run_mends_it(
    spark: SparkSession, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an exchange there is no moment either in which a reader misses a record."""
    if way == "moves":
        monkeypatch.setattr(compaction, "exchange", without_exchange)
    for number in range(30):
        archive = tmp_path / str(number)
        make_archive(archive)
        try:
            compact(spark, str(archive), step=crash_at(number, archive))
            break
        except CrashError:
            if way == "exchange":
                assert positions(read_archive(archive)) == EXPECTED
            compact(spark, str(archive), step=crash_at(30, archive))
        assert positions(read_archive(archive)) == EXPECTED
        assert len(data_files(archive)) == 2 and not list((archive / "_compaction").iterdir())
    assert number == {"exchange": 3, "moves": 10}[way]


def test_reader_that_runs_all_the_time_never_sees_a_record_twice(spark: SparkSession, tmp_path: Path) -> None:
    """It may find files gone that it has listed: then it lists again."""
    make_archive(tmp_path)
    ended = threading.Event()
    most: list[int] = []

    def read() -> None:
        while not ended.is_set():
            try:
                found = positions(read_archive(tmp_path))
            except (FileNotFoundError, pa.ArrowException):
                continue
            most.append(max(Counter(found).values(), default=0))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        compact(spark, str(tmp_path))
    finally:
        ended.set()
        reader.join()

    assert set(most) <= {0, 1} and len(most) > 1
    assert positions(read_archive(tmp_path)) == EXPECTED


def test_kill_9_of_the_command_at_a_step_leaves_nothing_twice_and_the_next_run_mends_it(spark: SparkSession, tmp_path: Path) -> None:
    """Of Python and JVM at once. The first three runs exchange folders; the others move files, as other file systems need it."""
    archive = tmp_path / "archive"
    expected = kills.make_archive(archive)
    keeper, reader = GateKeeper(), kills.Reader(archive)
    try:
        for kill in KILLS:
            kills.run_and_kill(keeper, kill, tmp_path, ["compact", str(archive), "--master", "local[1]"])
            if not kill.moves:
                assert positions(read_archive(archive)) == expected
        compact(spark, str(archive))
    finally:
        reader.finish()
        keeper.close()

    assert reader.problems == [] and reader.count > len(KILLS)
    assert kills.problems_of(archive, expected) == []
    assert [len(list(folder.glob("*.parquet"))) for folder in sorted(archive.glob("topic=*/day=*"))] == [1, 1, 2]


def test_files_that_archiving_adds_meanwhile_stay(spark: SparkSession, tmp_path: Path) -> None:
    make_archive(tmp_path)
    late = [("orders", 1, 0)]

    def step(name: str) -> None:
        if name == "written":
            write_file(tmp_path, "orders", [(1, 0)], batch=LAST + 1)

    compact(spark, str(tmp_path), step=step)

    assert positions(read_archive(tmp_path)) == sorted(EXPECTED + late)


def test_second_compaction_and_a_missing_archive_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    make_archive(tmp_path)

    with compacting(str(tmp_path)), pytest.raises(ArchiveError, match="another job compacts"):
        compact(spark, str(tmp_path))
    with pytest.raises(ArchiveError, match="does not exist"):
        compact(spark, str(tmp_path / "nothing"))
