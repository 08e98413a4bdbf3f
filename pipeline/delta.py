"""An archive that is a Delta table: how a batch comes into it.

    _delta_log/, topic=T/day=YYYY-MM-DD/…   the table, which is the archive's folder
    _dead_letters/                          the dead letters, a Delta table of their own
    _staging/, _checkpoint/                 as in an archive of Parquet files

A batch is staged and decided as there (publication.py), so that a batch that is run again has the same rows and the same dead letters,
whatever a schema registry says by then. Then it is appended to each table in one commit, with the query's id and the batch's number, by
which Delta leaves out what it has. A batch that the checkpoint has planned otherwise since (after a power cut took its end) cannot be taken
back out of a Delta table (RESTORE leaves the transaction's identifier): the job refuses it. For that, and for a checkpoint of another
table, each commit has a note, its userMetadata. Notes are read when the job starts: no other makes such commits meanwhile (ownership.py).
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its usual name)

from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.layout import DATA_PATTERN, DEAD_LETTERS, DELTA_LOG, data_file_of, topic_of_folder
from barnabas.spark.delta import append_once
from pipeline.publication import PublicationError, Publisher, batch_prefix
from pipeline.transforms import LAYOUT_COLUMNS

RECENT_COMMITS = 20
"""So many of a table's commits are looked at before all of them: those that others have made, OPTIMIZE for one, have no note."""
NOTE = re.compile(r"barnabas-archive ([^ ]+) batch-(\d+)-([0-9a-f]+)")


class Note(NamedTuple):
    """Which batch of which query a commit has added, and by which plan."""

    query: str
    batch_id: int
    plan: str


class DeltaPublisher(Publisher):
    """Publishes the batches of one streaming query into one Delta table."""

    def __init__(self, spark: SparkSession, files: HadoopFiles, root: str, checkpoint: Checkpoint) -> None:
        super().__init__(files, root, checkpoint)
        self._spark = spark
        self._tables = (self._root, f"{self._root}/{DEAD_LETTERS}")
        self._notes: dict[str, Note | None] = {}

    def open(self) -> Set[str]:
        """As for Parquet files: PublicationError if table and checkpoint do not belong together."""
        if not self._has_table(self._root) and any(data_file_of(path) for path in self._files.glob(f"{self._root}/{DATA_PATTERN}")):
            raise PublicationError(
                f"{self._root} is an archive of Parquet files: go on without --table-format delta, or take another folder"
            )
        self._check_decision()
        committed = self._checkpoint.last_committed()
        self._notes = {table: self._last_note(table) for table in self._tables}
        for note in self._notes.values():
            if note is not None and (note.query != self._checkpoint.query_id() or note.batch_id > committed + 1):
                raise PublicationError(
                    f"{self._root} holds batch {note.batch_id} of the query {note.query}, and the checkpoint {self._checkpoint.folder} is "
                    f"of {self._checkpoint.query_id() or 'none'} and ends before batch {committed + 1}: it is not this table's, or an "
                    "older copy; use the right one, or archive to another folder"
                )
        return {topic_of_folder(path) for table in self._tables for path in self._files.glob(f"{table}/topic=*/day=*")}

    def _apply(self, attempt: str, batch_id: int, batch: str) -> None:
        for table in self._tables:
            note = self._notes[table]
            if note is not None and note.batch_id == batch_id and f"{batch_prefix(batch_id)}{note.plan}" != batch:
                raise PublicationError(
                    f"{table} has batch {batch_id} already, and the checkpoint {self._checkpoint.folder} has lost it and planned it "
                    "otherwise: archive to another folder"
                )
        query = self._checkpoint.query_id()
        for table, staged in zip(self._tables, (attempt, f"{attempt}/{DEAD_LETTERS}"), strict=True):
            if self._files.glob(f"{staged}/topic=*/day=*/*.parquet"):
                rows = self._spark.read.option("basePath", staged).parquet(f"{staged}/topic=*").withColumn("day", F.col("day").cast("date"))
                append_once(
                    rows,
                    table,
                    application=f"barnabas-archive {query}",
                    version=batch_id,
                    partition_by=LAYOUT_COLUMNS,
                    note=f"barnabas-archive {query} {batch}",
                )

    def _has_table(self, table: str) -> bool:
        return self._files.exists(f"{table}/{DELTA_LOG}")

    def _last_note(self, table: str) -> Note | None:
        """Of the newest commit that a job of ours has made. None if there is none, or if Delta has forgotten it since."""
        if not self._has_table(table):
            return None
        # By Delta's own API: SQL takes a relative path for a name, and makes a folder spark-warehouse in the current one.
        delta: Any = self._spark._jvm.io.delta.tables.DeltaTable.forPath(self._spark._jsparkSession, table)  # type: ignore[union-attr]
        for commits in (delta.history(RECENT_COMMITS), delta.history()):
            history = DataFrame(commits, self._spark).where("userMetadata IS NOT NULL").orderBy(F.desc("version"))
            for row in history.select("userMetadata").toLocalIterator():
                if found := NOTE.fullmatch(row["userMetadata"]):
                    return Note(found[1], int(found[2]), found[3])
        return None
