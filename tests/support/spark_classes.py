"""Spark's JVMs of the tests start with an archive of classes, which the first run of Spark tests makes in the virtual environment.

A JVM that runs one small job has used 12 seconds of CPU with the quick compiler alone, half of them for loading and checking classes; with
the archive it uses 6. The archive is one of Java's dynamic ones (JEP 350): it belongs to one Java and one class path, and a JVM that
cannot use it runs without.

python -m tests.support.spark_classes runs the jobs whose classes are archived.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from tests.support.process import cache_dir, checkout

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Spark's processes in tests: they do not live long enough for the second compiler to give back the time that it takes."""
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Options of drivers' JVMs, and of a standalone cluster's daemons."""
SILENT = "-Xlog:disable"
"""A JVM that cannot use an archive says so on its standard output otherwise."""
MAKE_TIMEOUT_S = 300


def set_options(environment: MutableMapping[str, str]) -> None:
    """The options of Spark's JVMs that are started with this environment, unless it has some."""
    archive = archive_path()
    shared = f" {SILENT} -XX:SharedArchiveFile={archive}" if archive is not None and archive.exists() else ""
    for variable in VARIABLES:
        if environment.get(variable, SHORT_LIVED_JVM) == SHORT_LIVED_JVM:
            environment[variable] = SHORT_LIVED_JVM + shared


def archive_path() -> Path | None:
    """Of this Java, this pyspark and its folder. None without a Java, a pyspark or a virtual environment."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    pyspark = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "pyspark"
    if java is None or sys.prefix == sys.base_prefix or not (pyspark / "version.py").exists():
        return None
    about = (os.path.realpath(java), os.stat(java).st_mtime_ns, str(pyspark), (pyspark / "version.py").stat().st_mtime_ns)
    return Path(sys.prefix) / f"spark-classes-{hashlib.sha256(repr(about).encode()).hexdigest()[:12]}.jsa"


def make_archive() -> None:
    """Returns when the archive is there, or cannot be made; at once if another process makes it now."""
    archive = archive_path()
    if archive is None or archive.exists():
        return
    with open(f"{archive}.lock", "w") as lock, contextlib.suppress(OSError, subprocess.TimeoutExpired):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        made = f"{archive}.{os.getpid()}"
        environment = {**os.environ, VARIABLES[0]: f"{SHORT_LIVED_JVM} {SILENT} -XX:ArchiveClassesAtExit={made}"}
        command = [sys.executable, "-m", "tests.support.spark_classes"]
        subprocess.run(command, cwd=checkout(), env=environment, capture_output=True, timeout=MAKE_TIMEOUT_S, check=False)
        if os.path.exists(made):
            os.replace(made, archive)


def main() -> int:
    """What most tests do with Spark: tables in Parquet, shuffles, joins, windows, a stream."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    from pipeline.driver import Driver
    from pipeline.session import open_session

    driver = Driver()
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(
            "classes", master="local[1]", settings={"spark.sql.shuffle.partitions": "1"}, cache_dir=cache_dir() / "barnabas", driver=driver
        )
        columns = [
            "id",
            "cast(id as string) as key",
            "binary(cast(id as string)) as value",
            "'2026-03-01' as day",
            "current_timestamp() as at",
        ]
        spark.range(100).selectExpr(*columns).repartition(2, "key").sortWithinPartitions("id").write.partitionBy("day").parquet(
            f"{folder}/t"
        )
        rows = spark.read.option("mergeSchema", "true").parquet(f"{folder}/t")
        counts = rows.groupBy("day").agg(F.count("*").alias("n"), F.max("id"), F.xxhash64(F.max("value")))
        rows.join(F.broadcast(counts), "day").withColumn("row", F.row_number().over(Window.partitionBy("day").orderBy("id"))).collect()
        rows.where(F.col("id") >= 3).orderBy("id").limit(3).collect()
        spark.createDataFrame([("a", 1)], "name string, number int").unionByName(spark.sql("select 'b' as name, 2 as number")).collect()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/t").writeStream.option("checkpointLocation", f"{folder}/c")
        stream.foreachBatch(lambda batch, number: batch.write.parquet(f"{folder}/out-{number}")).trigger(availableNow=True).start()
        for query in spark.streams.active:
            query.awaitTermination()
        spark.stop()
        driver.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
