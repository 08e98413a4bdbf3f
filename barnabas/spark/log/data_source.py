"""Spark's view of log directories: `spark.read.format("barnabas-log").load("/var/lib/kafka/data")`, a task for each segment.

Source: pyspark.sql.datasource (4.0.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..records.batches import schema_text
from .audit import Audit
from .options import LogOptions, read_options
from .partitions import PartitionDirectory, Segment, find_partitions, find_segments
from .reading import check_columns, read_segment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


FINDINGS_TEXT = "topic string, partition int, file string, position long, offset long, problem string"


class DefaultSource(DataSource):
    """The name by which Spark finds it in the module pyspark_barnabas_log."""

    @classmethod
    def name(cls) -> str:
        return "barnabas-log"

    def schema(self) -> str:
        options = read_options(self.options)
        return FINDINGS_TEXT if options.is_audit else schema_text(has_headers=options.has_headers)

    def reader(self, schema: StructType) -> LogReader | AuditReader:
        options = read_options(self.options)
        return AuditReader(options) if options.is_audit else LogReader(options)


class SegmentPartition(InputPartition):
    """What one task reads."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


class LogReader(DataSourceReader):
    """Finds the segments on the driver; the workers read them."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> list[SegmentPartition]:
        return [SegmentPartition(segment) for segment in find_segments(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        return read_segment(self._options, partition.segment)


class AuditedPartition(InputPartition):
    """What one task of an audit reads."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self.directory = directory


class AuditReader(DataSourceReader):
    """A task for each partition, since offsets, epochs and sequences go on from segment to segment."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options

    def partitions(self) -> list[AuditedPartition]:
        return [AuditedPartition(directory) for directory in find_partitions(self._options)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, AuditedPartition)
        path, topic, number = partition.directory
        for finding in Audit(path, topic, number, check_columns).run():
            yield (topic, number, *finding)
