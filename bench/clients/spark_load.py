"""Spark's own kafka sink and source as a load: rows per second of a batch write and of a batch read, in one local session.

`python -m bench.clients.spark_load --port 9092 --topic t --rows 1000000` prints one JSON line. Each is run once to warm
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

from pyspark.sql import SparkSession

from bench.usage import cpu_seconds
from pipeline.session import open_session

MASTER = "local[2]"
VALUE_SIZE = 100  # bytes
SETTINGS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True, slots=True)
class SparkResult:
    sink_rows_per_s: float
    sink_cpu_s_per_million: float
    source_rows_per_s: float
    source_cpu_s_per_million: float


def write(session: SparkSession, servers: str, topic: str, rows: int) -> None:
    """`rows` new records with a value of 100 bytes."""
    records = session.range(rows).selectExpr("CAST(id AS STRING) AS key", f"RPAD(CAST(id AS STRING), {VALUE_SIZE}, 'x') AS value")
    records.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def read(session: SparkSession, servers: str, topic: str) -> None:
    """Every record of the topic, thrown away by Spark's sink for such measurements."""
    source = session.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    source.load().write.format("noop").mode("overwrite").save()


def run(options: argparse.Namespace) -> SparkResult:
    servers = f"{options.host}:{options.port}"
    cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas-tests" / "barnabas"
    session = open_session("bench", master=MASTER, settings=SETTINGS, cache_dir=cache_dir)
    marks = [_mark(*options.broker_pid)]
    try:
        for _ in range(2):
            write(session, servers, options.topic, options.rows)
            marks.append(_mark(*options.broker_pid))
        for _ in range(2):
            read(session, servers, options.topic)
            marks.append(_mark(*options.broker_pid))
    finally:
        session.stop()
    sink_s, sink_cpu = _difference(marks[1], marks[2])
    source_s, source_cpu = _difference(marks[3], marks[4])
    read_rows = 2 * options.rows
    return SparkResult(options.rows / sink_s, 1e6 * sink_cpu / options.rows, read_rows / source_s, 1e6 * source_cpu / read_rows)


def _mark(*pids: int) -> tuple[float, float]:
    return perf_counter(), cpu_seconds(*pids)


def _difference(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    return end[0] - start[0], end[1] - start[1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Spark's kafka sink and source in rows per second")
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
