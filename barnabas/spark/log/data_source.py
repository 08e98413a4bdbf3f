"""Spark's view of log directories: `spark.read.format("barnabas-log").load("/var/lib/kafka/data")`, a task for each segment.

Source: pyspark.sql.datasource (4.0.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..records.batches import schema_text
from .options import LogOptions, read_options
from .partitions import Segment, find_segments
from .reading import read_segment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The name by which Spark finds it in the module pyspark_barnabas_log."""

    @classmethod
    def name(cls) -> str:
        return "barnabas-log"

    def schema(self) -> str:
        return schema_text(has_headers=read_options(self.options).has_headers)

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(read_options(self.options))


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
