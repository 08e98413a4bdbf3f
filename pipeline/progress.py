"""Formats Spark's progress reports as lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.decoding import Counts
from pipeline.errors import PipelineError

Offsets = Mapping[tuple[str, int], int]
"""By topic and partition; each is that of the next record."""


class GroupProgress:
    """Notes where each batch ends in a group, for those who watch its lag. A failure is one line, until a commit succeeds again: the
    archive's progress is in its checkpoint."""

    def __init__(self, group: str, commit: Callable[[str, Offsets], None], complain: Callable[[str], None]) -> None:
        self._group = group
        self._commit = commit
        self._complain = complain
        self._is_failing = False

    def note(self, report: Any) -> None:
        ends: dict[tuple[str, int], int] = {}
        for source in report["sources"]:
            ends |= {(topic, int(number)): offset for (topic, number), offset in _offsets(source["endOffset"]).items()}
        try:
            self._commit(self._group, ends)
            self._is_failing = False
        except PipelineError as e:
            if not self._is_failing:
                self._complain(f"the group {self._group} does not have the progress: {e}")
            self._is_failing = True


class ProgressPrinter:
    """Prints each batch once, even if its report comes several times, and a total at the end. `on_batch` gets each report once too."""

    def __init__(
        self,
        say: Callable[[str], None],
        on_batch: Callable[[Any], None] | None = None,
        counts: Callable[[int], Counts | None] = lambda batch_id: None,
        show: Callable[[int, int], None] = lambda records, all_records: None,
    ) -> None:
        """`counts` says what was decoded in a batch that is done; None if nothing was. `show` is told how many records are archived after
        each batch, and of how many."""
        self._print_line = say
        self._on_batch = on_batch
        self._counts = counts
        self._show = show
        self._dead_letters = 0
        self._last_batch_id = -1
        self._started = time.monotonic()
        self._batches = 0
        self._records = 0
        self._behind: int | None = None

    @property
    def has_batches(self) -> bool:
        return self._batches > 0

    def print_new(self, reports: Sequence[Any]) -> None:
        """`reports` are the query's latest, oldest first. Those without records (a wait for data) are skipped."""
        for report in reports:
            if report["batchId"] <= self._last_batch_id or not report["numInputRows"]:
                continue
            self._last_batch_id = report["batchId"]
            self._batches += 1
            records, dead_letters = self._counts(report["batchId"]) or (report["numInputRows"], 0)
            self._records += records
            self._dead_letters += dead_letters
            self._behind = offsets_behind(report)
            self._print_line(batch_line(report, records, dead_letters))
            self._show(self._records, self._records + self._behind)
            if self._on_batch is not None:
                self._on_batch(report)

    def so_far(self) -> str:
        """What remains of a run that fails."""
        if not self.has_batches:
            return "nothing was archived; once the cause is gone, run the same command again"
        archived = f"{self._records:,} records in {self._batches} batches are archived"
        return f"{archived}; once the cause is gone, the same command goes on after them"

    def print_total(self, *, stopped: bool) -> None:
        seconds = time.monotonic() - self._started
        end = "stopped" if stopped else "done"
        behind = f", {self._behind:,} offsets behind" if self._behind else ""
        dead = dead_letters_text(self._dead_letters)
        self._print_line(f"{end}: {self._records:,} records in {self._batches} batches, {seconds:.1f} s{dead}{behind}")


def batch_line(report: Any, records: int | None = None, dead_letters: int = 0) -> str:
    """For example: batch 12: 250,000 records in 3.2 s (78,125/s), 2 dead letters, 1,200 offsets behind."""
    records = report["numInputRows"] if records is None else records
    seconds = report["durationMs"].get("triggerExecution", 0) / 1000
    rate = f" ({records / seconds:,.0f}/s)" if seconds else ""
    behind = offsets_behind(report)
    dead = dead_letters_text(dead_letters)
    return f"batch {report['batchId']}: {records:,} records in {seconds:.1f} s{rate}{dead}" + (
        f", {behind:,} offsets behind" if behind else ""
    )


def dead_letters_text(count: int) -> str:
    """Empty for none."""
    return f", {count:,} dead letter{'s' if count > 1 else ''}" if count else ""


def offsets_behind(report: Any) -> int:
    """The distance from the batch's end to the topics' ends at the time of planning, summed over all partitions."""
    behind = 0
    for source in report["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        behind += sum(max(0, offset - end.get(partition, offset)) for partition, offset in latest.items())
    return behind


def _offsets(source_offset: Any) -> dict[tuple[str, str], int]:
    """Offsets by topic and partition, from {"topic": {"0": 12}} as an object or as JSON text. Empty for unknown offsets, for which Spark
    has several forms: a repeated batch has no latest offset.
    """
    if isinstance(source_offset, str):
        source_offset = json.loads(source_offset) if source_offset.startswith("{") else None
    return {(topic, number): offset for topic, offsets in (source_offset or {}).items() for number, offset in offsets.items()}
