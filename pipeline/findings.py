"""What `barnabas pipeline verify` prints."""

from __future__ import annotations

import json
from dataclasses import asdict

from barnabas.spark.archives.verification import Finding, Verification
from pipeline.tables import table

HEADINGS = ("kind", "topic", "partition", "offsets", "records", "file or detail")


def findings_json(found: Verification) -> str:
    """Its facts for programs; keys are added, never changed."""
    told = {
        "is_whole": found.is_whole,
        "matching": found.matching,
        "deleted_since": found.deleted,
        "not_in_the_topic": found.absent,
        "counts": dict(found.counts),
        "findings": [asdict(each) for each in found.findings],
    }
    return json.dumps(told, indent=2)


def findings_lines(found: Verification, archive: str) -> list[str]:
    """A table with a row for each finding, if there are any, then the sums."""
    lines = table([HEADINGS, *map(_row, found.findings)]) if found.findings else []
    sums = [f"{found.matching:,} records as in the topics"]
    sums += [f"{found.deleted:,} that the topics have deleted since"] if found.deleted else []
    sums += [f"{found.absent:,} that are not in the topics, as after compaction"] if found.absent else []
    sums += [f"{kind}: {count:,}" for kind, count in found.counts.items()] or ["nothing is wrong"]
    return [*lines, f"{archive}: {'; '.join(sums)}"]


def _row(each: Finding) -> tuple[str, ...]:
    offsets = "" if each.first_offset is None else f"{each.first_offset}"
    if each.last_offset != each.first_offset:
        offsets += f" to {each.last_offset}"
    file = ": ".join(filter(None, (each.file, each.detail)))
    return each.kind, each.topic or "", _text(each.partition), offsets, _text(each.count), file


def _text(number: int | None) -> str:
    return "" if number is None else f"{number}"
