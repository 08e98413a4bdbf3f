"""Where to begin and to end in each partition: the words of --offset, as offsets.

start  end  7  +7 (after the start)  -7 (before the end)  @TIME    and two of them with a colon between: 10:20, @-1h:, :end
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import Partition, offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.times import parse_time_ms

STARTS = ("start", "beginning", "earliest", "oldest")
ENDS = ("end", "latest", "newest")
_NUMBER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True)
class Position:
    """One place. `kind` is start, end, offset, after_start, before_end or time; `number` is an offset, a count or milliseconds."""

    kind: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """`end` is None for no end."""

    start: Position
    end: Position | None = None


START, END = Position("start"), Position("end")


def parse_range(text: str, now_ms: int) -> Range:
    """Raises NotUnderstoodError. A time may have colons: of several ways to read it, the one without an end counts."""
    whole = _find_position(text, now_ms)
    if whole is not None:
        return Range(whole)
    for found in re.finditer(":", text):
        before, after = text[: found.start()], text[found.end() :]
        start = START if not before else _find_position(before, now_ms)
        end = None if not after else _find_position(after, now_ms)
        if start is not None and (end is not None or not after):
            return Range(start, end)
    raise NotUnderstoodError(f"{text!r} is no offset: start, end, 7, +7, -7, @2026-01-31T10:00, @-1h, or two of them as in 10:20")


def _find_position(text: str, now_ms: int) -> Position | None:
    if text in STARTS:
        return START
    if text in ENDS:
        return END
    if text.startswith("@"):
        try:
            return Position("time", parse_time_ms(text[1:], now_ms))
        except NotUnderstoodError:
            return None
    if not _NUMBER.fullmatch(text):
        return None
    kind = {"+": "after_start", "-": "before_end"}.get(text[0], "offset")
    return Position(kind, int(text.lstrip("+-")))


class Bounds:
    """The offsets that partitions have now, each asked for once. With `read_committed` the end is the last stable offset."""

    def __init__(self, connection: Connection, partitions: list[Partition], *, read_committed: bool) -> None:
        self._connection = connection
        self._partitions = partitions
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self.starts = self._known(offsets(connection, partitions, OffsetSpec.earliest()))
        self.ends = self._known(offsets(connection, partitions, OffsetSpec.latest(), isolation=level))

    def resolve(self, position: Position) -> dict[Partition, int]:
        """The offset in each partition that has a leader, between its start and its end."""
        starts, ends, number = self.starts, self.ends, position.number
        if position.kind == "time":
            found = offsets(self._connection, self._partitions, OffsetSpec.for_timestamp(number))
            return {each: self._within(each, found[each], or_else=ends[each]) for each in ends}
        wished: Mapping[Partition, int] = {
            "start": starts,
            "end": ends,
            "offset": dict.fromkeys(ends, number),
            "after_start": {each: start + number for each, start in starts.items()},
            "before_end": {each: end - number for each, end in ends.items()},
        }[position.kind]
        return {each: self._within(each, wished[each], or_else=ends[each]) for each in ends if each in starts}

    def _within(self, partition: Partition, offset: int | None, *, or_else: int) -> int:
        return or_else if offset is None else min(max(offset, self.starts.get(partition, 0)), self.ends[partition])

    @staticmethod
    def _known(found: Mapping[Partition, int | None]) -> dict[Partition, int]:
        return {each: offset for each, offset in found.items() if offset is not None}
