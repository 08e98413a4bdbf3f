"""Spark's view of source and sink: `format("barnabas")`.

Spark makes a DefaultSource in the process that plans a batch, and pickles it for the processes that commit or abort. So what has to be
done once a batch, before it is planned, is done by `streamWriter` of an object that was not unpickled.

Source: pyspark.sql.datasource, pyspark.sql.worker (4.0.0).
"""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)

from .client.fetching import EARLIEST
from .errors import OptionError
from .records.batches import schema_text
from .sink import protocol
from .sink.options import SinkOptions, read_options
from .sink.protocol import Plan, Work, Written
from .sink.rows import check_schema
from .source import offsets as positions
from .source import options as source_options
from .source.options import SourceOptions
from .source.reading import ranges_between, read_range
from .stream_reader import OffsetRange, StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Local properties that Spark sets for the tasks of a stream."""


class Message(WriterCommitMessage):
    """What a task returns."""

    def __init__(self, written: Written) -> None:
        self.written = written


class DefaultSource(DataSource):
    """The name by which Spark finds it in the module pyspark_barnabas."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_planning = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_is_planning": False}

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str:
        return schema_text(has_headers=source_options.read_options(self.options).has_headers)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(source_options.read_options(self.options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 (Spark's name)
        return _stream_reader_class()(source_options.read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        texts = self.options
        if "batch" in {key.lower() for key in texts}:  # one of the batches of a sink that goes on
            options = read_options(texts)
        else:
            options = read_options({key: text for key, text in texts.items() if key.lower() != "id"}, sink=f"write-{uuid.uuid4()}")
        _check(schema, options)
        return BatchWriter(options, protocol.recover(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 (Spark's name)
        options = read_options(self.options)
        if options.batch is not None:
            raise OptionError("the option 'batch' is for df.write: a stream numbers its batches itself")
        _check(schema, options)
        return StreamWriter(options, protocol.recover(options) if self._is_planning else None)


class BatchReader(DataSourceReader):
    """`spark.read`: from startingOffsets (earliest) to endingOffsets."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[OffsetRange]:
        cluster = self._options.open()
        start = positions.starting_offsets(cluster, self._options, default=EARLIEST)
        end = positions.ending_offsets(cluster, self._options)
        return [OffsetRange(part) for part in ranges_between(start, end, self._options, cluster)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, partition.part)


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one decision, and nothing is left in the ledger unless it is a batch of a sink with an id."""

    def __init__(self, options: SinkOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return _write(self._options, self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        protocol.commit(self._options, self._options.batch, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        protocol.abort(self._options, self._options.batch, _written(messages))


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):
    """`df.writeStream`. It is an arrow writer too, so that tasks get record batches; Spark asks for both by isinstance."""

    def __init__(self, options: SinkOptions, plan: Plan | None) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        assert self._plan is not None, "tasks get the object that has planned"
        return _write(self._options, self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        protocol.commit(self._options, batchId, _written(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        protocol.abort(self._options, batchId, _written(messages))


def _stream_reader_class() -> type[StreamReader]:
    """Which reader this pyspark can use."""
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        return StreamReader
    from .admission import AdmissionReader

    return AdmissionReader


def _check(schema: StructType, options: SinkOptions) -> None:
    check_schema(
        {field.name: field.dataType.simpleString() for field in schema.fields}, options.topic, takes_timestamps=options.takes_timestamps
    )


def _write(options: SinkOptions, plan: Plan, iterator: Iterator[pa.RecordBatch]) -> Message:
    context = TaskContext.get()
    assert context is not None, "tasks have a context"
    batch = context.getLocalProperty(BATCH_ID)
    is_own = options.batch is not None
    work = Work(
        query=options.owner if is_own else context.getLocalProperty(QUERY_ID) or "",
        batch=options.batch if is_own or batch is None else int(batch),
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
    )
    return Message(protocol.write(options, plan, work, iterator))


def _written(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [message.written for message in messages if isinstance(message, Message)]
