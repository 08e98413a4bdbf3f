"""Publishes one batch's files in an archive, so that every reader sees each record at most once at any moment, and once in the end.

An archive is a folder of Parquet files that any reader may list at any time, without an index:

    topic=T/day=YYYY-MM-DD/batch-<id>-<plan>-<number>.parquet   what readers see
    topic=T/day=YYYY-MM-DD/_files                               which files those are, for `verify`: noted when they have been published
    _dead_letters/topic=T/day=…/batch-….parquet                 records that could not be decoded; readers skip names with _
    _staging/batch-<id>-<plan>-<attempt>/topic=T/day=…/…        files of one attempt of a batch, its dead letters in _dead_letters/ there
    _staging/batch-<id>-<plan>                                  a small file with the name of the chosen attempt
    _checkpoint/                                                Spark's own, unless it has another place

A batch is identified by Spark's batch id and its plan, a digest of its offsets in the checkpoint. It is published in three steps. Spark
writes an attempt in a folder of its own (executors of a killed driver may still write theirs). One move writes the decision for it. Then
its files are moved one by one to names that depend only on the batch. A crash before the decision leaves nothing visible; after a later
crash the next run of the batch finishes the moves. Only moves of single files need be atomic. If the checkpoint has planned the batch
again (after a power cut took its end), the files of the old plan are removed first, so that a batch is replaced whole.

One process at a time may publish into an archive (ownership.py).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Set

from barnabas.spark.archives.changes import changing
from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.layout import DATA_PATTERN, DEAD_LETTERS, DELTA_LOG, NO_BATCH, STAGING, data_file_of
from barnabas.spark.archives.manifest import read_manifest, write_manifest
from pipeline.errors import PipelineError

PLACES = ("", f"{DEAD_LETTERS}/")
"""Of topics' folders in an archive, and in an attempt."""


class PublicationError(PipelineError):
    """The archive and its checkpoint do not belong together, or another program has changed the archive."""


class Publisher:
    """Publishes the batches of one streaming query into one archive. Owns everything under `root` but the checkpoint."""

    def __init__(self, files: HadoopFiles, root: str, checkpoint: Checkpoint) -> None:
        """The checkpoint may be on another file system than the archive."""
        self._files = files
        self._root = root.rstrip("/")
        self._staging = f"{self._root}/{STAGING}"
        self._checkpoint = checkpoint
        self._unsettled: Mapping[int, list[str]] = {}

    def open(self) -> Set[str]:
        """Checks that at most one batch is published beyond the checkpoint's last batch; that one may be incomplete. Returns the topics of
        all published batches before it. Writes nothing.

        Raises PublicationError if there are more, or if the checkpoint's last batch is missing: then the checkpoint belongs to another
        archive, or one of them is an older copy, and the job would archive records twice, or leave some out.
        """
        self._refuse_other_format()
        committed = self._checkpoint.last_committed()
        unsettled: dict[int, list[str]] = {}
        topics: set[str] = set()
        for path in (path for place in PLACES for path in self._files.glob(f"{self._root}/{place}{DATA_PATTERN}")):
            what = data_file_of(path)
            if what is not None and what.batch is not None and what.batch > committed:
                unsettled.setdefault(what.batch, []).append(path)
            elif what is not None:  # compact makes files of batches that are done
                topics.add(what.topic)
        if max(unsettled, default=NO_BATCH) > committed + 1:
            raise PublicationError(
                f"{self._root} holds batch {max(unsettled)}, but the checkpoint {self._checkpoint.folder} ends before batch "
                f"{committed + 1}: it is not this archive's, or an older copy; use the right one, or archive to another folder"
            )
        if unsettled and self._checkpoint.last_planned() == NO_BATCH:
            raise PublicationError(
                f"{self._root} holds records, and the checkpoint {self._checkpoint.folder} is a new one: "
                "use the archive's own, or archive to another folder"
            )
        self._check_decision()
        self._unsettled = unsettled
        return topics

    def _refuse_other_format(self) -> None:
        if self._files.exists(f"{self._root}/{DELTA_LOG}"):
            raise PublicationError(f"{self._root} is a Delta table: go on with --table-format delta, or archive to another folder")

    def _check_decision(self) -> None:
        """Raises PublicationError if the checkpoint's last batch is not of this archive."""
        committed = self._checkpoint.last_committed()
        if committed > NO_BATCH and not self._has_decided(committed):
            raise PublicationError(
                f"the checkpoint {self._checkpoint.folder} ends with batch {committed}, which {self._root} does not hold: it is not this "
                "archive's, or the archive is an older copy; use the right one, or archive to another folder"
            )

    def publish(self, batch_id: int, write: Callable[[str], None]) -> None:
        """Makes the batch visible. `write(folder)` writes its rows there by topic and day. It is not called if a killed run had decided on
        files for the same plan: readers may have seen these, so their moves are finished.
        """
        batch = f"{batch_prefix(batch_id)}{self._checkpoint.plan_digest(batch_id)}"
        decision = f"{self._staging}/{batch}"
        if not self._files.exists(decision):
            with changing(self._files.local_path(self._root)):
                self._remove_other_plans(batch_id)
            self._files.make_directories(self._staging)
            attempt = f"{batch}-{uuid.uuid4().hex}"
            write(f"{self._staging}/{attempt}")
            self._files.write_text(decision, attempt)
        attempt = self._files.read_text(decision)
        self._apply(f"{self._staging}/{attempt}", batch_id, batch)
        self._clean_staging(keep=batch)

    def _apply(self, attempt: str, batch_id: int, batch: str) -> None:
        """Makes a decided attempt visible, as far as it is not."""
        with changing(self._files.local_path(self._root)):
            self._move_files(attempt, batch)

    def _has_decided(self, batch_id: int) -> bool:
        """Whether the batch has a decision. It stays until the next batch has one."""
        prefixes = (batch_prefix(batch_id), batch_prefix(batch_id + 1))
        return any(name.startswith(prefixes) for name in self._files.names(self._staging))

    def _remove_other_plans(self, batch_id: int) -> None:
        for path in self._unsettled.get(batch_id, ()):
            folder, _, name = path.rpartition("/")
            noted = read_manifest(self._files, folder) or {}
            if name in noted:
                write_manifest(self._files, folder, {other: size for other, size in noted.items() if other != name})
            self._files.delete(path)

    def _move_files(self, attempt: str, batch: str) -> None:
        for place in PLACES:
            for folder in self._files.glob(f"{attempt}/{place}topic=*/day=*"):
                self._move_folder(folder, place, batch)

    def _move_folder(self, folder: str, place: str, batch: str) -> None:
        topic, day = folder.split("/")[-2:]
        target = f"{self._root}/{place}{topic}/{day}"
        self._files.make_directories(target)
        for name in self._files.names(folder):
            if name.endswith(".parquet") and not name.startswith((".", "_")):
                self._files.move(f"{folder}/{name}", f"{target}/{batch}-{_task_number(name)}.parquet")
        # All files of the batch: a run that was killed may have moved some of them.
        published = self._files.glob_files(f"{target}/{batch}-*.parquet")
        noted = read_manifest(self._files, target) or {}
        write_manifest(self._files, target, {**noted, **{file.path.rpartition("/")[2]: file.size_bytes for file in published}})

    def _clean_staging(self, keep: str) -> None:
        """Removes all attempts (the chosen one's files were moved) and the decisions of older batches. This batch's decision, `keep`, stays
        until the next one: if Spark is killed before it has noted the batch's end, it runs the batch again."""
        for name in self._files.names(self._staging):
            if name != keep:
                self._files.delete(f"{self._staging}/{name}")


def batch_prefix(batch_id: int) -> str:
    return f"batch-{batch_id:012d}-"


def _task_number(spark_name: str) -> str:
    """The number in part-00003-….c000.snappy.parquet and, where a task wrote several files, its piece."""
    match = re.match(r"part-(\d+)-.*?\.c(\d+)\.", spark_name)
    if match is None:
        raise PublicationError(f"not a file that Spark writes: {spark_name}")
    return match[1] + match[2]
