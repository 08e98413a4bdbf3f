"""Kills the archiving driver and the broker at random moments, then checks that the archive holds every record once.

    python -m tests.pipeline.campaign --driver-kills 20 --broker-kills 5 [--seed 7] [--server kafka] [--directory DIR]

A producer goes on writing to two topics and a reader goes on listing the archive, while `archive --follow` is killed with
SIGKILL (the whole driver, or its Python alone, which leaves a JVM to die by itself) and the broker is killed and started
again. Prints a line for each kill and ends with status 1 and the data kept when anything is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message as DeliveredMessage
from confluent_kafka import Producer

from tests.clients.topics import create_topic
from tests.pipeline.spark_support import kill_group, positions, read_archive, run_pipeline, start_pipeline, unsorted_files
from tests.support.fixtures import SERVERS, new_server
from tests.support.process import LineReader, ServerProcess

TOPICS = {"orders": 3, "payments": 2}
RECORDS_PER_BATCH = 3_000
LAST_RECORDS_PER_BATCH = 100_000
RECORDS_PER_SECOND = 1_000
PRODUCE_INTERVAL_S = 0.05
QUEUE_LIMIT_RECORDS = 50_000
DELIVERY_TIMEOUT_S = 60.0
READ_INTERVAL_S = 0.5
FIRST_BATCH_TIMEOUT_S = 90.0
# A start takes about 6 s; most kills shall hit batches, some the start itself.
KILL_IN_START_SHARE = 0.2
START_KILL_RANGE_S = (1.0, 7.0)
BATCH_KILL_RANGE_S = (0.0, 3.0)
PYTHON_ONLY_SHARE = 0.3
BROKER_DOWN_RANGE_S = (0.0, 1.0)
DAY_MS = 86_400_000


class Load:
    """A producer on a thread of its own. Owns what was acked: position → value; two days by turns, so batches span folders."""

    def __init__(self, server: ServerProcess) -> None:
        self.acked: dict[tuple[str, int, int], bytes] = {}
        self.failed = 0
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(DELIVERY_TIMEOUT_S)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(PRODUCE_INTERVAL_S):
            self._producer.poll(0)
            for _ in range(int(RECORDS_PER_SECOND * PRODUCE_INTERVAL_S)):
                if len(self._producer) < QUEUE_LIMIT_RECORDS:
                    self._send(number)
                    number += 1

    def _send(self, number: int) -> None:
        topic = "orders" if number % 3 else "payments"
        timestamp_ms = int(time.time() * 1000) - (number % 2) * DAY_MS
        value = b"value-%d" % number
        partition = number % TOPICS[topic]
        self._producer.produce(topic, value, partition=partition, timestamp=timestamp_ms, on_delivery=self._on_delivery)

    def _on_delivery(self, error: object, message: DeliveredMessage) -> None:
        if error:
            self.failed += 1
        else:
            self.acked[message.topic() or "", message.partition() or 0, message.offset() or 0] = message.value() or b""


class Reader:
    """Lists the archive again and again, as any reader may at any time: no listing may show a record twice."""

    def __init__(self, archive: Path) -> None:
        self.anomalies: list[str] = []
        self.listings = 0
        self._archive = archive
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rows_before = 0
        while not self._stop.wait(READ_INTERVAL_S):
            try:
                table = read_archive(self._archive)
            except (OSError, pa.ArrowInvalid) as e:
                self.anomalies.append(f"a reader failed: {e}")
                return
            self.listings += 1
            if doubled := doubled_positions(table):
                self.anomalies.append(f"a listing shows records twice: {doubled[:3]}")
            if table.num_rows < rows_before:
                self.anomalies.append(f"a listing shows {table.num_rows} records after one with {rows_before}")
            rows_before = table.num_rows


@dataclass(slots=True)
class Result:
    """What the campaign found; it passed when `anomalies` is empty."""

    driver_kills: int = 0
    broker_kills: int = 0
    records: int = 0
    files: int = 0
    listings: int = 0
    anomalies: list[str] = field(default_factory=list)


def run(driver_kills: int, broker_kills: int, seed: int, directory: Path, *, server_kind: str | None = None) -> Result:
    """The kills in a random order of `seed`, then one run to the end and the check of the whole archive."""
    randomness = random.Random(seed)
    archive = directory / "archive"
    server = new_server(directory / "server", kind=server_kind)
    server.start()
    for topic, partitions in TOPICS.items():
        create_topic(server, topic, partitions=partitions)
    load, reader, result = Load(server), Reader(archive), Result()
    try:
        _kill_by_turns(server, archive, randomness, _shuffled(driver_kills, broker_kills, randomness), result)
        load.finish()
        last = run_pipeline("archive", server, *_arguments(archive, LAST_RECORDS_PER_BATCH))
        if last.returncode:
            result.anomalies.append(f"the last run failed: {last.stderr.strip()[-300:]}")
    finally:
        load.finish()
        reader.finish()
        server.kill()
    result.listings = reader.listings
    result.anomalies += reader.anomalies
    _check(archive, load, result)
    return result


def _shuffled(driver_kills: int, broker_kills: int, randomness: random.Random) -> list[str]:
    """Which process each kill is for. The last one is the driver's, which every broker kill needs running."""
    targets = ["driver"] * (driver_kills - 1) + ["broker"] * broker_kills
    randomness.shuffle(targets)
    return [*targets, "driver"]


def _kill_by_turns(server: ServerProcess, archive: Path, randomness: random.Random, targets: list[str], result: Result) -> None:
    driver, lines = _start_driver(server, archive)
    try:
        for number, target in enumerate(targets, 1):
            if target == "broker":
                how = _kill_broker(server, driver, lines, randomness)
                result.broker_kills += 1
            else:
                how = _kill_driver(driver, lines, randomness)
                result.driver_kills += 1
                if number < len(targets):
                    driver, lines = _start_driver(server, archive)
            print(f"{number}/{len(targets)} killed the {target} {how}; {read_archive(archive).num_rows:,} records archived", flush=True)
    except AssertionError as e:
        result.anomalies.append(str(e))
    finally:
        kill_group(driver)


def _start_driver(server: ServerProcess, archive: Path) -> tuple[subprocess.Popen[str], LineReader]:
    driver = start_pipeline("archive", server, *_arguments(archive, RECORDS_PER_BATCH), "--follow", "--interval", "0.1")
    return driver, LineReader(driver)


def _arguments(archive: Path, records_per_batch: int) -> tuple[str, ...]:
    return "--topics", ",".join(TOPICS), "--to", str(archive), "--records-per-batch", str(records_per_batch)


def _kill_driver(driver: subprocess.Popen[str], lines: LineReader, randomness: random.Random) -> str:
    in_start = randomness.random() < KILL_IN_START_SHARE
    delay_s = randomness.uniform(*(START_KILL_RANGE_S if in_start else BATCH_KILL_RANGE_S))
    python_only = randomness.random() < PYTHON_ONLY_SHARE
    if not in_start:
        _wait_for_batch(driver, lines)
    time.sleep(delay_s)
    assert driver.poll() is None, f"the driver ended by itself: {lines.lines[-3:]}"
    if python_only:
        driver.kill()
        driver.wait()
    else:
        kill_group(driver)
    return f"{delay_s:.1f} s after its {'start' if in_start else 'first batch'}{' (its JVM left alone)' if python_only else ''}"


def _kill_broker(server: ServerProcess, driver: subprocess.Popen[str], lines: LineReader, randomness: random.Random) -> str:
    _wait_for_batch(driver, lines)
    seen = len(lines.lines)
    down_s = randomness.uniform(*BROKER_DOWN_RANGE_S)
    time.sleep(randomness.uniform(*BATCH_KILL_RANGE_S))
    server.kill()
    time.sleep(down_s)
    server.start()
    # The running query has to survive: clients come back by themselves.
    lines.wait_for(seen + 1, timeout_s=FIRST_BATCH_TIMEOUT_S)
    return f"for {down_s:.1f} s"


def _wait_for_batch(driver: subprocess.Popen[str], lines: LineReader) -> None:
    lines.wait_for(1, containing="batch ", timeout_s=FIRST_BATCH_TIMEOUT_S)


def _check(archive: Path, load: Load, result: Result) -> None:
    table = read_archive(archive)
    result.records, result.files = table.num_rows, len(list(archive.glob("topic=*/day=*/*.parquet")))
    archived = dict(
        zip(
            zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True),
            table["value"].to_pylist(),
            strict=True,
        )
    )
    if doubled := doubled_positions(table):
        result.anomalies.append(f"{len(doubled)} records are there twice: {doubled[:3]}")
    if missing := [position for position in load.acked if position not in archived]:
        result.anomalies.append(f"{len(missing)} acked records are missing: {sorted(missing)[:3]}")
    if changed := [position for position, value in load.acked.items() if archived.get(position, value) != value]:
        result.anomalies.append(f"{len(changed)} records have another value: {sorted(changed)[:3]}")
    if gaps := _gaps(table):
        result.anomalies.append(f"offsets are missing after {gaps[:3]}")
    result.anomalies += [f"{path} is not sorted" for path in unsorted_files(archive)]


def _gaps(table: pa.Table) -> list[tuple[str, int, int]]:
    """The positions whose successor in the partition is not the next offset."""
    ordered = positions(table)
    return [first for first, second in itertools.pairwise(ordered) if first[:2] == second[:2] and second[2] > first[2] + 1]


def doubled_positions(table: pa.Table) -> list[tuple[str, int, int]]:
    return [position for position, count in Counter(positions(table)).items() if count > 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driver-kills", type=int, default=20)
    parser.add_argument("--broker-kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--server", choices=sorted(SERVERS), default="barnabas")
    parser.add_argument("--directory", type=Path, help="where everything goes (default: a temporary folder)")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="barnabas-pipeline-"))
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    result = run(arguments.driver_kills, arguments.broker_kills, arguments.seed, directory, server_kind=arguments.server)
    print(f"{result.driver_kills} driver kills, {result.broker_kills} broker kills: {result.records:,} records in {result.files} files,")
    print(f"listed {result.listings} times meanwhile; anomalies: {result.anomalies or 'none'}")
    if result.anomalies:
        return 1
    if arguments.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
