"""The connector's coordinates and the settings that fetch it; no Spark is started."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyspark
import pytest

from pipeline.connector import (
    TESTED_SPARK,
    ConnectorError,
    connector_coordinates,
    connector_settings,
    fetch_jars,
    fetch_settings,
    jar_settings,
)
from pipeline.errors import UsageError

CHECKOUT = Path(__file__).resolve().parents[2]
# What Ivy and Spark print, cut down to the lines that differ.
NOT_FOUND = """\
		module not found: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0
		::          UNRESOLVED DEPENDENCIES         ::
		:: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0: not found
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache.spark#spark-token-provider-kafka-0-10_2.13;4.2.0]
	at org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:540)
"""
UNREACHABLE = """\
		:: org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0: not found
:::: ERRORS
	Server access error at url https://repo1.maven.org/maven2/org/apache/spark/x.pom (java.net.UnknownHostException: repo1.maven.org)
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0: not found]
	at org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:540)
"""


def test_coordinates_follow_the_installed_version() -> None:
    assert connector_coordinates("4.0.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    assert connector_coordinates("4.2.0.dev1") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def test_spark_3_is_refused_by_name() -> None:
    with pytest.raises(ConnectorError, match=r"pyspark 3\.5\.1 is too old"):
        connector_coordinates("3.5.1")


def launcher(folder: Path, script: str) -> str:
    """Stands for spark-submit."""
    path = folder / "spark-submit"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_extra_installs_the_version_that_is_tested() -> None:
    """The newest pyspark's connector may not be there."""
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert f"pyspark=={TESTED_SPARK}" in extras["pipeline"]
    assert pyspark.__version__ == TESTED_SPARK


def test_fetching_has_settings_and_a_cache_of_its_own(tmp_path: Path) -> None:
    settings = fetch_settings("a:b:1", tmp_path)

    assert settings["spark.jars.packages"] == "a:b:1"
    assert 'm2compatible="true"' in Path(settings["spark.jars.ivySettings"]).read_text()
    assert Path(settings["spark.jars.ivy"]).is_relative_to(tmp_path)


def test_fetched_jars_are_those_of_the_folder(tmp_path: Path) -> None:
    program = launcher(
        tmp_path, f"mkdir -p {tmp_path}/cache/ivy/jars; touch {tmp_path}/cache/ivy/jars/connector.jar; echo much; echo more >&2"
    )

    assert fetch_jars("a:b:1", tmp_path / "cache", program) == [f"{tmp_path}/cache/ivy/jars/connector.jar"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            NOT_FOUND,
            r"^org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0 not found; use pyspark 4.0.0 .* or give .* --jars",
        ),
        (UNREACHABLE, r"^a:b:1 cannot be fetched \(UnknownHostException: repo1.maven.org\); give its jars by --jars"),
        ("Error: no space\n\tat x\n", r"^a:b:1 cannot be fetched \(Error: no space\); give its jars by --jars"),
    ],
)
def test_connector_that_cannot_be_had_is_one_line(tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "output").write_text(output)

    with pytest.raises(ConnectorError, match=message) as refused:
        fetch_jars("a:b:1", tmp_path / "cache", launcher(tmp_path, f"cat {tmp_path}/output >&2; exit 1"))

    assert "\n" not in str(refused.value)


def test_later_starts_take_the_remembered_jars(tmp_path: Path) -> None:
    jar = tmp_path / "connector.jar"
    jar.touch()
    (tmp_path / "spark-4.0.0").mkdir()
    (tmp_path / "spark-4.0.0" / "jars.txt").write_text(str(jar))

    assert connector_settings("4.0.0", tmp_path) == {"spark.jars": str(jar)}


def test_jars_of_a_folder_are_all_taken(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "note.txt"):
        (tmp_path / name).touch()

    assert jar_settings([str(tmp_path), "hdfs://x/c.jar"]) == {"spark.jars": f"{tmp_path}/a.jar,{tmp_path}/b.jar,hdfs://x/c.jar"}


@pytest.mark.parametrize("path", ["missing.jar", "empty"])
def test_jars_that_are_not_there_are_bad_usage(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(UsageError, match=f"{path}: there is no jar"):
        jar_settings([str(tmp_path / path)])
