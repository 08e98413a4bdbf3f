"""Where Spark gets its Kafka source and sink from: the connector's coordinates and the settings that fetch it.

The connector is no part of pyspark, and must have pyspark's own version. Spark fetches it with Ivy, which by default looks
into the user's local Maven repository first and fails when that holds a pom without its jar. So Ivy is given settings
with one resolver, Maven's public central repository, and a cache folder that nobody else writes to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

SCALA_VERSION = "2.13"
OLDEST_SPARK = (4, 0)

# Every Spark distribution has these: fetching them again takes 60 MB and puts a second copy on the class path.
PROVIDED_BY_SPARK = (
    "com.google.code.findbugs:jsr305",
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


# The list of the connector's jars, written once a session has started with them.
FETCHED_JARS = "jars.txt"


class ConnectorError(Exception):
    """The connector cannot be had; the message says what a person can do."""


def connector_coordinates(spark_version: str) -> str:
    """The Maven coordinates of the connector for this pyspark version. Raises ConnectorError for one that is too old."""
    release = spark_version.split(".dev")[0]
    if tuple(int(number) for number in release.split(".")[:2]) < OLDEST_SPARK:
        raise ConnectorError(f"pyspark {spark_version} is too old: the pipeline needs 4.0 or newer")
    return f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{release}"


def connector_settings(spark_version: str, cache_dir: Path) -> Mapping[str, str]:
    """Spark settings that give a session the connector: from `cache_dir`, or fetched into it when it is not there yet."""
    folder = _version_folder(spark_version, cache_dir)
    remembered = folder / FETCHED_JARS
    if remembered.exists():
        jars = remembered.read_text().split("\n")
        if all(Path(jar).exists() for jar in jars):
            return {"spark.jars": ",".join(jars)}
    return _fetch_settings(spark_version, folder)


def remember_jars(spark_version: str, cache_dir: Path, jars: Sequence[str]) -> None:
    """Notes what a session that fetched the connector has, so that the next one starts without Ivy and without a network."""
    remembered = _version_folder(spark_version, cache_dir) / FETCHED_JARS
    scratch = remembered.with_suffix(f".{os.getpid()}")
    scratch.write_text("\n".join(jar.removeprefix("file://") for jar in jars))
    scratch.rename(remembered)


def jar_settings(paths: Sequence[str]) -> Mapping[str, str]:
    """Spark settings for jars that are there already: files, or folders of which every jar is taken."""
    jars: list[str] = []
    for path in paths:
        found = sorted(str(jar) for jar in Path(path).glob("*.jar")) if Path(path).is_dir() else [path]
        if not found:
            raise ConnectorError(f"no jars in {path}")
        jars += found
    return {"spark.jars": ",".join(jars)}


def default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


def _version_folder(spark_version: str, cache_dir: Path) -> Path:
    return cache_dir / f"spark-{spark_version}"


def _fetch_settings(spark_version: str, folder: Path) -> Mapping[str, str]:
    coordinates = connector_coordinates(spark_version)
    folder.mkdir(parents=True, exist_ok=True)
    ivy_settings = folder / "ivysettings.xml"
    ivy_settings.write_text(IVY_SETTINGS)
    return {
        "spark.jars.packages": coordinates,
        "spark.jars.excludes": ",".join(PROVIDED_BY_SPARK),
        "spark.jars.ivySettings": str(ivy_settings),
        "spark.jars.ivy": str(folder / "ivy"),
    }
