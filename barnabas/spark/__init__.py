"""Spark and Kafka's protocol without a JAR: a source, a sink that writes each row once, and the lag of queries. `format("barnabas")`; see
docs/pipeline.md.

This runs in processes that are not ours: Spark's driver and its Python workers, where a module of the user's may be called `protocol` or
`config`. So it reaches our folders as parts of `barnabas` alone, by relative imports. In a checkout `barnabas/protocol` is a link to
`protocol/`, in a wheel it is the folder itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.streaming.query import StreamingQuery

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
