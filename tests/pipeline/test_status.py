"""`barnabas pipeline status`: what it says of an archive, without Spark and without Java."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.cli.main import main
from tests.clients.topics import create_topic
from tests.pipeline.made_archive import DAY, TIME_MS, write_checkpoint, write_file
from tests.pipeline.spark_support import produce
from tests.support.messages import Message
from tests.support.process import ServerProcess, free_port


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


def status(capsys: pytest.CaptureFixture[str], archive: Path | str, *arguments: str) -> dict[str, Any]:
    assert main(["pipeline", "status", str(archive), "--output", "json", *arguments]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_topics_batches_and_offsets_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The checkpoint's offset counts: behind the last record there are markers of transactions."""
    first = write_file(tmp_path, "orders", [(0, 0), (0, 1), (1, 0)])
    second = write_file(tmp_path, "orders", [(0, 2)], batch=1, day="2026-03-02")
    write_file(tmp_path, "a%3Ab", [(0, 7)], batch=1)
    write_checkpoint(tmp_path, 0, {"orders": {"0": 2, "1": 1}})
    write_checkpoint(tmp_path, 1, {"orders": {"0": 5, "1": 1}, "a:b": {"0": 8}}, TIME_MS + 61_000)
    (tmp_path / "topic=orders" / f"day={DAY}" / "notes.txt").write_text("somebody's")

    told = status(capsys, tmp_path)

    assert told["batches"] == 2 and told["last_batch"] == 1 and told["last_batch_time"] == "2026-03-01T00:01:01Z"
    assert [topic["topic"] for topic in told["topics"]] == ["a:b", "orders"]
    assert told["topics"][1] == {
        "topic": "orders", "partitions": 2, "records": 4, "files": 2, "bytes": first.stat().st_size + second.stat().st_size,
        "first_day": DAY, "last_day": "2026-03-02", "archived_to": {"0": 5, "1": 1}, "offsets_behind": None,
    }  # fmt: skip


def test_offsets_come_from_the_files_if_the_checkpoint_is_elsewhere(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Also from one whose row group has several partitions."""
    archive, checkpoint = tmp_path / "archive", tmp_path / "elsewhere"
    write_file(archive, "orders", [(0, 0), (0, 1), (1, 0), (2, 9)])
    write_file(archive, "orders", [(1, 1), (1, 2)], batch=1)
    write_checkpoint(checkpoint, 0, {"orders": {"0": 4, "1": 3, "2": 10}})

    from_files = status(capsys, archive)
    from_checkpoint = status(capsys, f"file://{archive}", "--checkpoint", str(checkpoint / "_checkpoint"))

    assert from_files["topics"][0]["archived_to"] == {"0": 2, "1": 3, "2": 10} and from_files["batches"] == 0
    assert from_checkpoint["topics"][0]["archived_to"] == {"0": 4, "1": 3, "2": 10} and from_checkpoint["batches"] == 1


def test_brokers_say_how_far_the_archive_is_behind(
    capsys: pytest.CaptureFixture[str], server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name, partitions=2)
    produce(server, topic_name, [Message(number % 2, None, b"x") for number in range(10)])
    write_file(tmp_path, topic_name, [(0, 0), (0, 1)])
    write_file(tmp_path, f"{topic_name}-gone", [(0, 0)])
    write_checkpoint(tmp_path, 0, {topic_name: {"0": 2, "1": 4}})

    told = status(capsys, tmp_path, "--bootstrap-servers", server.bootstrap)

    assert [topic["offsets_behind"] for topic in told["topics"]] == [4, None]
    assert main(["pipeline", "status", str(tmp_path), "--bootstrap-servers", server.bootstrap]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == f"{tmp_path}: 1 batches, the last one of 2026-03-01T00:00:00Z"
    assert table[1].split() == ["topic", "partitions", "records", "files", "bytes", "days", "archived", "to", "behind"]
    assert table[2].split()[-3:] == ["0:2", "1:4", "4"] and table[3].split()[-1] == "-"


def test_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_file(tmp_path, "orders", [(0, 0)])
    cut = write_file(tmp_path, "orders", [(0, 1)], batch=1)
    cut.write_bytes(cut.read_bytes()[:-20])

    assert main(["pipeline", "status", str(tmp_path)]) == 1

    shown = capsys.readouterr()
    assert shown.err.startswith(f"barnabas pipeline: {cut} cannot be read: ") and shown.err.count("\n") == 1
    assert "orders" in shown.out


def test_folder_without_an_archive_and_a_broker_that_is_away_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    write_file(tmp_path / "archive", "orders", [(0, 0)])

    assert main(["pipeline", "status", str(tmp_path / "nothing")]) == 1
    assert main(["pipeline", "status", str(tmp_path / "archive"), "--bootstrap-servers", nobody]) == 1

    assert capsys.readouterr().err.splitlines() == [
        f"barnabas pipeline: {tmp_path}/nothing is no archive: it has neither records nor a checkpoint",
        f"barnabas pipeline: no broker at {nobody}: connection refused",
    ]
