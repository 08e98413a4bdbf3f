"""The command line before any job runs: help, usage errors, and what is found wrong without a start of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli.main import main
from pipeline.options import FIXED_CONSUMER_PROPERTIES, client_properties, command_config
from tests.pipeline.spark_support import CHECKOUT
from tests.support.process import ServerProcess, free_port

ARCHIVE = ["pipeline", "archive", "--topics", "t", "--to", "/nowhere/archive"]
REPLAY = ["pipeline", "replay", "--from", "/nowhere/archive", "--topic", "t"]
TIMEOUT_S = 120
# Stands for an environment without the extra, on a machine without Java.
WITHOUT_SPARK = (
    "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from broker.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def run_without_spark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments],
        cwd=CHECKOUT,
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize(("command", "says"), [([], "archive"), (["archive"], "--topic-pattern"), (["replay"], "--source-topic")])
def test_help_needs_neither_pyspark_nor_java(command: list[str], says: str) -> None:
    outcome = run_without_spark("pipeline", *command, "--help")

    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert says in outcome.stdout


def test_missing_library_is_one_line_with_the_cure() -> None:
    outcome = run_without_spark(*ARCHIVE)

    assert outcome.returncode == 1
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("barnabas pipeline: this needs pyspark; install it with: ") and line.endswith("'barnabas[pipeline]'")


def run(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as e:
        return int(e.code or 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pipeline"], "COMMAND"),
        (["pipeline", "no-such-job"], "no-such-job"),
        (["pipeline", "archive", "--to", "x"], "--topics"),
        (["pipeline", "archive", "--topics", " , ", "--to", "x"], "no topic is named"),
        ([*ARCHIVE, "--topic-pattern", "t"], "not allowed with"),
        ([*ARCHIVE, "--once", "--follow"], "not allowed with"),
        ([*ARCHIVE, "--start", "tomorrow"], "tomorrow is neither earliest nor latest"),
        ([*ARCHIVE, "--interval", "0"], "0 is not a number above 0"),
        ([*ARCHIVE, "--interval", "nan"], "nan is not a number above 0"),
        ([*ARCHIVE, "--records-per-batch", "many"], "many is not a number above 0"),
        ([*ARCHIVE, "--files-per-batch", "-1"], "-1 is not a number above 0"),
        ([*ARCHIVE, "--bootstrap-servers", "localhost"], "localhost is not HOST:PORT"),
        ([*ARCHIVE, "--bootstrap-servers", "a:1,b:99999"], "b:99999 is not HOST:PORT"),
        ([*ARCHIVE, "--conf", "spark.x"], "spark.x is not KEY=VALUE"),
        ([*ARCHIVE, "--conf", "spark.sql.parquet.outputTimestampType=INT96"], "is the job's own to set"),
        ([*ARCHIVE, "--consumer-property", "isolation.level=read_uncommitted"], "is the job's own to set"),
        ([*REPLAY, "--producer-property", "acks=1"], "is the job's own to set"),
        ([*REPLAY, "--log-level", "LOUD"], "LOUD is none of"),
        (["pipeline", "compact", "x", "--older-than", "7"], "7 is not a number of days such as 7d"),
        (["pipeline", "compact", "x", "--target-size", "0MB"], "0MB is not a size such as 256MB"),
    ],
)
def test_bad_usage_is_named_and_exits_with_2(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2

    error = capsys.readouterr().err
    assert "usage: barnabas pipeline" in error and says in error


@pytest.mark.parametrize("job", [ARCHIVE, REPLAY])
def test_broker_and_topic_are_looked_for_before_spark_starts(
    job: list[str], server: ServerProcess, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a Java that does nothing: a start of Spark would fail on it."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    nobody = f"127.0.0.1:{free_port()}"

    assert run([*job, "--bootstrap-servers", nobody]) == 1
    assert run([*job, "--bootstrap-servers", server.bootstrap]) == 1

    assert capfd.readouterr().err.splitlines() == [
        f"barnabas pipeline: no broker at {nobody}: connection refused",
        f"barnabas pipeline: topic t does not exist at {server.bootstrap}",
    ]


def test_missing_java_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    assert run(ARCHIVE) == 1
    assert capfd.readouterr().err == "barnabas pipeline: Spark needs Java 17 or 21, and JAVA_HOME names /nowhere, which has no bin/java\n"


def test_a_client_s_file_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*ARCHIVE, "--command-config", "/nowhere/client.properties"])

    assert end.value.code == 2
    assert "/nowhere/client.properties cannot be read" in capsys.readouterr().err


def test_the_command_line_counts_before_a_client_s_file_and_the_job_s_own_before_both(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=one:1\nisolation.level=read_uncommitted\nsecurity.protocol=SSL\nfetch.min.bytes=1\n")

    properties = client_properties(command_config(str(path)), [("fetch.min.bytes", "2")], FIXED_CONSUMER_PROPERTIES)

    assert properties == {"security.protocol": "SSL", "fetch.min.bytes": "2"}
