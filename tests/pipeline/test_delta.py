"""Archives that are Delta tables, as Delta itself reads them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas.spark.archives.compaction import compact
from barnabas.spark.archives.local_files import LocalFiles
from barnabas.spark.archives.reading import ArchiveError
from barnabas.spark.archives.replay import replay
from barnabas.spark.archives.verification import verify
from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.connector import ConnectorError, delta_coordinates
from pipeline.decoding import Decoding
from pipeline.driver import Driver
from pipeline.publication import PublicationError
from pipeline.status import read_status
from tests.clients.topics import create_topic
from tests.pipeline.spark_support import delta_session, environment, produce
from tests.support.messages import Message
from tests.support.process import ServerProcess
from tests.support.sources import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DRIVER_TIMEOUT_S = 300
KAFKA = {"kafka.bootstrap.servers": "localhost:1"}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """In a Java process of its own; that of the modules before and after waits meanwhile."""
    others = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    driver = Driver()
    session = delta_session(driver)
    yield session
    session.stop()
    driver.end()
    SparkContext._gateway, SparkContext._jvm = others


def table(spark: SparkSession, path: Path) -> list[tuple[int, int]]:
    """Partition and offset of each row, sorted."""
    return sorted((row["partition"], row["offset"]) for row in spark.read.format("delta").load(str(path)).collect())


def commits(path: Path) -> int:
    """How many of Delta's commits have added rows."""
    return sum('"add":' in log.read_text() for log in (path / "_delta_log").glob("*.json"))


def test_a_batch_is_in_the_table_once_though_the_driver_is_killed_after_delta_s_commit(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """And its dead letters. Then the checkpoint loses the last batch, as after a power cut, and plans it otherwise: that is refused."""
    create_topic(server, topic_name)
    schema, target = tmp_path / "order.ddl", tmp_path / "archive"
    schema.write_text("id BIGINT")
    produce(server, topic_name, [Message(0, None, value) for value in (b'{"id":1}', b"nonsense", b'{"id":3}')])
    job = ArchiveJob(
        server.bootstrap,
        ("subscribe", topic_name),
        os.path.relpath(target),
        is_delta_table=True,
        decoding=Decoding.open({"value": f"json:{schema}"}),
    )

    program = [sys.executable, "-m", "tests.pipeline.delta_driver", server.bootstrap, topic_name, str(target), str(schema)]
    log = tmp_path / "driver.log"  # a pipe would be open as long as a process of Spark's that was spared
    with log.open("wb") as output:
        driver = subprocess.run(
            program,
            cwd=tmp_path,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=DRIVER_TIMEOUT_S,
            check=False,
            process_group=0,
        )
    assert driver.returncode == -signal.SIGKILL, log.read_text()[-2000:]
    had_warehouse = Path("spark-warehouse").exists()
    assert not list((target / "_checkpoint" / "commits").glob("[0-9]*")) and commits(target) == 1
    archive(spark, job, stop=Stop(), say=print)
    assert commits(target) == 1 and Path("spark-warehouse").exists() == had_warehouse
    produce(server, topic_name, [Message(0, None, b'{"id":4}')])
    archive(spark, job, stop=Stop(), say=print)

    assert table(spark, target) == [(0, 0), (0, 2), (0, 3)]
    assert table(spark, target / "_dead_letters") == [(0, 1)]
    assert (commits(target), commits(target / "_dead_letters")) == (2, 1)
    ids = spark.read.format("delta").load(str(target)).where("day > '2020-01-01'").select("typed_value.id").collect()
    assert sorted(row[0] for row in ids) == [1, 3, 4]

    for lost in (target / "_checkpoint").glob("*/*1*"):  # the notes of batch 1, and their checksums
        lost.unlink()
    produce(server, topic_name, [Message(0, None, b'{"id":5}')])
    with pytest.raises(PublicationError, match=r"has batch 1 already, and the checkpoint .* planned it otherwise"):
        archive(spark, job, stop=Stop(), say=print)
    assert table(spark, target) == [(0, 0), (0, 2), (0, 3)]


def test_the_example_of_the_documentation_appends_a_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "pipeline.md").read_text()
    (example,) = re.findall(r"^    import barnabas\.spark\n\n    def append\(.*\n(?:    .*\n|\n(?=    ))+", text, re.MULTILINE)
    for name in ("orders-table", "checkpoints"):  # Java's current folder is not to be changed
        example = example.replace(f'"{name}', f'"{tmp_path}/{name}')
    rows, path = spark.range(3), str(tmp_path / "orders-table")
    rows.write.parquet(str(tmp_path / "orders"))
    names: dict[str, Any] = {"orders": spark.readStream.schema(rows.schema).parquet(str(tmp_path / "orders"))}

    exec(textwrap.dedent(example), names)
    query: StreamingQuery = names["query"]
    query.processAllAvailable()
    query.stop()
    append: Callable[[DataFrame, int], None] = names["append"]
    append(rows, 0)  # Spark has not noted the batch's end, and runs it again

    assert spark.read.format("delta").load(path).count() == 3
    append(rows, 1)
    assert spark.read.format("delta").load(path).count() == 6


def test_the_jobs_of_archives_of_parquet_files_refuse_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Beside its files are those that are no part of it any more."""
    (tmp_path / "_delta_log").mkdir()
    jobs: list[Callable[[], object]] = [
        lambda: read_status(LocalFiles(), str(tmp_path), None, None),
        lambda: verify(spark, str(tmp_path), KAFKA),
        lambda: compact(spark, str(tmp_path)),
        lambda: replay(spark, str(tmp_path), "orders", KAFKA, id="again"),
    ]
    for run in jobs:
        with pytest.raises(ArchiveError, match=r"is a Delta table, .*: \w+ is for archives of Parquet files$"):
            run()


def test_a_version_of_pyspark_without_a_delta_that_is_known_is_refused() -> None:
    assert delta_coordinates("4.0.1") == "io.delta:delta-spark_2.13:4.0.0"
    with pytest.raises(ConnectorError, match=r"for pyspark 4\.1\.0 is not known here: give it and delta-storage by --jars"):
        delta_coordinates("4.1.0")
