"""Builds the Spark session that a pipeline job runs in. Called by the commands only; transforms never see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.connector import connector_settings, default_cache_dir, jar_settings, remember_jars

# What the archive's files need, whatever the cluster's own defaults are.
JOB_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, is deprecated and has no unit
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a topic named 007 stays one
    "spark.ui.showConsoleProgress": "false",
}
LOG_SETTINGS_FILE = Path(__file__).with_name("log4j2.properties")
# A local session serves nobody else: no web page, and no question to DNS what this machine is called.
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SessionError(Exception):
    """Spark did not start; the message is one line."""


def open_session(
    app_name: str,
    *,
    master: str,
    jars: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    log_level: str = "OFF",
    cache_dir: Path | None = None,
) -> SparkSession:
    """A session on `master` with the Kafka connector in it. The connector is fetched unless `jars` holds it."""
    cache = cache_dir or default_cache_dir()
    connector = jar_settings(jars) if jars else connector_settings(pyspark.__version__, cache)
    builder = SparkSession.builder.appName(app_name).master(master).config("spark.log.level", log_level)
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    logging = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS_FILE.as_uri()}"}
    for key, value in {**connector, **logging, **JOB_SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, OSError) as e:
        raise SessionError(f"Spark did not start: {str(e).splitlines()[0]}") from e
    if "spark.jars.packages" in connector:
        remember_jars(pyspark.__version__, cache, session.sparkContext.getConf().get("spark.jars", "").split(","))
    return session
