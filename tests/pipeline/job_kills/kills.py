"""`compact` and `replay` are killed at named points, one run after another on the same archive, while a reader reads it all the time.

A kill is SIGKILL for the command's Python, its JVM and Spark's Python workers at once, while one of them is held at the point.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from barnabas.spark.archives.local_files import LocalFiles
from barnabas.spark.archives.manifest import read_manifest
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.security import read_security
from barnabas.spark.client.transaction import list_open
from tests.pipeline.job_kills.gated_command import command_line, environment
from tests.pipeline.made_archive import write_file
from tests.pipeline.sink_campaign.driver_process import kill_session
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper, Visitor
from tests.pipeline.spark_support import CHECKOUT, positions, read_archive, unsorted_files
from tests.support.process import ServerProcess

ARRIVAL_TIMEOUT_S = 180.0
POLL_S = 0.05
READ_INTERVAL_S = 0.1
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
FILES, RECORDS = 4, 3
"""Of each day: small files, and records of each."""


class Kill(NamedTuple):
    """At the visit of `point` after `skipped` others; `moves`: on a file system that cannot exchange folders."""

    point: str
    skipped: int = 0
    moves: bool = False


class Reader:
    """Reads the archive again and again, as any reader may. `problems` are what must not be; a file that it has listed and finds gone is
    none: it lists again."""

    def __init__(self, archive: Path) -> None:
        self.problems: list[str] = []
        self.count = 0
        self._archive = archive
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def finish(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(READ_INTERVAL_S):
            try:
                found = Counter(positions(read_archive(self._archive)))
            except (FileNotFoundError, pa.ArrowException):
                continue
            self.count += 1
            if twice := [position for position, copies in found.items() if copies > 1]:
                self.problems.append(f"a reader sees {len(twice)} records twice: {twice[:3]}")


def make_archive(archive: Path) -> list[tuple[str, int, int]]:
    """A file for each batch, and the decision of the last one, whose file stays. Returns the positions of its records, sorted."""
    made = []
    for batch in range(len(DAYS) * FILES):
        found = [(0, batch * RECORDS + number) for number in range(RECORDS)]
        write_file(archive, "orders", found, batch=batch, day=DAYS[batch // FILES])
        made += [("orders", *each) for each in found]
    (archive / "_staging").mkdir()
    (archive / "_staging" / f"batch-{batch:012d}-0123456789ab").write_text("attempt")
    return sorted(made)


def run_and_kill(keeper: GateKeeper, kill: Kill, directory: Path, arguments: Sequence[str]) -> None:
    """Runs the command until it is at that point, and kills it there. AssertionError if it never gets there."""
    with held(keeper, kill, directory, arguments) as (process, _):
        cpu_s = kill_session(process.pid)
    print(f"{kill}: {cpu_s:.1f} s of CPU")


@contextlib.contextmanager
def held(
    keeper: GateKeeper, kill: Kill, directory: Path, arguments: Sequence[str], **more: str
) -> Iterator[tuple[subprocess.Popen[bytes], Visitor]]:
    """The command, and who of its processes is held at that point. What is left of it is killed at the end. `more` is of its environment;
    what it prints is in killed.log. AssertionError if it never gets there."""
    directory.mkdir(exist_ok=True)
    log = directory / "killed.log"
    hold = keeper.hold(kill.point, skipped_count=kill.skipped)
    keeper.note(f"until {kill}")
    with log.open("a") as output:
        process = subprocess.Popen(
            command_line(*arguments),
            cwd=CHECKOUT,
            env={**environment(directory / "modules", keeper.port, moves=kill.moves), **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for _ in range(int(ARRIVAL_TIMEOUT_S / POLL_S)):
            if hold.wait(POLL_S) is not None or process.poll() is not None:
                break
        visitor = hold.wait(0)
        assert visitor is not None, f"{kill} was not reached\n{log.read_text()[-2000:]}"
        yield process, visitor
    finally:
        kill_session(process.pid)
        process.wait()
        keeper.cancel(hold)


def problems_of(archive: Path, expected: list[tuple[str, int, int]]) -> list[str]:
    """What is wrong with an archive that was compacted to the end."""
    found = positions(read_archive(archive))
    problems = [f"{path} is not sorted" for path in unsorted_files(archive)]
    if found != expected:
        missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
        problems.append(f"missing {sorted(missing)[:3]}, too many {sorted(more)[:3]}")
    if left := list((archive / "_compaction").iterdir()):
        problems.append(f"left over: {left}")
    for folder in sorted(archive.glob("topic=*/day=*")):
        files = {path.name: path.stat().st_size for path in folder.glob("*.parquet")}
        noted = dict(read_manifest(LocalFiles(), str(folder)) or {})
        if {name: size for name, size in files.items() if name.startswith("compact-")} != noted:
            problems.append(f"{folder} has {files}, and notes {noted}")
        if others := {path.name for path in folder.iterdir()} - files.keys() - {"_files"}:
            problems.append(f"left over in {folder}: {others}")
    return problems


def replay_words(server: ServerProcess, archive: str, topic: str, *, records_per_step: int) -> list[str]:
    """Arguments of the command: the archive's topic `orders` into `topic`, whose name is the replay's id, too."""
    return [
        "replay", "--bootstrap-servers", server.bootstrap, "--from", archive, "--source-topic", "orders", "--topic", topic, "--id", topic,
        "--records-per-batch", str(records_per_step), "--master", "local[2]",
    ]  # fmt: skip


def read_committed(server: ServerProcess, topic: str, partition: int) -> list[tuple[bytes, int]]:
    """Value and timestamp of each record that a reader of committed transactions gets, in order."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "r", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        while (message := consumer.poll(60)) is not None and not message.error():
            found.append((message.value(), message.timestamp()[1]))
        return found
    finally:
        consumer.close()


def open_transactions(server: ServerProcess) -> list[str]:
    """The ids of those that are neither committed nor aborted."""
    cluster = Cluster(server.bootstrap, read_security({}), deadline_s=30)
    try:
        return [each.transactional_id for each in list_open(cluster, "")]
    finally:
        cluster.close()
