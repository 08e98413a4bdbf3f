"""The stream's reader for pyspark 4.2 and newer, which say where a query stands and what limit holds (SPARK-55304).

So maxOffsetsPerTrigger holds in each batch, the first of a new query and those of availableNow too, and needs no notes in a group. This
module cannot be imported with an older pyspark.

Source: pyspark.sql.streaming.datasource, python_streaming_source_runner.py (4.2.0): the runner looks at the number of latestOffset's
parameters.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found, unused-ignore]
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .source import offsets as positions
from .stream_reader import StreamReader


class AdmissionReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """Spark asks getDefaultReadLimit first, and hands the answer back, or ReadAllAvailable for Trigger.Once."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        limit = self._options.offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return positions.to_json(self._planner.next_offsets(positions.from_json(start), rows_max))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._planner.end_here()
