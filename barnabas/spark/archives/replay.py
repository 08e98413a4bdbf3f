"""Writes an archive back into a topic, each record once, by the sink `format("barnabas")`: `barnabas pipeline replay`.

The records are written in steps of offsets, each of them a batch of the sink: in its ledger is which one was decided last. So a replay that
was killed goes on there. What its steps are is fixed when it begins, in `_replays/<id>` of the archive: an archive grows meanwhile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ..sink.ledger import Ledger
from ..sink.options import read_options
from .hadoop_files import HadoopFiles
from .reading import ArchiveError, refuse_delta_table

REPLAYS = "_replays"
RECORDS_PER_STEP = 1_000_000
TASKS_LIMIT = 64
ORIGINAL, NOW = "original", "now"
Say = Callable[[str], None]
Show = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records: offsets and times (milliseconds since 1970) from one (inclusive) to another (exclusive). None for no limit."""

    source_topic: str
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def of(self, rows: DataFrame) -> DataFrame:
        time_ms = F.unix_millis("timestamp")
        limits = [
            None if self.from_offset is None else F.col("offset") >= self.from_offset,
            None if self.to_offset is None else F.col("offset") < self.to_offset,
            None if self.from_ms is None else time_ms >= self.from_ms,
            None if self.to_ms is None else time_ms < self.to_ms,
        ]
        return reduce(lambda found, limit: found.where(limit), (limit for limit in limits if limit is not None), rows)


class Range(NamedTuple):
    """Offsets of one partition; `end` is exclusive."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replay was begun with. Steps are counted from 0."""

    selection: Selection
    topic: str
    timestamps: str
    records: int
    step_offsets: int
    """Offsets of each partition in a step."""
    tasks: int
    ranges: tuple[Range, ...]

    @property
    def steps(self) -> int:
        return max(-(-(each.end - each.start) // self.step_offsets) for each in self.ranges)

    @property
    def owner(self) -> str:
        """Stands for the query that owns the sink."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    def rows_of(self, number: int) -> Column:
        """The condition of a step's records."""
        parts = []
        for each in self.ranges:
            start = each.start + number * self.step_offsets
            within = (F.col("offset") >= start) & (F.col("offset") < min(start + self.step_offsets, each.end))
            parts.append((F.col("partition") == each.partition) & within)
        return reduce(lambda one, other: one | other, parts)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
        told = json.loads(text)
        return Plan(**{**told, "selection": Selection(**told["selection"]), "ranges": tuple(Range(*each) for each in told["ranges"])})


def replay(
    spark: SparkSession,
    archive: str,
    topic: str,
    kafka: Mapping[str, str],
    *,
    id: str,
    selection: Selection | None = None,
    timestamps: str = ORIGINAL,
    records_per_step: int = RECORDS_PER_STEP,
    say: Say = lambda line: None,
    show: Show = lambda done, steps: None,
) -> int:
    """Write records of an archive into a topic that exists: key, value, headers, partition, the order within each partition, and their
    timestamps unless `timestamps` is "now". `kafka` are options of the sink. `id` names the replay: the same call again goes on with what
    is left, and writes nothing if nothing is. `show` is told how many steps are written of how many. Returns how many records the whole
    replay has.

    Raises ArchiveError for an archive or a topic that does not fit, also if `id` is of a replay with other options; BrokerError."""
    if timestamps not in (ORIGINAL, NOW):
        raise ArchiveError(f"timestamps are {ORIGINAL} or {NOW}, not {timestamps}")
    wanted = selection or Selection(topic)
    options = read_options({**kafka, "topic": topic}, sink=id)
    root = archive.rstrip("/")
    files = HadoopFiles(spark, root)
    refuse_delta_table(files, root, "replay")
    rows = wanted.of(_rows_of(spark, root, wanted.source_topic))
    cluster = options.open()
    cluster.refresh((topic,))
    existing = cluster.topic(topic)
    if existing is None:
        raise ArchiveError(f"topic {topic} does not exist at {options.servers}")
    plan = _plan(files, root, rows, wanted, topic, timestamps, records_per_step, id)
    needed = max(each.partition for each in plan.ranges) + 1
    if needed > existing.partitions_count:
        raise ArchiveError(f"topic {topic} has {existing.partitions_count} partitions, and the archive's records need {needed}")
    ledger = Ledger(cluster, options.ledger, id)
    ledger.prepare()
    decided = ledger.read().decision
    begin = 0 if decided is None else decided.batch + (1 if decided.is_done else 0)
    goes_on = f", from step {begin + 1} on" if begin else ""
    say(f"{plan.records:,} records of {wanted.source_topic} to {topic} in {plan.steps} steps{goes_on}; to go on after a kill: --id {id}")
    show(begin, plan.steps)
    for number in range(begin, plan.steps):
        step = rows.where(plan.rows_of(number)).repartition(plan.tasks, "partition").sortWithinPartitions("partition", "offset")
        columns = ["partition", "key", "value", "headers", *(["timestamp"] if timestamps == ORIGINAL else [])]
        own = {"id": id, "topic": topic, "batch": str(number), "owner": plan.owner}
        own["timestamps"] = "column" if timestamps == ORIGINAL else "now"
        step.select(*columns).write.format("barnabas").options(**kafka, **own).mode("append").save()
        say(f"step {number + 1} of {plan.steps} is written")
        show(number + 1, plan.steps)
    return plan.records


def _rows_of(spark: SparkSession, root: str, topic: str) -> DataFrame:
    try:
        rows = spark.read.option("mergeSchema", "true").parquet(f"{root}/topic={topic}")
    except AnalysisException as error:
        raise ArchiveError(f"{root} holds no records of topic {topic}") from error
    missing = {"key", "value"} - set(rows.columns)
    if missing:
        raise ArchiveError(f"{root} was archived without the raw {min(missing)}: it cannot be replayed")
    return rows


def _plan(
    files: HadoopFiles, root: str, rows: DataFrame, wanted: Selection, topic: str, timestamps: str, records_per_step: int, name: str
) -> Plan:
    """That of an earlier run, or a new one, which is kept."""
    path = f"{root}/{REPLAYS}/{name}"
    if files.exists(path):
        plan = Plan.from_json(files.read_text(path))
        if (plan.selection, plan.topic, plan.timestamps) != (wanted, topic, timestamps):
            raise ArchiveError(f"the replay {name} was begun with other options: give those, or another id ({path} has them)")
        return plan
    seen = rows.groupBy("partition").agg(F.min("offset"), F.max("offset"), F.count("*")).orderBy("partition").collect()
    if not seen:
        raise ArchiveError(f"{root} holds no such records of topic {wanted.source_topic}")
    ranges = tuple(Range(partition, first, last + 1) for partition, first, last, _ in seen)
    plan = Plan(
        wanted, topic, timestamps, sum(row[3] for row in seen), max(1, records_per_step // len(seen)), min(len(seen), TASKS_LIMIT), ranges
    )
    files.make_directories(f"{root}/{REPLAYS}")
    files.write_text(path, plan.to_json())
    return plan
