"""What a person sees of jobs that take long: a bar on a terminal, lines elsewhere, and what is done and how to go on if one fails in the
middle. `replay` is in test_replay_once.py."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives import verification
from pipeline import commands
from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.bar import Bar
from pipeline.cli import parser
from pipeline.errors import PipelineError
from tests.clients.topics import create_topic
from tests.pipeline.made_archive import write_file
from tests.pipeline.spark_support import needs_java, positions, produce, read_archive
from tests.support.messages import Message
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

RECORDS = 200
IMPATIENT = [
    word for name in ("default.api.timeout.ms", "request.timeout.ms") for word in ("--consumer-property", f"{name}=2000")
]  # fmt: skip
DAYS = ("2026-03-01", "2026-03-02")


class Terminal:
    """A terminal as stderr while its `with` block lasts; `shown` is all that was written to it then."""

    def __init__(self) -> None:
        self.shown = ""
        self._written: list[bytes] = []
        self._screen, slave = os.openpty()
        self._stderr, self._before = os.fdopen(slave, "w"), sys.stderr
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __enter__(self) -> Self:
        sys.stderr = self._stderr
        return self

    def __exit__(self, *of_error: object) -> None:
        sys.stderr = self._before
        self._stderr.close()
        self._thread.join()
        self.shown = b"".join(self._written).decode()

    def _read(self) -> None:
        try:
            while data := os.read(self._screen, 4096):
                self._written.append(data)
        except OSError:  # so Linux says that nobody writes any more
            pass
        os.close(self._screen)


def run(spark: SparkSession, *words: str) -> int:
    arguments = parser().parse_args(words)
    arguments.spark = spark
    return int(arguments.run(arguments))


def small_files(archive: Path) -> None:
    for number, day in enumerate(DAYS):
        for batch in (2 * number, 2 * number + 1):
            write_file(archive, "orders", [(0, batch)], batch=batch, day=day)
    (archive / "_staging").mkdir()
    (archive / "_staging" / f"batch-{99:012d}-0123456789ab").write_text("attempt")


MERGED = [f"orders {day}: 2 files became 1, 2 records" for day in DAYS] + ["done: 4 files became 2 in 2 folders"]


def test_on_a_terminal_there_is_a_bar_which_leaves_the_lines_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_files(tmp_path)
    monkeypatch.setenv("TERM", "xterm")

    with Terminal() as terminal:
        assert run(spark, "compact", str(tmp_path)) == 0

    assert "merging" in terminal.shown and "1/2 folders" in terminal.shown
    assert terminal.shown.endswith(("\x1b[2K", "\x1b[?25h")), "the bar is cleared at the end, and the cursor is back"
    assert capsys.readouterr().out.splitlines() == MERGED


def test_elsewhere_there_are_lines_alone(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_files(tmp_path)

    assert run(spark, "compact", str(tmp_path)) == 0

    captured = capsys.readouterr()
    assert (captured.out.splitlines(), captured.err) == (MERGED, "")


def test_without_rich_a_terminal_has_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    printed: list[str] = []

    with Terminal() as terminal, Bar("merging", "folders") as bar:
        bar.show(1, 2)
        bar.around(printed.append)("a line")

    assert (terminal.shown, printed) == ("", ["a line"])


def test_tasks_of_spark_are_lines_where_the_job_has_none(spark: SparkSession) -> None:
    lines: list[str] = []

    with Bar("comparing", "records", spark, lines=lines.append, line_interval_s=0.01):
        for _ in range(100):
            spark.range(100_000).repartition(4).count()
            if lines:
                break

    assert re.fullmatch(r"comparing: \d of \d tasks of the running stages are done", lines[0])


def failure(spark: SparkSession, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The job fails; what it has said on stderr before."""
    with pytest.raises(Exception) as failed:
        run(spark, *words)
    assert isinstance(failed.value, PipelineError) and "\n" not in str(failed.value)
    return capsys.readouterr().err


def kill_when(line_begins: str, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def print_line(line: str) -> None:
        if line.startswith(line_begins) and server.is_running:
            server.kill()

    monkeypatch.setattr(commands, "_print_line", print_line)
    monkeypatch.setattr(Stop, "listen", lambda stop: None)  # signals stay pytest's


def fill(server: ServerProcess, topic: str) -> None:
    create_topic(server, topic)
    produce(server, topic, [Message(0, None, b"%d" % number) for number in range(RECORDS)])


def test_archive_whose_broker_goes_away_says_what_is_archived_and_goes_on(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    target = tmp_path / "archive"
    fill(own_server, topic_name)
    words = ("archive", "--topics", topic_name, "--to", str(target), "--bootstrap-servers", own_server.bootstrap, *IMPATIENT)
    kill_when("batch 1", own_server, monkeypatch)

    said = failure(spark, capsys, *words, "--records-per-batch", "4")

    there = re.search(r"(\d+) records in \d+ batches are archived; once the cause is gone, the same command goes on after them\n", said)
    assert there is not None and 4 <= int(there[1]) <= len(read_archive(target)) < RECORDS, said
    own_server.start()
    assert run(spark, *words) == 0
    assert positions(read_archive(target)) == [(topic_name, 0, number) for number in range(RECORDS)]


def test_verify_whose_broker_goes_away_says_that_nothing_was_changed(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    target = tmp_path / "archive"
    fill(own_server, topic_name)
    archive(spark, ArchiveJob(own_server.bootstrap, ("subscribe", topic_name), str(target)), stop=Stop(), say=print)
    planned: Callable[..., Any] = verification._topic_rows

    def kill_when_planned(*arguments: Any) -> Any:
        rows = planned(*arguments)
        own_server.kill()
        return rows

    monkeypatch.setattr(verification, "_topic_rows", kill_when_planned)

    said = failure(spark, capsys, "verify", str(target), "--bootstrap-servers", own_server.bootstrap, *IMPATIENT)

    assert said.splitlines()[-1] == (
        "barnabas pipeline: the comparison was broken off, and has changed nothing; once the cause is gone, run the same command again"
    )


def test_compact_that_meets_a_damaged_file_says_what_is_done(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs no broker."""
    small_files(tmp_path)
    next((tmp_path / "topic=orders" / f"day={DAYS[1]}").glob("*.parquet")).write_bytes(b"PAR1 and no more")

    said = failure(spark, capsys, "compact", str(tmp_path))

    assert said == "barnabas pipeline: 1 folders are done and stay so; the same command goes on with the rest\n"
    assert len(list((tmp_path / "topic=orders" / f"day={DAYS[0]}").glob("*.parquet"))) == 1
