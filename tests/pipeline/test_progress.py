"""The lines that a person reads while an archive runs."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.errors import PipelineError
from pipeline.progress import GroupProgress, ProgressPrinter, batch_line


def report(batch_id: int, records: int, *, end: int = 10, latest: int = 10) -> dict[str, Any]:
    source = {"endOffset": f'{{"t":{{"0":{end}}}}}', "latestOffset": {"t": {"0": latest}}}
    return {"batchId": batch_id, "numInputRows": records, "durationMs": {"triggerExecution": 2000}, "sources": [source]}


def test_batch_line_says_records_seconds_rate_and_what_is_left() -> None:
    assert batch_line(report(3, 5000, end=10, latest=1210)) == "batch 3: 5,000 records in 2.0 s (2,500/s), 1,200 offsets behind"
    assert batch_line(report(4, 5000)) == "batch 4: 5,000 records in 2.0 s (2,500/s)"


@pytest.mark.parametrize("unknown", ["", "null", "<none>", None])
def test_batch_that_is_run_again_has_no_latest_offset(unknown: str | None) -> None:
    again = report(3, 5000)
    again["sources"][0]["latestOffset"] = unknown

    assert batch_line(again) == "batch 3: 5,000 records in 2.0 s (2,500/s)"


def test_each_batch_is_printed_once_and_waits_say_nothing() -> None:
    lines: list[str] = []
    printer = ProgressPrinter(lines.append)

    printer.print_new([report(0, 5)])
    printer.print_new([report(0, 5), report(1, 0), report(1, 7)])
    printer.print_total(stopped=False)

    assert [line.split(":")[0] for line in lines] == ["batch 0", "batch 1", "done"]
    assert lines[-1].startswith("done: 12 records in 2 batches")


def test_each_batch_s_end_is_noted_once_and_a_failure_is_one_line() -> None:
    noted: list[object] = []
    complaints: list[str] = []
    answers = [PipelineError("away"), PipelineError("away"), None, PipelineError("away again")]

    def commit(group: str, offsets: object) -> None:
        noted.append(offsets)
        if (error := answers.pop(0)) is not None:
            raise error

    printer = ProgressPrinter(lambda _: None, GroupProgress("archivists", commit, complaints.append).note)
    printer.print_new([report(batch, 5, end=batch) for batch in (0, 1)])
    printer.print_new([report(batch, 5, end=batch) for batch in (0, 1, 2, 3)])

    assert noted == [{("t", 0): batch} for batch in range(4)]
    assert complaints == [f"the group archivists does not have the progress: {why}" for why in ("away", "away again")]
