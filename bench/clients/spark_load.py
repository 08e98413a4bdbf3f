"""Spark's own kafka sink and source as a load, or ours: rows per second of a batch write and of a batch read, in one local session.

`python -m bench.clients.spark_load --format kafka --port 9092 --topic t --rows 1000000` prints one JSON line. Each is run once to warm
the session and then timed. Needs Java; the connector is fetched once per machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from pyspark.sql import SparkSession

import barnabas.spark
from bench.usage import cpu_seconds, tree_cpu_seconds
from pipeline.session import open_session

CHECKOUT = Path(__file__).resolve().parents[2]
MASTER = "local[2]"
VALUE_SIZE = 100  # bytes
SETTINGS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True, slots=True)
class SparkResult:
    sink_rows_per_s: float
    sink_cpu_s_per_million: float
    sink_spark_cpu_s_per_million: float
    source_rows_per_s: float
    source_cpu_s_per_million: float
    source_spark_cpu_s_per_million: float


class Mark(NamedTuple):
    """What the clock and the CPU clocks have shown."""

    time_s: float
    broker_cpu_s: float
    spark_cpu_s: float


def write(session: SparkSession, data_source: str, servers: str, topic: str, rows: int) -> None:
    """`rows` new records with a value of 100 bytes."""
    records = session.range(rows).selectExpr("CAST(id AS STRING) AS key", f"RPAD(CAST(id AS STRING), {VALUE_SIZE}, 'x') AS value")
    writer = records.write.format(data_source).mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def read(session: SparkSession, data_source: str, servers: str, topic: str) -> None:
    """Every record of the topic, thrown away by Spark's sink for such measurements."""
    source = session.read.format(data_source).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    source.load().write.format("noop").mode("overwrite").save()


def run(options: argparse.Namespace) -> SparkResult:
    servers, data_source = f"{options.host}:{options.port}", options.format
    if data_source == "barnabas":
        barnabas.spark.prepare()
        os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (CHECKOUT, CHECKOUT / "barnabas" / "spark" / "modules")))
    cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas-tests" / "barnabas"
    session = open_session("bench", master=MASTER, settings=SETTINGS, cache_dir=cache_dir)
    marks = [_mark(*options.broker_pid)]
    try:
        for _ in range(2):
            write(session, data_source, servers, options.topic, options.rows)
            marks.append(_mark(*options.broker_pid))
        for _ in range(2):
            read(session, data_source, servers, options.topic)
            marks.append(_mark(*options.broker_pid))
    finally:
        session.stop()
    return SparkResult(*_figures(marks[1], marks[2], options.rows), *_figures(marks[3], marks[4], 2 * options.rows))


def _mark(*pids: int) -> Mark:
    return Mark(perf_counter(), cpu_seconds(*pids), tree_cpu_seconds(os.getpid()))


def _figures(start: Mark, end: Mark, rows: int) -> tuple[float, float, float]:
    """Rows per second; CPU seconds of the broker and of Spark per million rows."""
    broker_cpu_s, spark_cpu_s = end.broker_cpu_s - start.broker_cpu_s, end.spark_cpu_s - start.spark_cpu_s
    return rows / (end.time_s - start.time_s), 1e6 * broker_cpu_s / rows, 1e6 * spark_cpu_s / rows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Spark's sink and source in rows per second")
    parser.add_argument("--format", choices=("kafka", "barnabas"), default="kafka")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="once for each broker of a cluster")
    result = run(parser.parse_args(arguments))
    print(json.dumps(asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
