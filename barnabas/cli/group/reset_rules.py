"""Where a group is to go on: the rules of a reset, as offsets. Every offset is kept between the partition's start and its end."""

from __future__ import annotations

import argparse
import csv
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import Partition, offsets, starts_and_ends
from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.times import parse_duration_ms, parse_time_ms


class Rule(NamedTuple):
    """`kind` is earliest, latest, current, offset, shift, time, group or file; `number` an offset, a shift or milliseconds."""

    kind: str
    number: int = 0


def rule_of(options: argparse.Namespace) -> Rule:
    """By the command's options, of which one is given. Raises NotUnderstoodError."""
    now_ms = time.time_ns() // 1_000_000
    if options.to is not None:
        return rule_of_position(options.to, now_ms)
    for kind in ("earliest", "latest", "current"):
        if getattr(options, f"to_{kind}"):
            return Rule(kind)
    if options.to_offset is not None:
        return Rule("offset", options.to_offset)
    if options.shift_by is not None:
        return Rule("shift", options.shift_by)
    if options.to_datetime is not None:
        return Rule("time", parse_time_ms(options.to_datetime, now_ms))
    if options.by_duration is not None:
        return Rule("time", now_ms - parse_duration_ms(options.by_duration))
    return Rule("group" if options.to_group is not None else "file")


def rule_of_position(text: str, now_ms: int | None = None) -> Rule:
    """Of --to. Raises NotUnderstoodError."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    words = {"start": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest", "current": "current"}
    if text in words:
        return Rule(words[text])
    if text.startswith("@"):
        return Rule("time", parse_time_ms(text[1:], now_ms))
    if not re.fullmatch(r"[+-]?\d+", text):
        raise NotUnderstoodError(f"--to {text}: it is start, end, current, 7, +7, -7, @2026-01-31T10:00 or @-1h")
    return Rule("shift" if text[0] in "+-" else "offset", int(text))


def targets(
    connection: Connection, rule: Rule, chosen: Mapping[Partition, int | None], current: Mapping[Partition, int]
) -> dict[Partition, int]:
    """The new offset of each chosen partition. Raises RefusedError for a partition without a leader, or a shift from nowhere."""
    bounds = starts_and_ends(connection, chosen)
    times = offsets(connection, chosen, OffsetSpec.for_timestamp(rule.number)) if rule.kind == "time" else {}
    new = {}
    for each, given in chosen.items():
        start, end = bounds[each]
        if start is None or end is None:
            raise RefusedError(f"{each[0]}-{each[1]} is not there, or has no leader")
        if rule.kind == "shift" and each not in current:
            raise RefusedError(f"{each[0]}-{each[1]}: the group has no offset there to shift")
        at_time = times.get(each)
        wished = {
            "earliest": start,
            "latest": end,
            "current": current.get(each, end),  # as in Kafka's tool
            "offset": rule.number,
            "shift": current.get(each, 0) + rule.number,
            "time": end if at_time is None else at_time,
            "group": given,
            "file": given,
        }[rule.kind]
        assert wished is not None, "a file and a group have an offset for each partition that they choose"
        new[each] = min(max(wished, start), end)
    return new


def read_csv(path: Path, group: str) -> dict[Partition, int]:
    """Lines of topic,partition,offset, or with the group before it, of which others' are left out. Raises NotUnderstoodError."""
    found = {}
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            try:
                *groups, topic, partition, offset = row
                if len(groups) > 1:
                    raise ValueError("too many fields")
                if groups in ([], [group]):
                    found[topic, int(partition)] = int(offset)
            except ValueError as e:
                raise NotUnderstoodError(f"{path}, line {number}: it is topic,partition,offset or group,topic,partition,offset") from e
    return found
