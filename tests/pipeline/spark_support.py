"""What the Spark tests share: the pipeline command as a process of its own, records to archive, and plain readers of archives.

The connector's jars are fetched once per machine into the tests' cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pipeline.driver import Driver
from pipeline.session import open_session
from tests.support.messages import Message
from tests.support.process import ServerProcess, cache_dir
from tests.support.requirements import needs
from tests.support.secured_cluster import Endpoint

INSTALL_JAVA = "sudo apt-get install -y openjdk-17-jdk-headless maven"
COMMAND_TIMEOUT_S = 300
FLUSH_TIMEOUT_S = 60
CHECKOUT = Path(__file__).resolve().parents[2]
MASTER = "local[2]"
DRIVER_MEMORY = "spark.driver.memory=1g"
# 200 shuffle tasks, the default, take longer than all the tests' data.
SESSION_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # To compile a plan takes longer than to run it on so few rows. What tests run as a command, and the documentation's examples, compile.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.pollingDelay": "100ms",  # an idle query asks the source for its ends every 10 ms otherwise
}


def needs_java() -> pytest.MarkDecorator:
    """The marker of tests that run Spark."""
    return needs(None if shutil.which("java") else f"Spark needs Java 17; install it with: {INSTALL_JAVA}")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One session for a module: a start takes about 5 s."""
    session = open_session("tests", master=MASTER, settings=SESSION_SETTINGS, cache_dir=cache_dir() / "barnabas")
    yield session
    session.stop()


def delta_session(driver: Driver | None = None) -> SparkSession:
    """One that knows Delta tables, of which small ones need few tasks. Java needs Delta's jars at its start: `driver` starts one."""
    small = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.stats.collect": "false",
    }
    settings = {**SESSION_SETTINGS, **small}
    return open_session("tests", master=MASTER, settings=settings, cache_dir=cache_dir() / "barnabas", with_delta=True, driver=driver)


def kafka_options(endpoint: Endpoint) -> dict[str, str]:
    """Of Spark's source and sink: a Java client's properties, each after `kafka.`."""
    return {f"kafka.{name}": value for name, value in endpoint.java.items()}


def pipeline_command(command: str, server: ServerProcess, *arguments: str, master: str = MASTER) -> list[str]:
    program = [sys.executable, "-m", "broker.cli.main", "pipeline", command]
    return [*program, "--bootstrap-servers", server.bootstrap, "--master", master, "--conf", DRIVER_MEMORY, *arguments]


def run_pipeline(
    command: str, server: ServerProcess, *arguments: str, master: str = MASTER, folder: Path = CHECKOUT
) -> subprocess.CompletedProcess[str]:
    """Runs `barnabas pipeline …` in that current folder to its end; the exit status is the caller's to check."""
    line = pipeline_command(command, server, *arguments, master=master)
    return subprocess.run(
        line,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        start_new_session=True,
    )


def run_jobs(file: Path) -> subprocess.CompletedProcess[str]:
    """Runs `barnabas pipeline run FILE.toml` to its end, all jobs in one session; the exit status is the caller's to check."""
    return subprocess.run(
        [sys.executable, "-m", "broker.cli.main", "pipeline", "run", str(file)],
        cwd=CHECKOUT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        start_new_session=True,
    )


def start_pipeline(command: str, server: ServerProcess, *arguments: str) -> subprocess.Popen[str]:
    """Starts it in a process group of its own, which `kill_group` ends with all its JVMs."""
    line = pipeline_command(command, server, *arguments)
    return subprocess.Popen(
        line, cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def environment() -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(cache_dir()), "PYTHONPATH": str(CHECKOUT)}


def kill_group(process: subprocess.Popen[str]) -> None:
    """kill -9 for the driver's Python and its JVM at once; returns when the first is gone."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended by itself
    process.wait()


def produce(server: ServerProcess, topic: str, messages: Sequence[Message]) -> None:
    """Sends all with acks=all and returns when all are acked."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for message in messages:
        options = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
        producer.produce(
            topic,
            key=message.key,
            value=message.value,
            partition=message.partition,
            headers=list(message.headers),
            on_delivery=lambda error, _: errors.append(error) if error else None,
            **options,
        )
        producer.poll(0)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    assert not errors, errors[:3]


def read_archive(archive: Path) -> pa.Table:
    """The archive as a reader sees it that knows nothing of Spark."""
    if not any(archive.glob("topic=*/day=*/*.parquet")):
        return pa.table({name: [] for name in ("topic", "partition", "offset")})
    partitioning = ds.partitioning(pa.schema([("topic", pa.string()), ("day", pa.string())]), flavor="hive")
    return ds.dataset(archive, partitioning=partitioning).to_table()


def positions(table: pa.Table) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of every row, sorted: equal to what was sent when each record is there once."""
    return sorted(zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True))


def unsorted_files(archive: Path) -> Iterator[Path]:
    """The files whose rows are not in the order of partition and offset."""
    for path in sorted(archive.glob("topic=*/day=*/*.parquet")):
        table = pq.ParquetFile(path).read(columns=["partition", "offset"])
        order = list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        if order != sorted(order):
            yield path
