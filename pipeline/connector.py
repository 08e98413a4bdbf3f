"""Provides the jars of Spark's Kafka connector and of Delta Lake. They are fetched once for each version of pyspark, then cached.

The connector is no part of pyspark, and must have pyspark's own version. Spark fetches it with Ivy, which by default looks into the
user's local Maven repository first and fails if that has a pom without its jar. So Ivy gets settings with one resolver, Maven's public
central repository, and a cache folder of its own. It runs in a separate process before the job's, because its output and its stack traces
do not help users.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import PipelineError, UsageError

TESTED_SPARK = "4.0.0"
"""The version of pyspark that the tests run and that the extra installs. Some repositories lack the connectors of other versions."""
SCALA_VERSION = "2.13"
DELTA_VERSIONS = {"4.0": "4.0.0"}
"""Of Delta Lake, by that of Spark: only for these its jar is known to be right."""
OLDEST_SPARK = (4, 0)

# Every Spark distribution has these: fetching them again takes 60 MB and puts a second copy on the class path.
PROVIDED_BY_SPARK = (
    "com.google.code.findbugs:jsr305",
    "org.antlr:antlr4-runtime",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.lz4:lz4-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)

IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true"/>
  </resolvers>
</ivysettings>
"""


# The list of the connector's jars, written once they are all there.
FETCHED_JARS = "jars.txt"
FETCH_TIMEOUT_S = 600.0
_NOT_FOUND = re.compile(r"^\s*:: (\S+)#(\S+);(\S+): not found", re.MULTILINE)
_UNREACHABLE = re.compile(r"Server access error at url \S+ \((?:[\w.]+\.)?(\w+(?:: [^)]*)?)\)")


class ConnectorError(PipelineError):
    """The connector cannot be fetched. The message says what to do."""


def connector_coordinates(spark_version: str) -> str:
    """The Maven coordinates of the connector for this pyspark version. Raises ConnectorError for one that is too old."""
    release = spark_version.split(".dev")[0]
    if tuple(int(number) for number in release.split(".")[:2]) < OLDEST_SPARK:
        raise ConnectorError(f"pyspark {spark_version} is too old: the pipeline needs 4.0 or newer")
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{release}"


def delta_coordinates(spark_version: str) -> str:
    """The Maven coordinates of Delta Lake for this pyspark version. Raises ConnectorError for one that has none here."""
    release = ".".join(spark_version.split(".")[:2])
    if release not in DELTA_VERSIONS:
        raise ConnectorError(f"Delta Lake's jar for pyspark {spark_version} is not known here: give it and delta-storage by --jars FOLDER")
    return f"io.delta:delta-spark_{SCALA_VERSION}:{DELTA_VERSIONS[release]}"


def connector_settings(spark_version: str, cache_dir: Path, *, with_delta: bool = False) -> Mapping[str, str]:
    """Spark settings that give a session the connector from `cache_dir`, and Delta Lake. Fetches them into that folder first, if they are
    missing."""
    jars = _cached("Spark's Kafka connector", connector_coordinates(spark_version), cache_dir / f"spark-{spark_version}")
    if with_delta:
        jars += _cached("Delta Lake", delta_coordinates(spark_version), cache_dir / f"delta-for-spark-{spark_version}")
    return {"spark.jars": ",".join(jars)}


def _cached(what: str, coordinates: str, folder: Path) -> list[str]:
    remembered = folder / FETCHED_JARS
    jars = remembered.read_text().split("\n") if remembered.exists() else []
    if not jars or not all(Path(jar).exists() for jar in jars):
        print(f"barnabas pipeline: fetching {what} {coordinates} into {folder}", file=sys.stderr, flush=True)
        jars = fetch_jars(coordinates, folder, spark_submit())
        _write_whole(remembered, "\n".join(jars))
    return jars


def fetch_jars(coordinates: str, folder: Path, program: str) -> list[str]:
    """Fetches jars and their dependencies into `folder` with Spark's launcher, `program`. Raises ConnectorError."""
    folder.mkdir(parents=True, exist_ok=True)
    application = folder / "nothing.py"
    application.write_text("")
    settings = [word for key, value in fetch_settings(coordinates, folder).items() for word in ("--conf", f"{key}={value}")]
    try:
        outcome = subprocess.run(
            [program, "--master", "local[1]", *settings, str(application)],
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ConnectorError(f"{coordinates} cannot be fetched: {e}; {_remedy(with_version=False)}") from e
    jars = sorted(str(jar) for jar in (folder / "ivy" / "jars").glob("*.jar"))
    if outcome.returncode or not jars:
        raise ConnectorError(_fetch_failure(coordinates, outcome.stdout + outcome.stderr))
    return jars


def fetch_settings(coordinates: str, folder: Path) -> Mapping[str, str]:
    """Spark settings with which Ivy fetches the connector into `folder`, and looks nowhere else."""
    ivy_settings = folder / "ivysettings.xml"
    ivy_settings.write_text(IVY_SETTINGS)
    return {
        "spark.jars.packages": coordinates,
        "spark.jars.excludes": ",".join(PROVIDED_BY_SPARK),
        "spark.jars.ivySettings": str(ivy_settings),
        "spark.jars.ivy": str(folder / "ivy"),
    }


def spark_submit() -> str:
    """Spark's launcher inside the installed pyspark, found without importing pyspark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None, "the command has checked that pyspark is installed"
    return str(Path(found.origin).parent / "bin" / "spark-submit")


def _fetch_failure(coordinates: str, output: str) -> str:
    """One line of Ivy's sixty."""
    if unreachable := _UNREACHABLE.search(output):
        return f"{coordinates} cannot be fetched ({unreachable[1]}); {_remedy(with_version=False)}"
    if missing := _NOT_FOUND.search(output):
        return f"{':'.join(missing.groups())} not found; {_remedy(with_version=True)}"
    last_line = next((line.strip() for line in reversed(output.splitlines()) if line.strip() and not line.startswith("\t")), "no output")
    return f"{coordinates} cannot be fetched ({last_line}); {_remedy(with_version=False)}"


def _remedy(*, with_version: bool) -> str:
    other = f"use pyspark {TESTED_SPARK} ({sys.executable} -m pip install pyspark=={TESTED_SPARK}), or " if with_version else ""
    return f"{other}give its jars by --jars FOLDER (docs/pipeline.md names them)"


def jar_settings(paths: Sequence[str]) -> Mapping[str, str]:
    """Spark settings for existing jars: files, or folders with jars."""
    jars: list[str] = []
    for path in paths:
        found = sorted(str(jar) for jar in Path(path).glob("*.jar")) if Path(path).is_dir() else [path]
        if not found or not all("://" in jar or Path(jar).exists() for jar in found):
            raise UsageError(f"--jars {path}: there is no jar")
        jars += found
    return {"spark.jars": ",".join(jars)}


def default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


def _write_whole(path: Path, text: str) -> None:
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(text)
    scratch.rename(path)
