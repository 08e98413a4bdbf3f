"""Compares an archive with the topics that it was made from, by Spark: `barnabas pipeline verify`.

Each offset that a topic still has, between where the archive begins and ends, has to be in the archive once and with the same content. A
record of both becomes a row of four numbers (topic aside), the last one a hash of 64 bits of key, value, headers and timestamp; one shuffle
brings the rows of an offset together. What the topic does not have any more cannot be compared: it is counted.

An archive goes on being written meanwhile. What is compared ends where the archive ended at the start: with the last batch that its
checkpoint has noted as done, whose files are all in their places by then. Later batches are left alone. `compact` may put other files in
the place of those that are read: what is found wrong counts only if the files were the same before and after; otherwise all is compared
again, on a local disk as soon as that `compact` has ended.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ..client.cluster import Cluster, open_cluster
from ..client.fetching import EARLIEST, LATEST, Isolation, list_offsets
from ..client.security import read_security
from .changes import await_compaction, is_compacted_now
from .checkpoint import Checkpoint
from .hadoop_files import ArchiveFileError, HadoopFiles
from .layout import CHECKPOINT, COMPACTION, DATA_PATTERN, DEAD_LETTERS, PLAN, STAGING, batch_of_decision, data_file_of, topic_of_folder
from .local_files import local_path_of
from .manifest import read_manifest
from .reading import ArchiveError, despite_damage, read_records, refuse_delta_table

SERVERS = "kafka.bootstrap.servers"
SUBSCRIPTION = "_subscription.json"
FINDINGS_LIMIT = 1000
MISSING, TWICE, DIFFERS = "missing", "twice", "differs"
LOST_FILE, CUT_FILE, UNREADABLE_FILE, UNPUBLISHED_FILE = "file missing", "file cut", "file unreadable", "file not published"
UNFINISHED = "compaction not finished"
MATCHES, DELETED, ABSENT = "matches", "deleted since", "not in the topic"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of every topic, from brokers without topic ids."""
ATTEMPTS_COUNT = 3
"""How often an archive is compared that `compact` changes meanwhile, and a small file is read that a job replaces."""

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong with `count` records of consecutive offsets, or with a file; what does not apply is None."""

    kind: str
    topic: str | None
    partition: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    count: int | None = None
    file: str | None = None
    detail: str | None = None


class Verification(NamedTuple):
    """`findings` are at most as many as were asked for; `counts` has the records of each kind and the files, all of them."""

    findings: Sequence[Finding]
    counts: Mapping[str, int]
    matching: int
    deleted: int
    """Records of the archive whose offsets the topic has deleted since: by retention, by hand, or with the topic."""
    absent: int
    """Records of the archive that are not in the topic where it still has others: compaction took them."""

    @property
    def is_whole(self) -> bool:
        return not self.counts


class Bounds(NamedTuple):
    """Of one partition: the offsets that are compared are in `start` (inclusive) to `end` (exclusive). `archive_end`: up to where it
    reaches."""

    topic: str
    partition: int
    start: int
    end: int
    archive_end: int


def verify(
    spark: SparkSession,
    archive: str,
    kafka: Mapping[str, str],
    *,
    topics: Sequence[str] | None = None,
    checkpoint: str | None = None,
    source: str = "barnabas",
    findings_limit: int = FINDINGS_LIMIT,
    say: Callable[[str], None] = lambda line: None,
) -> Verification:
    """Compare an archive with its topics, all of them or these. `kafka` are options of the source after `kafka.`, the servers among them.
    `source` is "barnabas" or, where Spark's connector is and no Python on the workers, "kafka". `checkpoint` is where the archive's
    progress is, if that is not in the archive. `say` is told what is compared, and why it takes longer.

    Jobs may archive and compact meanwhile: it compares what was archived when it began. Raises ArchiveError if the archive is none, or is
    not of these topics, or if its files change all the time; BrokerError; what Spark raises."""
    root = archive.rstrip("/")
    files = HadoopFiles(spark, root)
    refuse_delta_table(files, root, "verify")
    progress = Checkpoint(HadoopFiles(spark, checkpoint or root), checkpoint or f"{root}/{CHECKPOINT}")
    local_root = files.local_path(root)
    for _ in range(ATTEMPTS_COUNT):
        last = progress.last_committed()
        before = _older_files(files, root, last)
        say(f"comparing {archive} as of its batch {last} with the topics")
        try:
            found = _compare(spark, files, root, progress, last, kafka, topics, source, findings_limit)
        except (PySparkException, Py4JJavaError, ArchiveFileError):
            if not _has_changed(files, root, last, before):
                raise
        else:
            if found.is_whole or not _has_changed(files, root, last, before):
                return found
        if is_compacted_now(local_root):
            say("compact changes the archive's files; once it has ended, they are compared again")
            await_compaction(local_root)
        else:
            say("compact has changed the archive's files; they are compared again")
    raise ArchiveError(f"compact has changed the files of {archive} {ATTEMPTS_COUNT} times meanwhile: verify it when no compact runs")


def _has_changed(files: HadoopFiles, root: str, last: int, before: set[str]) -> bool:
    """Also while a `compact` moves files: what it has hidden is missing the whole time."""
    return _older_files(files, root, last) != before or (is_compacted_now(files.local_path(root)) and bool(_plans(files, root)))


def _older_files(files: HadoopFiles, root: str, last: int) -> set[str]:
    """The files of batches up to `last`, and those of `compact`: archiving does not change them."""
    found = set()
    for path in files.glob(f"{root}/{DATA_PATTERN}"):
        what = data_file_of(path)
        if what is not None and (what.batch is None or what.batch <= last):
            found.add(path)
    return found


def _compare(
    spark: SparkSession,
    files: HadoopFiles,
    root: str,
    progress: Checkpoint,
    last: int,
    kafka: Mapping[str, str],
    topics: Sequence[str] | None,
    source: str,
    findings_limit: int,
) -> Verification:
    """Up to batch `last`. What it finds may be wrong if the files change meanwhile."""
    begins, ends = progress.begins(), progress.ends_at(last)
    dead_letters = files.glob(f"{root}/{DEAD_LETTERS}/topic=*/day=*")
    has_dead_letters = bool(dead_letters)
    folders = files.glob(f"{root}/topic=*/day=*") + dead_letters
    there = {topic_of_folder(folder) for folder in folders} | ends.keys()
    if not there:
        raise ArchiveError(f"{root} is no archive: it has neither records nor a checkpoint")
    chosen = there if topics is None else set(topics)
    if unknown := sorted(chosen - there):
        raise ArchiveError(f"{root} has no topic {unknown[0]}")
    found = list(_file_findings(files, root, [folder for folder in folders if topic_of_folder(folder) in chosen], last))
    cluster = open_cluster(kafka.get(SERVERS, ""), read_security(kafka))
    left_out = _left_out(spark, [file.path for folder in folders[:1] for file in files.glob_files(f"{folder}/*.parquet")])

    def compare(except_files: Iterable[str]) -> tuple[dict[str, int], list[Finding]]:
        rows = read_records(spark, root, except_files=except_files)
        if has_dead_letters:
            rows = rows.unionByName(read_records(spark, f"{root}/{DEAD_LETTERS}", except_files=except_files))
        rows = rows if topics is None else rows.where(F.col("topic").isin(sorted(chosen)))
        extent = _extent_of(rows, begins, {topic: offsets for topic, offsets in ends.items() if topic in chosen})
        bounds = _bounds(cluster, *extent, known=_topic_ids(files, root), archive=root)
        judged = _judged(spark, rows, bounds, _topic_rows(spark, source, kafka, bounds), left_out)
        return _findings(judged, findings_limit)

    (counts, of_records), damaged = despite_damage(compare, files.exists)
    found += [_of_file(UNREADABLE_FILE, each.path, each.reason) for each in damaged]
    told = {kind: counts.pop(kind, 0) for kind in (MATCHES, DELETED, ABSENT)}
    for each in found:
        counts[each.kind] = counts.get(each.kind, 0) + 1
    return Verification([*found, *of_records][:findings_limit], counts, told[MATCHES], told[DELETED], told[ABSENT])


# -- files ---------------------------------------------------------------------------------------------------------------


def _file_findings(files: HadoopFiles, root: str, folders: Sequence[str], last: int) -> Iterable[Finding]:
    """Files that are noted and not there, or have another size, and those of a batch that is done and were never moved to their places."""
    for folder in folders:
        noted, there = _noted_and_there(files, folder)
        for name, size in noted.items():
            path = f"{folder}/{name}"
            if name not in there:
                yield _of_file(LOST_FILE, path, f"it had {size} bytes")
            elif there[name] != size:
                yield _of_file(CUT_FILE, path, f"it has {there[name]} bytes instead of {size}")
    for plan in _plans(files, root):
        yield _of_file(UNFINISHED, plan, "compact was killed, or runs now; its next run ends it")
    for name in files.names(f"{root}/{STAGING}"):
        batch = batch_of_decision(name)
        if batch is not None and batch <= last:
            attempt = _text_of(files, f"{root}/{STAGING}/{name}")
            if attempt is None:
                continue  # the next batch has a decision by now
            for file in files.glob_files(f"{root}/{STAGING}/{attempt}/topic=*/day=*/*.parquet"):
                yield _of_file(UNPUBLISHED_FILE, file.path, f"batch {batch} is not whole without it")


def _plans(files: HadoopFiles, root: str) -> list[str]:
    """Of a `compact` that moves files, or was killed doing so."""
    return files.glob(f"{root}/{COMPACTION}/*/{PLAN}")


def _noted_and_there(files: HadoopFiles, folder: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """The sizes of a folder's files by name: as noted, and as they are. A name is never used again, and a file is noted once it is in its
    place: so what was noted before and after the files were listed has to be among them."""
    before = _manifest_of(files, folder)
    there = {file.path.rpartition("/")[2]: file.size_bytes for file in files.glob_files(f"{folder}/*.parquet")}
    after = _manifest_of(files, folder)
    return {name: size for name, size in before.items() if after.get(name) == size}, there


def _manifest_of(files: HadoopFiles, folder: str) -> Mapping[str, int]:
    """A job that replaces the list meanwhile may take it away between two steps."""
    for _ in range(ATTEMPTS_COUNT - 1):
        try:
            return read_manifest(files, folder) or {}
        except ArchiveFileError:
            continue
    return read_manifest(files, folder) or {}


def _text_of(files: HadoopFiles, path: str) -> str | None:
    """None for a file that is not there any more."""
    try:
        return files.read_text(path)
    except ArchiveFileError:
        if files.exists(path):
            raise
        return None


def _of_file(kind: str, path: str, detail: str) -> Finding:
    what = data_file_of(path)
    return Finding(kind, None if what is None else what.topic, file=local_path_of(path) or path, detail=detail)


def _topic_ids(files: HadoopFiles, root: str) -> Mapping[str, str]:
    """The ids that the archive's job has noted."""
    text = _text_of(files, f"{root}/{SUBSCRIPTION}")
    ids: Mapping[str, str] = {} if text is None else json.loads(text).get("topic_ids", {})
    return ids


# -- offsets -------------------------------------------------------------------------------------------------------------


def _extent_of(rows: DataFrame, begins: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
    """Where the archive begins and ends, by the checkpoint; what that does not say, by the records."""
    found_begins = {topic: dict(offsets) for topic, offsets in begins.items()}
    found_ends = {topic: dict(offsets) for topic, offsets in ends.items()}
    if not ends:
        seen = rows.groupBy("topic", "partition").agg(F.min("offset"), F.max("offset")).collect()
        for topic, partition, first, last in seen:
            found_begins.setdefault(topic, {}).setdefault(partition, first)
            found_ends.setdefault(topic, {}).setdefault(partition, last + 1)
    return found_begins, found_ends


def _bounds(cluster: Cluster, begins: Offsets, ends: Offsets, *, known: Mapping[str, str], archive: str) -> list[Bounds]:
    """Of each partition of the archive. A topic that the cluster does not have any more begins at its end: it cannot be compared."""
    found = []
    cluster.refresh(ends)
    for topic, of_topic in ends.items():
        existing = cluster.topic(topic)
        if existing is not None:
            now = base64.urlsafe_b64encode(existing.topic_id).decode().rstrip("=")
            if known.get(topic, NO_ID) not in (now, NO_ID) and now != NO_ID:
                raise ArchiveError(f"topic {topic} was deleted and made again since {archive} was begun: its offsets are of other records")
        numbers = [number for number in sorted(of_topic) if existing is not None and number in existing.leaders]
        firsts = list_offsets(cluster, topic, numbers, EARLIEST) if numbers else {}
        lasts = list_offsets(cluster, topic, numbers, LATEST, Isolation.READ_COMMITTED) if numbers else {}
        for number, end in of_topic.items():
            start = max(begins.get(topic, {}).get(number, 0), firsts.get(number, end))
            found.append(Bounds(topic, number, min(start, end), max(min(start, end), min(end, lasts.get(number, end))), end))
    return found


def _topic_rows(spark: SparkSession, source: str, kafka: Mapping[str, str], bounds: Sequence[Bounds]) -> DataFrame | None:
    """The topics' records within the bounds; None if there are none. What retention deletes meanwhile is left out."""
    wanted = [each for each in bounds if each.start < each.end]
    if not wanted:
        return None

    def by_topic(value: str) -> dict[str, dict[str, int]]:
        told: dict[str, dict[str, int]] = {}
        for each in wanted:
            told.setdefault(each.topic, {})[str(each.partition)] = getattr(each, value)
        return told

    assigned = {topic: [int(number) for number in numbers] for topic, numbers in by_topic("start").items()}
    options = {
        **kafka,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(by_topic("start")),
        "endingOffsets": json.dumps(by_topic("end")),
        "includeHeaders": "true",
        "failOnDataLoss": "false",
    }
    return spark.read.format(source).options(**options).load()


# -- records -------------------------------------------------------------------------------------------------------------


def _left_out(spark: SparkSession, paths: Sequence[str]) -> set[str]:
    """The raw columns that an archive with typed ones does not have, by the newest of these files that can be read."""
    for path in reversed(paths):
        try:
            return {"key", "value"} - set(spark.read.parquet(path).columns)
        except (PySparkException, Py4JJavaError):
            continue  # it is damaged, which is found later
    return set()


def _fingerprint(left_out: set[str]) -> Column:
    """A hash of what is archived of a record. Spark's hash passes over nulls, so each has a flag."""
    headers = F.coalesce("headers", F.array().cast("array<struct<key: string, value: binary>>"))
    flagged = F.transform(headers, lambda header: F.struct(header["key"], header["value"].isNull(), header["value"]))
    raw = [part for name in ("key", "value") if name not in left_out for part in (F.col(name).isNull(), F.col(name))]
    return F.xxhash64(*raw, flagged, F.unix_millis("timestamp"))


def _judged(spark: SparkSession, rows: DataFrame, bounds: Sequence[Bounds], topic_rows: DataFrame | None, left_out: set[str]) -> DataFrame:
    """A row for each offset of the archive or the topic: topic, partition, offset, kind."""
    nothing = F.lit(None).cast("long")
    place = ["topic", "partition", "offset"]
    archived = rows.select(*place, _fingerprint(left_out).alias("archived"), nothing.alias("kept"))
    whole = archived
    if topic_rows is not None:
        whole = archived.unionByName(topic_rows.select(*place, nothing.alias("archived"), _fingerprint(left_out).alias("kept")))
    limits = spark.createDataFrame(list(bounds), "topic string, partition int, start long, end long, archive_end long")
    per_offset = (
        whole.groupBy(*place)
        .agg(
            F.count("archived").alias("copies"),
            F.min("archived").alias("archived"),
            F.max("kept").alias("kept"),
        )
        .join(F.broadcast(limits), ["topic", "partition"], "left")
    )
    # A partition without an end is one of a batch that is not done yet: those of topics that are gone have one.
    is_beyond = (F.col("offset") >= F.col("archive_end")) | F.col("archive_end").isNull()
    kind = (
        F.when(F.col("copies") > 1, TWICE)
        .when(is_beyond, None)  # of a batch that is not done yet
        .when(F.col("kept").isNull() & (F.col("offset") < F.col("start")), DELETED)
        .when(F.col("kept").isNull(), ABSENT)
        .when(F.col("copies") == 0, MISSING)
        .when(F.col("archived") != F.col("kept"), DIFFERS)
        .otherwise(MATCHES)
    )
    return per_offset.select(*place, kind.alias("kind"))


def _findings(judged: DataFrame, limit: int) -> tuple[dict[str, int], list[Finding]]:
    """Runs it: how many records there are of each kind, and the findings; consecutive offsets of a kind are one. One query has both, so
    that what comes before, the shuffle included, runs once."""
    columns = ["kind", "topic", "partition", "first", "last", "count"]
    counts = judged.where(F.col("kind").isNotNull()).groupBy("kind").agg(F.count("*").alias("count"))
    nothing = {"topic": "string", "partition": "int", "first": "long", "last": "long"}
    counts = counts.select("kind", *(F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()), "count")
    by_kind = Window.partitionBy("topic", "partition", "kind").orderBy("offset")
    wrong = judged.where(F.col("kind").isin(MISSING, TWICE, DIFFERS)).withColumn("run", F.col("offset") - F.row_number().over(by_kind))
    runs = wrong.groupBy("topic", "partition", "kind", "run").agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("count")
    )
    runs = runs.orderBy("topic", "partition", "first", "kind").limit(limit).select(*columns)
    rows = counts.unionByName(runs).collect()
    told = {row["kind"]: int(row["count"]) for row in rows if row["topic"] is None}
    found = [Finding(*(row[name] for name in columns)) for row in rows if row["topic"] is not None]
    return told, sorted(found, key=lambda each: (each.topic, each.partition, each.first_offset))
