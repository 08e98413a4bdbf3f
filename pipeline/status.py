"""What an archive holds and how far it is: `barnabas pipeline status`. It writes nothing.

An archive on this machine is read without Spark: its folders, the footers of its files and its checkpoint. Another file system needs a
session, because only Hadoop's classes know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.footers import Contents, Damage, read_all
from barnabas.spark.archives.layout import CHECKPOINT, DATA_PATTERN, NO_BATCH, data_file_of
from barnabas.spark.archives.local_files import Files, FoundFile
from barnabas.spark.archives.reading import refuse_delta_table
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.fetching import LATEST, Isolation, list_offsets
from barnabas.spark.client.security import read_security
from pipeline.errors import PipelineError
from pipeline.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_DEADLINE_S = 20.0
HEADINGS = ("topic", "partitions", "records", "files", "bytes", "days", "archived to", "behind")


class StatusError(PipelineError):
    """There is no archive."""


@dataclass(slots=True)
class TopicStatus:
    """One topic of an archive."""

    topic: str
    records: int = 0
    files: int = 0
    size_bytes: int = 0
    days: set[str] = field(default_factory=set)
    archived_to: dict[int, int] = field(default_factory=dict)
    """By partition the offset of the next record to archive."""
    behind: int | None = None
    """Offsets from there to the topic's end. None if no broker was asked, or if they do not have the topic."""


@dataclass(frozen=True, slots=True)
class Status:
    """An archive. `batches` are those that its checkpoint has noted as done."""

    archive: str
    batches: int
    last_batch_ms: int | None
    topics: Sequence[TopicStatus]
    damaged: Sequence[Damage]


def read_status(files: Files, archive: str, checkpoint_folder: str | None, spark: SparkSession | None) -> Status:
    """Looks through an archive; with `spark` its records are counted there. Raises StatusError for a folder that is none,
    ArchiveError for a Delta table."""
    root = archive.rstrip("/")
    refuse_delta_table(files, root, "status")
    checkpoint = Checkpoint(files, checkpoint_folder or f"{root}/{CHECKPOINT}")
    found = files.glob_files(f"{root}/{DATA_PATTERN}")
    last = checkpoint.last_committed()
    if not found and last == NO_BATCH:
        raise StatusError(f"{archive} is no archive: it has neither records nor a checkpoint")
    topics: dict[str, TopicStatus] = {}
    for file in found:
        _add_file(topics, file)
    damaged: list[Damage] = []
    if spark is None:
        damaged = _add_contents(topics, read_all(file.path for file in found if data_file_of(file.path)))
    elif found:
        _add_rows(topics, spark, root)
    for topic, ends in checkpoint.ends_at(last).items():
        topics.setdefault(topic, TopicStatus(topic)).archived_to.update(ends)
    return Status(archive, last + 1, checkpoint.planned_ms(last), [topics[name] for name in sorted(topics)], damaged)


def add_behind(status: Status, servers: str, properties: Mapping[str, str]) -> None:
    """Asks the brokers for the ends of the topics. `properties` are a Java client's. Raises BrokerError."""
    security = read_security({f"kafka.{name}": text for name, text in properties.items()})
    cluster = Cluster(servers, security, deadline_s=ASK_DEADLINE_S)
    try:
        cluster.refresh([topic.topic for topic in status.topics])
        for topic in status.topics:
            found = cluster.topic(topic.topic)
            if found is None:
                continue
            ends = list_offsets(cluster, topic.topic, sorted(found.leaders), LATEST, Isolation.READ_COMMITTED)
            topic.behind = sum(max(0, end - topic.archived_to.get(number, 0)) for number, end in ends.items())
    finally:
        cluster.close()


def to_json(status: Status) -> dict[str, Any]:
    """Its facts for programs; keys are added, never changed."""
    topics = [
        {
            "topic": each.topic,
            "partitions": len(each.archived_to),
            "records": each.records,
            "files": each.files,
            "bytes": each.size_bytes,
            "first_day": min(each.days, default=None),
            "last_day": max(each.days, default=None),
            "archived_to": {str(number): offset for number, offset in sorted(each.archived_to.items())},
            "offsets_behind": each.behind,
        }
        for each in status.topics
    ]
    return {
        "archive": status.archive,
        "batches": status.batches,
        "last_batch": status.batches - 1 if status.batches else None,
        "last_batch_time": _time_text(status.last_batch_ms),
        "topics": topics,
        "damaged_files": [each._asdict() for each in status.damaged],
    }


def to_lines(status: Status) -> list[str]:
    """A line about the batches, then a table with a row for each topic."""
    lines = [f"{status.archive}: no batch is noted in the checkpoint"]
    if status.batches:
        when = _time_text(status.last_batch_ms) or "a time that is not noted any more"
        lines = [f"{status.archive}: {status.batches:,} batches, the last one of {when}"]
    is_asked = any(each.behind is not None for each in status.topics)
    rows = [HEADINGS if is_asked else HEADINGS[:-1]]
    for each in status.topics:
        days = min(each.days, default="-") if len(each.days) < 2 else f"{min(each.days)} to {max(each.days)}"
        ends = " ".join(f"{number}:{offset}" for number, offset in sorted(each.archived_to.items()))
        row = (each.topic, f"{len(each.archived_to)}", f"{each.records:,}", f"{each.files:,}", f"{each.size_bytes:,}", days, ends)
        rows.append((*row, "-" if each.behind is None else f"{each.behind:,}") if is_asked else row)
    return lines + table(rows)


def _time_text(time_ms: int | None) -> str | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _add_file(topics: dict[str, TopicStatus], file: FoundFile) -> None:
    what = data_file_of(file.path)
    if what is None:
        return  # somebody else's
    topic = topics.setdefault(what.topic, TopicStatus(what.topic))
    topic.files += 1
    topic.size_bytes += file.size_bytes
    topic.days.add(what.day)


def _add_contents(topics: Mapping[str, TopicStatus], contents: Iterable[tuple[str, Contents | Damage]]) -> list[Damage]:
    """Returns the files that cannot be read."""
    damaged = []
    for path, found in contents:
        what = data_file_of(path)
        assert what is not None, "only our own files were asked for"
        if isinstance(found, Damage):
            damaged.append(found)
            continue
        topic = topics[what.topic]
        topic.records += found.records
        for number, end in found.ends.items():
            topic.archived_to[number] = max(topic.archived_to.get(number, 0), end)
    return damaged


def _add_rows(topics: Mapping[str, TopicStatus], spark: SparkSession, root: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    rows = spark.read.parquet(root).groupBy("topic", "partition").agg(F.count("*").alias("records"), F.max("offset").alias("last"))
    for topic, partition, records, last in rows.collect():
        topics[topic].records += records
        topics[topic].archived_to[partition] = last + 1
