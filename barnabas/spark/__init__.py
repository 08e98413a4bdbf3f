"""Spark and Kafka's protocol without a JAR: a source, a sink that writes each row once, and the lag of queries. `format("barnabas")`; and
what `barnabas pipeline` does with archives, in a session of one's own. See docs/pipeline.md.

This runs in processes that are not ours: Spark's driver and its Python workers, where a module of the user's may be called `protocol` or
`config`. So it reaches our folders as parts of `barnabas` alone, by relative imports. In a checkout `barnabas/protocol` is a link to
`protocol/`, in a wheel it is the folder itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery

    from .archives.compaction import Compacted
    from .archives.verification import Verification

INTERPRETER = "PYSPARK_PYTHON"


def prepare() -> None:
    """Call this before the first SparkSession. Spark looks for data sources, and runs their code, with the `python3` of the PATH unless
    PYSPARK_PYTHON says otherwise: this names the interpreter that runs now, where barnabas is installed."""
    os.environ.setdefault(INTERPRETER, sys.executable)


def commit_progress(
    of: StreamingQuery | SparkSession, group: str, kafka: Mapping[str, str], *, registry: CollectorRegistry | None = None
) -> StreamingQueryListener:
    """Note how far a query is in `group`, after each batch, for kafka-consumer-groups and others that watch lag. `of` is a query, or a
    session for all of its queries from now on. Any source of Kafka's offsets will do: Spark's own `kafka`, and `barnabas`. `kafka` are its
    options kafka.bootstrap.servers, kafka.security.protocol, kafka.ssl.… and kafka.sasl.…; others are left alone.

    With `registry`, of prometheus-client, there are metrics of rows, offsets and lag. The group is written only: a query neither begins at
    its offsets nor follows them, and what fails is a warning of the logger `barnabas.spark`. Returns the listener, which
    `spark.streams.removeListener` removes. OptionError for an option that cannot be used."""
    from .progress import listen

    return listen(of, group, kafka, registry)


def append_to_delta(rows: DataFrame, batch_id: int, path: str, *, application: str, partition_by: Sequence[str] = ()) -> None:
    """For `foreachBatch`: appends a batch to a Delta table once, however often Spark runs it. `application` names the query for the table's
    life; one with a new checkpoint, which counts batches from 0 again, needs another name. The session needs Delta's jar and
    `barnabas.spark.delta.SETTINGS`. Columns that the table lacks are added. A batch that has other rows when it is run again keeps those of
    the first time."""
    from .delta import append_once

    append_once(rows, path, application=application, version=batch_id, partition_by=partition_by)


def decode(
    rows: DataFrame, column: str, format: str, *, into: str | None = None, topic: str | None = None, registry_login: str | None = None
) -> DataFrame:
    """`rows` with two more columns: `into` (typed_COLUMN unless set) has what is in `column`, a binary one, by its schema, and `problem`
    why it cannot be decoded. One of the two is null, both are for null. For both key and value call it twice: the first problem stays.

    `format` is json:FILE, avro:FILE, protobuf:FILE#MESSAGE, or with Confluent's header confluent-json:FILE,
    confluent-protobuf:FILE#MESSAGE, confluent-avro:REGISTRY-OR-FOLDER#SUBJECT-OR-FILE; docs/pipeline.md says what the files are. Without a
    subject it is that of `topic`.
    `registry_login` is user:password. Works for streams too. No row is lost and none fails a task; a registry that stays away does.
    Raises OptionError."""
    from .formats.decode import decode

    return decode(rows, column, format, into=into, topic=topic, registry_login=registry_login)


def verify(
    spark: SparkSession,
    archive: str,
    kafka: Mapping[str, str],
    *,
    topics: Sequence[str] | None = None,
    checkpoint: str | None = None,
    source: str = "barnabas",
    findings_limit: int = 1000,
    say: Callable[[str], None] | None = None,
) -> Verification:
    """What `barnabas pipeline verify` does: compare an archive with its topics, all of them or these. The result says whether the archive
    `is_whole`, and has `findings`, at most `findings_limit`, and `counts` by kind, of all.

    `kafka` are the source's options after `kafka.`, the servers among them; `source` is "barnabas", or "kafka" where the session has
    Spark's connector and the workers lack Barnabas. `checkpoint` is the archive's unless it is in the archive. `say` gets lines for people.
    Raises ArchiveError for a folder that is no archive of these topics; BrokerError; what Spark raises."""
    from .archives.verification import verify

    told = say or _say_nothing
    return verify(spark, archive, kafka, topics=topics, checkpoint=checkpoint, source=source, findings_limit=findings_limit, say=told)


def compact(
    spark: SparkSession,
    archive: str,
    *,
    before_day: date | None = None,
    target_bytes: int = 256 << 20,
    say: Callable[[Compacted], None] | None = None,
) -> list[Compacted]:
    """What `barnabas pipeline compact` does: merge the small files of each topic and day, of days (UTC) before `before_day`, or of all.
    Files of at least half of `target_bytes` stay. `say` is told of each folder when it is done.

    It may be killed at any moment and run again; what is done stays. Raises ArchiveError, OptionError; what Spark raises."""
    from .archives.compaction import compact
    from .errors import OptionError

    if target_bytes < 1:
        raise OptionError(f"target_bytes is {target_bytes}: a file has at least one byte")
    day = None if before_day is None else before_day.strftime("%Y-%m-%d")
    return compact(spark, archive, before_day=day, target_bytes=target_bytes, say=say)


def replay(
    spark: SparkSession,
    archive: str,
    topic: str,
    kafka: Mapping[str, str],
    *,
    id: str,
    source_topic: str | None = None,
    from_offset: int | None = None,
    to_offset: int | None = None,
    from_time: datetime | None = None,
    to_time: datetime | None = None,
    timestamps: str = "original",
    records_per_step: int = 1_000_000,
    say: Callable[[str], None] | None = None,
) -> int:
    """What `barnabas pipeline replay` does: write archived records of `source_topic` (`topic` unless set) into a topic that exists, each
    once by the sink `format("barnabas")`. Key, value, headers, partition and the order within each partition are kept, and the timestamps
    unless `timestamps` is "now". Offsets and times choose the records, from one (inclusive) to another (exclusive); a time without a zone
    is UTC.

    `kafka` are the sink's options. `id` names the replay: the same call again goes on with what is left, and writes nothing if nothing is.
    A step is one batch of the sink. `say` gets lines for people. Returns how many records the whole replay has.
    Raises ArchiveError for an archive or a topic that does not fit, also if `id` is of a replay with other options; OptionError,
    BrokerError; what Spark raises."""
    from .archives.replay import Selection, replay

    chosen = Selection(source_topic or topic, from_offset, to_offset, _milliseconds(from_time), _milliseconds(to_time))
    told = say or _say_nothing
    return replay(spark, archive, topic, kafka, id=id, selection=chosen, timestamps=timestamps, records_per_step=records_per_step, say=told)


def _milliseconds(time: datetime | None) -> int | None:
    """Since 1970."""
    if time is None:
        return None
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (aware - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def _say_nothing(line: str) -> None:
    pass
