"""Spark's view of the source as a stream, and as ranges that tasks read.

Up to pyspark 4.1 Spark asks for the latest offsets without a word on where the query stands. From 4.2 on it tells start and limit:
admission.py has the reader for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .source import offsets as positions
from .source.options import SourceOptions
from .source.planner import StreamPlanner
from .source.reading import Range, read_range

if TYPE_CHECKING:
    import pyarrow as pa


class OffsetRange(InputPartition):
    """What one task reads."""

    def __init__(self, part: Range) -> None:
        self.part = part


class StreamReader(DataSourceStreamReader):
    """`spark.readStream`: from startingOffsets (latest) on. One object, in one process of the driver, plans all batches of a query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner = StreamPlanner(options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return positions.to_json(self._planner.initial_offsets())

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return positions.to_json(self._planner.latest_offsets())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        return [OffsetRange(part) for part in self._planner.ranges(positions.from_json(start), positions.from_json(end))]

    def commit(self, end: dict[str, Any]) -> None:
        self._planner.commit(positions.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        return read_range(self._options, partition.part)
