"""`replay` by the sink: each record once with its own timestamp, by offset and time, and on from where a killed run was."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import barnabas.spark
from barnabas.spark.archives.reading import ArchiveError
from barnabas.spark.archives.replay import Selection, replay
from barnabas.spark.errors import BarnabasError, OptionError
from pipeline.session import open_session
from tests.clients.topics import create_topic
from tests.pipeline.job_kills import kills
from tests.pipeline.made_archive import DAY, TIME_MS, value_of, write_file
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper
from tests.pipeline.sink_campaign.gated_sink import DEADLINE_S
from tests.pipeline.spark_support import CHECKOUT, MASTER, SESSION_SETTINGS, needs_java, produce
from tests.support.messages import Message
from tests.support.process import ServerProcess, cache_dir
from tests.support.sources import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

MODULES = CHECKOUT / "barnabas" / "spark" / "modules"
PATIENCE_S = 120
WIDTH = 10
"""Offsets of each partition in a step."""
RECORDS = 25


KILLS = (kills.Kill("task:flushed", skipped=1), kills.Kill("commit:decided"))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Its Python workers find the package and the data source in this checkout."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", f"{CHECKOUT}{os.pathsep}{MODULES}")
    barnabas.spark.prepare()
    session = open_session("replays", master=MASTER, settings=SESSION_SETTINGS, cache_dir=cache_dir() / "barnabas")
    yield session
    session.stop()
    patch.undo()


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Two partitions; the files of partition 0 are in the wrong order."""
    write_file(tmp_path, "orders", [(0, number) for number in range(12, RECORDS)], batch=0)
    write_file(tmp_path, "orders", [(0, number) for number in range(12)], batch=1)
    write_file(tmp_path, "orders", [(1, number) for number in range(5, RECORDS)], batch=1, number=1)
    return str(tmp_path)


@pytest.fixture
def target(server: ServerProcess, topic_name: str) -> str:
    create_topic(server, topic_name, partitions=2, config={"retention.ms": "-1"})
    return topic_name


def run(spark: SparkSession, server: ServerProcess, archive: str, topic: str, **settings: object) -> int:
    selection = Selection("orders", **{key: settings.pop(key) for key in tuple(settings) if key.startswith(("from_", "to_"))})  # type: ignore[arg-type]
    kafka = {"kafka.bootstrap.servers": server.bootstrap}
    return replay(spark, archive, topic, kafka, id=topic, selection=selection, records_per_step=2 * WIDTH, **settings)  # type: ignore[arg-type]


def originals(partition: int, first: int, end: int = RECORDS) -> list[tuple[bytes, int]]:
    return [(value_of(partition, number), TIME_MS) for number in range(first, end)]


def test_kill_9_of_the_command_within_a_step_leaves_each_record_once_in_order_with_its_timestamp(
    spark: SparkSession, server: ServerProcess, target: str, archive: str, tmp_path: Path
) -> None:
    """Of Python, JVM and workers at once: with a transaction written, and with all of a step decided and none of them committed. What is
    archived meanwhile is not of this replay, and a run after the last has nothing to do."""
    keeper = GateKeeper()
    words = kills.replay_words(server, archive, target, records_per_step=2 * WIDTH)
    try:
        for kill in KILLS:
            kills.run_and_kill(keeper, kill, tmp_path / "kills", words)
            seen = [kills.read_committed(server, target, partition) for partition in (0, 1)]
            assert seen == [originals(0, 0)[: len(seen[0])], originals(1, 5)[: len(seen[1])]]
    finally:
        keeper.close()
    write_file(Path(archive), "orders", [(0, RECORDS)], batch=2)

    for _ in range(2):
        assert run(spark, server, archive, target) == 2 * RECORDS - 5

    assert [kills.read_committed(server, target, partition) for partition in (0, 1)] == [originals(0, 0), originals(1, 5)]
    assert kills.open_transactions(server) == []
    with pytest.raises(ArchiveError, match="was begun with other options"):
        run(spark, server, archive, target, from_offset=3)


def test_replay_whose_broker_goes_away_says_how_far_it_is_and_goes_on(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, archive: str, tmp_path: Path
) -> None:
    create_topic(own_server, topic_name, partitions=2, config={"retention.ms": "-1"})
    keeper = GateKeeper()
    words = kills.replay_words(own_server, archive, topic_name, records_per_step=2 * WIDTH)
    try:
        with kills.held(keeper, kills.Kill("replay:step"), tmp_path / "kills", words, **{DEADLINE_S: "2"}) as (process, visitor):
            own_server.kill()
            visitor.let_go()
            exit_code = process.wait(PATIENCE_S)
    finally:
        keeper.close()
    said = (tmp_path / "kills" / "killed.log").read_text().splitlines()

    assert exit_code == 1
    go_on = f"once the cause is gone, go on by the same command with --id {topic_name}"
    assert said[-2] == f"barnabas pipeline: 1 of 3 steps are written; {go_on}"
    assert "did not succeed within 2 s: no broker answers" in said[-1]
    assert "Traceback" not in "".join(said)
    own_server.start()
    assert run(spark, own_server, archive, topic_name) == 2 * RECORDS - 5
    assert [kills.read_committed(own_server, topic_name, partition) for partition in (0, 1)] == [originals(0, 0), originals(1, 5)]


def test_offsets_choose_and_timestamps_can_be_new(spark: SparkSession, server: ServerProcess, target: str, archive: str) -> None:
    assert run(spark, server, archive, target, from_offset=3, to_offset=7, to_ms=TIME_MS + 1, timestamps="now") == 6

    (first, second) = (kills.read_committed(server, target, partition) for partition in (0, 1))
    assert [value for value, _ in first] == [value_of(0, number) for number in range(3, 7)]
    assert [value for value, _ in second] == [value_of(1, 5), value_of(1, 6)]
    assert min(time_ms for _, time_ms in first + second) > TIME_MS


def test_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, server: ServerProcess, target: str, archive: str
) -> None:
    with pytest.raises(ArchiveError, match="holds no such records"):
        run(spark, server, archive, target, to_ms=TIME_MS)
    write_file(Path(archive), "orders", [(2, 0)], batch=3)
    with pytest.raises(ArchiveError, match="has 2 partitions, and the archive's records need 3"):
        run(spark, server, archive, target)
    with pytest.raises(ArchiveError, match="does not exist"):
        run(spark, server, archive, f"{target}-missing")
    with pytest.raises(BarnabasError, match=r"unknown option 'kafka\.linger\.ms'"):
        replay(spark, archive, target, {"kafka.bootstrap.servers": server.bootstrap, "kafka.linger.ms": "1"}, id="x")

    assert kills.read_committed(server, target, 0) == []


def test_the_example_of_the_documentation_verifies_compacts_and_replays(
    spark: SparkSession, server: ServerProcess, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The topic has what the archive has, which begins at offset 5 of partition 1, and two records more. The session is one whose settings
    are not the pipeline's."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "America/New_York")
    own.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", True)
    decision = Path(archive) / "_staging" / "batch-000000000002-0123456789ab"
    decision.parent.mkdir()
    decision.touch()  # batches 0 and 1 are done
    for topic in ("orders", "orders-again"):
        create_topic(server, topic, partitions=2, config={"retention.ms": "-1"})
    sent = [Message(partition, None, value_of(partition, number), (), TIME_MS) for partition in (0, 1) for number in range(RECORDS + 1)]
    produce(server, "orders", sent)
    text = (ROOT / "docs" / "pipeline.md").read_text()
    (example,) = re.findall(r"^    from datetime import UTC, datetime\n\n    import barnabas\.spark\n\n(?:    .*\n)+", text, re.MULTILINE)
    example = example.replace('"one:9092,two:9092"', repr(server.bootstrap)).replace('"archive"', repr(archive))

    exec(textwrap.dedent(example), {"spark": own})

    assert capsys.readouterr().out == f"True {{}} []\norders {DAY} 3 1\n"
    assert [kills.read_committed(server, "orders-again", partition) for partition in (0, 1)] == [originals(0, 0), originals(1, 5)]
    (merged,) = Path(archive).glob("topic=*/day=*/*.parquet")
    assert pq.ParquetFile(merged).schema_arrow.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_a_time_without_a_zone_is_utc_and_a_size_without_a_byte_is_refused(
    spark: SparkSession, server: ServerProcess, target: str, archive: str
) -> None:
    kafka, begin = {"kafka.bootstrap.servers": server.bootstrap}, datetime.fromtimestamp(TIME_MS / 1000, UTC)
    late = begin + timedelta(milliseconds=1)

    with pytest.raises(ArchiveError, match="holds no such records"):
        barnabas.spark.replay(spark, archive, target, kafka, id=target, source_topic="orders", from_time=late.replace(tzinfo=None))
    with pytest.raises(ArchiveError, match="holds no such records"):
        barnabas.spark.replay(spark, archive, target, kafka, id=target, source_topic="orders", to_time=begin)
    with pytest.raises(OptionError, match="target_bytes is 0: a file has at least one byte"):
        barnabas.spark.compact(spark, archive, target_bytes=0)
