"""`barnabas pipeline run`: files that describe jobs, what is wrong in them, and what is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.main import main
from tests.pipeline.made_archive import DAY, write_file
from tests.pipeline.spark_support import needs_java, positions, read_archive
from tests.support.process import free_port

HEAD = 'bootstrap-servers = "one:9092"\nconf = ["spark.driver.memory=1g"]\n\n'
ARCHIVE = '[[job]]\nname = "orders"\ncommand = "archive"\ntopics = "orders"\nto = "a folder"\nonce = true\nrecords-per-batch = 10\n\n'
VERIFY = '[[job]]\nname = "look"\ncommand = "verify"\narchive = "a folder"\nlimit = 5\n'


def run(path: Path, text: str, *arguments: str) -> int:
    path.write_text(text)
    return main(["pipeline", "run", str(path), *arguments])


def test_dry_run_prints_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"

    assert run(path, HEAD + ARCHIVE + VERIFY, "--dry-run") == 0
    assert run(path, HEAD + ARCHIVE + VERIFY, "--dry-run", "--only", "look") == 0

    common = "--bootstrap-servers=one:9092 --conf=spark.driver.memory=1g"
    look = f"look: barnabas pipeline verify {common} --limit=5 -- 'a folder'"
    orders = f"orders: barnabas pipeline archive {common} --topics=orders '--to=a folder' --once --records-per-batch=10"
    assert capsys.readouterr().out.splitlines() == [orders, look, look]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = \n", "Invalid value (at line 1, column 8)"),
        (HEAD, "there is no table [[job]]"),
        ("interval = 1\n" + ARCHIVE, "line 1: interval: it is none of bootstrap-servers"),
        (HEAD + ARCHIVE.replace('"archive"', '"serve"'), "line 6: command: it is one of archive"),
        (HEAD + ARCHIVE.replace('name = "orders"\n', ""), "line 4: name: a job needs a name"),
        (HEAD + ARCHIVE + VERIFY.replace("limit", "topic"), "line 16: topic: unrecognized arguments: --topic=5"),
        (HEAD + ARCHIVE + VERIFY.replace("limit = 5", "limit = 0"), "line 16: limit: argument --limit: 0 is not a number above 0"),
        (HEAD + ARCHIVE + VERIFY.replace("limit = 5", 'master = "local"'), "line 16: master: it is for all jobs"),
        (HEAD + ARCHIVE + VERIFY.replace("limit = 5", "limit = {}"), "line 16: limit: it is a text"),
        (HEAD + ARCHIVE.replace("once = true", "follow = false"), "line 9: follow: an option without a value is true, or is left out"),
        (HEAD + VERIFY.replace('archive = "a folder"\n', ""), "line 4: archive: verify needs it"),
        (HEAD + ARCHIVE.replace("records-per-batch", "records-per"), "unrecognized arguments: --records-per=10"),
        (HEAD + ARCHIVE.replace('to = "a folder"\n', ""), "the following arguments are required: --to"),
        (HEAD + ARCHIVE + ARCHIVE, "line 13: name: another job is called orders"),
        (HEAD + ARCHIVE.replace("once", "follow") + VERIFY, "line 9: follow: only the last job may follow"),
    ],
)
def test_mistake_is_named_with_line_and_key(text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"

    assert run(path, text, "--dry-run") == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"barnabas pipeline: {path}") and says in line


def test_name_that_no_job_has_and_a_file_that_is_not_there_are_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "jobs.toml", HEAD + ARCHIVE, "--only", "other") == 2
    assert main(["pipeline", "run", str(tmp_path / "none.toml")]) == 2

    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("has no job other: it has orders") and "none.toml cannot be read" in second


@pytest.mark.spark
@needs_java()
def test_jobs_run_in_one_session_up_to_the_first_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "archive"
    for batch in range(3):
        write_file(archive, "orders", [(0, batch)], batch=batch)
    (archive / "_staging").mkdir()
    (archive / "_staging" / f"batch-{2:012d}-0123456789ab").write_text("attempt")
    place = f'archive = "{archive}"\n'
    text = f"""
master = "local[2]"
bootstrap-servers = "127.0.0.1:{free_port()}"
[[job]]
name = "merge"
command = "compact"
{place}
[[job]]
name = "look"
command = "verify"
{place}
[[job]]
name = "told"
command = "status"
{place}"""

    assert run(tmp_path / "jobs.toml", text) == 1

    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "starting Spark on local[2]", "job merge: compact", f"orders {DAY}: 2 files became 1, 2 records",
        "done: 2 files became 1 in 1 folders", "job look: verify",
    ]  # fmt: skip
    assert "job look: no broker at 127.0.0.1" in shown.err and "job look failed; not run: told" in shown.err
    assert positions(read_archive(archive)) == [("orders", 0, 0), ("orders", 0, 1), ("orders", 0, 2)]
