"""Many small files of a topic and day become few: `barnabas pipeline compact`. No reader sees a record twice, and a kill at any moment
leaves nothing wrong that the next run does not mend.

Spark writes the new files of a folder under `_compaction/<id>/new`, where readers do not look. Then they take the place of the old ones:

On a local disk  a folder is made with the new files and links to those that stay. One call of the system lets it change places with the
                 old folder: what lists it finds all old files or all new ones, also after a kill.
Elsewhere        single files are moved, as `_compaction/<id>/plan` says; all old ones go away before the first new one comes. Readers that
                 list in between miss records for that moment. After a kill in it the next run finishes the plan.

A reader that has listed the old files and has not opened them finds them gone, and has to list again. What it has read is not in the new
files' names, which are never used again.

Files of the newest decided batch stay as they are: archiving may have to publish that batch again, and knows them by name.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from .changes import changing, compacting
from .exchange import exchange, sync
from .hadoop_files import HadoopFiles
from .layout import COMPACTION, NO_BATCH, PLAN, STAGING, batch_of_decision, data_file_of, topic_of_folder
from .local_files import FoundFile
from .manifest import NAME as MANIFEST
from .manifest import manifest_text, read_manifest, write_manifest
from .reading import ArchiveError, refuse_delta_table

TARGET_BYTES = 256 << 20
NO_STEP: Callable[[str], None] = lambda name: None  # noqa: E731 - a value
NO_SHOW: Callable[[int, int], None] = lambda done, folders: None  # noqa: E731 - a value
Step = Callable[[str], None]


class Compacted(NamedTuple):
    """What has become of a folder."""

    topic: str
    day: str
    files_before: int
    files_after: int
    records: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The change of one folder. Paths are whole ones; `outputs` are names in `scratch`/new, and the names that they get."""

    folder: str
    scratch: str
    inputs: Sequence[str]
    outputs: Sequence[str]

    def to_json(self) -> str:
        return json.dumps({"folder": self.folder, "inputs": list(self.inputs), "outputs": list(self.outputs)})


def compact(
    spark: SparkSession,
    archive: str,
    *,
    before_day: str | None = None,
    target_bytes: int = TARGET_BYTES,
    say: Callable[[Compacted], None] | None = None,
    show: Callable[[int, int], None] = NO_SHOW,
    step: Step = NO_STEP,
) -> list[Compacted]:
    """Merge the small files of each folder of a topic and day, of days before `before_day` (YYYY-MM-DD) or of all. Files of at least half
    of `target_bytes` stay. `say` is told of each folder when it is done, `show` how many are done of how many. Raises ArchiveError,
    ArchiveFileError, and what Spark raises; folders that are done stay so, and another run goes on with the rest."""
    root = archive.rstrip("/")
    files = HadoopFiles(spark, root)
    local_root = files.local_path(root)
    if not files.exists(root):
        raise ArchiveError(f"{archive} does not exist")
    refuse_delta_table(files, root, "compact")
    # Timestamps as the archive has them, whatever the caller's session writes.
    spark = spark.newSession()
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    done = []
    with compacting(local_root):
        finish(files, root)
        candidates = list(_candidates(files, root, before_day, target_bytes))
        show(0, len(candidates))
        for folder, inputs in candidates:
            made = _compact_folder(spark, files, root, folder, inputs, target_bytes, step)
            done.append(made)
            if say is not None:
                say(made)
            show(len(done), len(candidates))
    return done


def finish(files: HadoopFiles, root: str) -> None:
    """Ends what a killed run has begun: carries out its plan if there is one, and removes its files if there is none. The caller holds
    `compacting`."""
    for name in files.names(f"{root}/{COMPACTION}"):
        scratch = f"{root}/{COMPACTION}/{name}"
        if files.exists(f"{scratch}/{PLAN}"):
            told = json.loads(files.read_text(f"{scratch}/{PLAN}"))
            with changing(files.local_path(root)):
                _move(files, Plan(told["folder"], scratch, told["inputs"], told["outputs"]), NO_STEP)
        files.delete(scratch)


def _candidates(files: HadoopFiles, root: str, before_day: str | None, target_bytes: int) -> Iterator[tuple[str, list[FoundFile]]]:
    """Each folder with the files to merge, where that makes fewer of them."""
    newest = max((batch for name in files.names(f"{root}/{STAGING}") if (batch := batch_of_decision(name)) is not None), default=NO_BATCH)
    for folder in files.glob(f"{root}/topic=*/day=*"):
        if before_day is not None and folder.rsplit("day=", 1)[1] >= before_day:
            continue
        small = []
        for file in files.glob_files(f"{folder}/*.parquet"):
            what = data_file_of(file.path)
            if what is not None and (what.batch is None or what.batch < newest) and file.size_bytes < target_bytes / 2:
                small.append(file)
        if len(small) > _outputs_count(small, target_bytes):
            yield folder, small


def _outputs_count(inputs: Sequence[FoundFile], target_bytes: int) -> int:
    return max(1, math.ceil(sum(file.size_bytes for file in inputs) / target_bytes))


def _compact_folder(
    spark: SparkSession, files: HadoopFiles, root: str, folder: str, inputs: Sequence[FoundFile], target_bytes: int, step: Step
) -> Compacted:
    number = uuid.uuid4().hex[:12]
    scratch = f"{root}/{COMPACTION}/{number}"
    paths = [file.path for file in inputs]
    # The types are those of the files, which may have more columns than ours.
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    records = rows.count()
    count = _outputs_count(inputs, target_bytes)
    parts = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, "partition", "offset")
    parts.sortWithinPartitions("partition", "offset").write.parquet(f"{scratch}/written")
    step("written")
    outputs: list[str] = []
    files.make_directories(f"{scratch}/new")
    for name in files.names(f"{scratch}/written"):
        if name.endswith(".parquet") and not name.startswith((".", "_")):
            outputs.append(f"compact-{number}-{len(outputs):05d}.parquet")
            files.move(f"{scratch}/written/{name}", f"{scratch}/new/{outputs[-1]}")
    written = spark.read.parquet(f"{scratch}/new").count()
    if written != records:
        raise ArchiveError(f"{folder} has {records} records, and {written} were written: nothing was changed")
    _replace(files, root, Plan(folder, scratch, [path.rpartition("/")[2] for path in paths], outputs), step)
    files.delete(scratch)
    return Compacted(topic_of_folder(folder), folder.rsplit("day=", 1)[1], len(paths), len(outputs), records)


def _replace(files: HadoopFiles, root: str, plan: Plan, step: Step) -> None:
    """Puts the new files in the place of the old ones, in whichever way the file system allows."""
    local_root, local_folder, local_scratch = (files.local_path(path) for path in (root, plan.folder, plan.scratch))
    if local_scratch is not None:
        for name in plan.outputs:  # the old files, which are on the disk by now, go away
            sync(f"{local_scratch}/new/{name}")
    with changing(local_root) as is_locked:
        there = set(files.names(plan.folder))
        if not there.issuperset(plan.inputs):
            raise ArchiveError(f"files of {plan.folder} have gone while they were compacted: nothing was changed")
        if is_locked and local_folder is not None and local_scratch is not None:
            try:
                _exchange(files, plan, Path(local_folder), Path(local_scratch) / "new", step)
                return
            except OSError:
                pass  # nothing has changed: this file system cannot do it
        files.write_text(f"{plan.scratch}/{PLAN}", plan.to_json())
        step("planned")
        _move(files, plan, step)


def _exchange(files: HadoopFiles, plan: Plan, folder: Path, new: Path, step: Step) -> None:
    """OSError if it cannot be done."""
    for path in folder.iterdir():
        if path.name not in plan.inputs and not path.name.startswith(MANIFEST) and not (new / path.name).exists():
            os.link(path, new / path.name)
    (new / MANIFEST).write_text(manifest_text(_noted_after(files, plan, f"{plan.scratch}/new")))
    sync(str(new / MANIFEST))
    sync(str(new))
    step("linked")
    exchange(str(new), str(folder))
    step("exchanged")
    for changed in (folder.parent, new.parent):
        sync(str(changed))


def _move(files: HadoopFiles, plan: Plan, step: Step) -> None:
    """Carries out a plan, or the rest of one."""
    noted = _noted_after(files, plan, f"{plan.scratch}/new")
    files.make_directories(f"{plan.scratch}/old")
    for name in plan.inputs:
        if files.exists(f"{plan.folder}/{name}"):
            files.move(f"{plan.folder}/{name}", f"{plan.scratch}/old/{name}")
            step("hidden")
    for name in plan.outputs:
        if files.exists(f"{plan.scratch}/new/{name}"):
            files.move(f"{plan.scratch}/new/{name}", f"{plan.folder}/{name}")
            step("published")
    write_manifest(files, plan.folder, noted)
    step("noted")


def _noted_after(files: HadoopFiles, plan: Plan, new: str) -> dict[str, int]:
    """What the folder's list says when the plan has been carried out."""
    noted = {name: size for name, size in (read_manifest(files, plan.folder) or {}).items() if name not in plan.inputs}
    for place in (new, plan.folder):
        for file in files.glob_files(f"{place}/*.parquet"):
            name = file.path.rpartition("/")[2]
            if name in plan.outputs:
                noted[name] = file.size_bytes
    return noted
