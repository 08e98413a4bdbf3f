"""Builds the Spark session that a pipeline job runs in. Called by the commands only; transforms never see it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.spark import prepare
from barnabas.spark.delta import SETTINGS as DELTA_SETTINGS
from pipeline.connector import connector_settings, default_cache_dir, jar_settings
from pipeline.driver import Driver
from pipeline.errors import PipelineError

# The archive's format needs these, even if the cluster has other defaults.
JOB_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, is deprecated and has no unit
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a topic named 007 stays one
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "5s",  # without a limit, a job waits a minute for brokers that do not answer before it stops
}
LOG_SETTINGS_FILE = Path(__file__).with_name("log4j2.properties")
# A local session has one user: it needs no web page, and no DNS lookup of this machine's name.
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# The level of LOG_SETTINGS_FILE. Spark prints a line for every level that is set, so this one is not set.
SILENT = "OFF"
OLDEST_JAVA = 17
JAVA_TIMEOUT_S = 20.0
INSTALL_JAVA = "sudo apt-get install -y openjdk-17-jre-headless"
TRACEBACK = "Traceback (most recent call last):"
_RAISED_IN_PYTHON = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE)
# The parts of a message around its sentence: [CONDITION], Java class names, the query's ids, SQLSTATE.
_NOISE = re.compile(
    r"Query \[[^]]*\] terminated with exception: |\[[A-Z_.]+\]\s*|(?:[\w$]+\.)+[\w$]+(?:Exception|Error):\s*|\s+SQLSTATE: \w+$"
)


class SessionError(PipelineError):
    """Spark did not start; the message is one line."""


def open_session(
    app_name: str,
    *,
    master: str,
    jars: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    log_level: str = SILENT,
    cache_dir: Path | None = None,
    driver: Driver | None = None,
    with_delta: bool = False,
) -> SparkSession:
    """A session on `master` with the Kafka connector, and with Delta Lake if it is asked for. Both are fetched unless there are `jars`. The
    caller ends `driver`; without one, Java ends with this process."""
    cache = cache_dir or default_cache_dir()
    require_java(os.environ)
    prepare()
    connector = jar_settings(jars) if jars else connector_settings(pyspark.__version__, cache, with_delta=with_delta)
    conf = SparkConf().setAppName(app_name).setMaster(master)
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    logging = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS_FILE.as_uri()}"}
    if log_level != SILENT:
        logging["spark.log.level"] = log_level
    delta = DELTA_SETTINGS if with_delta else {}
    for key, value in {**connector, **logging, **JOB_SETTINGS, **delta, **local, **(settings or {})}.items():
        conf.set(key, value)
    try:
        (driver or Driver()).start(conf)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
        if with_delta:
            _require_delta(spark)
        return spark
    except (PySparkException, OSError) as e:
        why = one_sentence(str(e))
        raise SessionError(f"Spark did not start on {master}: {why} (--log-level ERROR shows Spark's own log)") from e


def _require_delta(spark: SparkSession) -> None:
    """Raises SessionError, and stops the session, if it has no Delta Lake: Spark starts without it and fails at the first table."""
    assert spark._jvm is not None
    try:
        spark._jvm.org.apache.spark.util.Utils.classForName(DELTA_SETTINGS["spark.sql.extensions"], True, False)
    except Py4JJavaError as e:
        spark.stop()
        raise SessionError("Delta Lake is not among the jars: give delta-spark_2.13 and delta-storage by --jars too") from e


def require_java(environ: Mapping[str, str]) -> None:
    """Raises SessionError if Spark's scripts would find no Java, or one that is too old. They use JAVA_HOME if it is set, else the PATH."""
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environ.get("PATH", ""))
    if java is None and home:
        raise SessionError(f"Spark needs Java 17 or 21, and JAVA_HOME names {home}, which has no bin/java")
    if java is None:
        raise SessionError(f"Spark needs Java 17 or 21, and there is none on the PATH; on Debian and Ubuntu: {INSTALL_JAVA}")
    version = _java_version(java)
    if version is not None and version < OLDEST_JAVA:
        raise SessionError(f"Spark needs Java 17 or 21, and {java} is Java {version}; on Debian and Ubuntu: {INSTALL_JAVA}")


def _java_version(java: str) -> int | None:
    """The major version, for example 17. None if it cannot be read."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown)  # Java 8 prints 1.8
    return int(match[1]) if match else None


def one_sentence(text: str) -> str:
    """The first line of a message of Spark or of a Java exception, without class names and ids; of one of its Python processes, what the
    exception there says."""
    raised = _RAISED_IN_PYTHON.findall(text.partition(TRACEBACK)[2])
    if raised:
        return str(raised[-1])
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return _NOISE.sub("", line)
