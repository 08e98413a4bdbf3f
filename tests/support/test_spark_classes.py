"""The options of Spark's JVMs in tests: one's own stay, and a JVM starts silently with an archive that it cannot use."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import spark_classes
from tests.support.requirements import needs


@needs(None if shutil.which("java") else "Java is missing")
def test_archive_that_java_cannot_use_is_left_out_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "damaged.jsa"
    damaged.write_bytes(b"no archive")
    monkeypatch.setattr(spark_classes, "archive_path", lambda: damaged)
    environment: dict[str, str] = {}
    spark_classes.set_options(environment)

    options = environment["SPARK_SUBMIT_OPTS"].split()
    outcome = subprocess.run(["java", *options, "--version"], capture_output=True, text=True, check=False, timeout=60)

    assert f"-XX:SharedArchiveFile={damaged}" in options
    assert (outcome.returncode, outcome.stderr) == (0, "") and "warning" not in outcome.stdout


def test_options_of_the_caller_s_own_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_classes, "archive_path", lambda: tmp_path / "none.jsa")
    environment = {"SPARK_SUBMIT_OPTS": "-Xmx1g"}
    spark_classes.set_options(environment)

    assert environment == {"SPARK_SUBMIT_OPTS": "-Xmx1g", "SPARK_DAEMON_JAVA_OPTS": spark_classes.SHORT_LIVED_JVM}
