"""An archive as a DataFrame, whatever is wrong with single files of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ..errors import BarnabasError
from .layout import DELTA_LOG
from .local_files import Files

SCHEMA = """
    topic string, day string, partition int, offset long, timestamp timestamp, key binary, value binary,
    headers array<struct<key: string, value: binary>>
"""
DAMAGED_LIMIT = 100
"""Files that are left out, one after another, before a job gives up: each of them costs a run."""
_FILE_OF_ERROR = re.compile(r"(?:while reading file|reading file:|File does not exist:|File) ((?:[a-z0-9]+:/|/)\S+?\.parquet)\b")
Result = TypeVar("Result")


class ArchiveError(BarnabasError):
    """A folder is no archive, or an archive does not fit what is asked."""


def refuse_delta_table(files: Files, root: str, job: str) -> None:
    """Raises ArchiveError for an archive that is a Delta table: its folders have files that are no part of it any more. `job` cannot read
    it."""
    if files.exists(f"{root}/{DELTA_LOG}"):
        raise ArchiveError(f"{root} is a Delta table, which Delta reads and merges itself: {job} is for archives of Parquet files")


class DamagedFile(BarnabasError):  # noqa: N818 - it is found, and is not raised
    """A file that cannot be read, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.path = path
        self.reason = reason


def read_records(spark: SparkSession, archive: str, *, except_files: Iterable[str] = ()) -> DataFrame:
    """All records, in the columns of SCHEMA, whose types hold whatever the session infers; a column that the files do not have is null. The
    checksums of pages are checked. No file is opened before an action. `except_files` are whole paths."""
    reader = spark.read.schema(SCHEMA).option("parquet.page.verify-checksum.enabled", "true").option("basePath", archive)
    rows = reader.parquet(archive)
    # Spark leaves files out by one spelling of their path, before it opens them, and rows by another.
    left_out = sorted({spelling for path in except_files for spelling in (path, path.replace(":///", ":/", 1))})
    return rows.where(~F.col("_metadata.file_path").isin(left_out)) if left_out else rows


def despite_damage(run: Callable[[Iterable[str]], Result], is_there: Callable[[str], bool]) -> tuple[Result, list[DamagedFile]]:
    """What `run` returns, which gets the paths of files to leave out. It is called again, without the file, for each that cannot be read.

    Raises its exception if that names no file, or one that is not there any more, and after DAMAGED_LIMIT files."""
    damaged: dict[str, DamagedFile] = {}
    while True:
        try:
            return run(list(damaged)), list(damaged.values())
        except (PySparkException, Py4JJavaError) as error:
            found = _damaged_file(error)
            if found is None or found.path in damaged or len(damaged) >= DAMAGED_LIMIT or not is_there(found.path):
                raise
            damaged[found.path] = found


def _damaged_file(error: Exception) -> DamagedFile | None:
    """The file that an exception of Spark is about, from the messages of its causes."""
    messages = [str(error)]
    cause: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while cause is not None:
        messages.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    for message in messages:
        found = _FILE_OF_ERROR.search(message)
        if found:
            reason = messages[-1].strip().splitlines()[0]
            return DamagedFile(found[1], reason)
    return None
