"""What was committed of compacted partitions, record by record: replicas compact by themselves, so that their batches need not be equal.

A replica may lack a committed record if a later one of its key is committed, or if it is a tombstone. It may have none that was not
committed. Owner: ClusterWatch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from protocol.records import Record

Place = tuple[bytes, int]  # topic id and partition


class KeyedRecord(NamedTuple):
    """A record; `content` is a checksum of all of it but the offset."""

    offset: int
    key: bytes
    is_tombstone: bool
    content: int

    @classmethod
    def of(cls, record: Record) -> KeyedRecord:
        return cls(record.offset, record.key or b"", record.value is None, crc32(repr(record[1:]).encode()))


class CommittedRecords:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._records: dict[Place, dict[int, KeyedRecord]] = defaultdict(dict)
        self._last_offsets: dict[Place, dict[bytes, int]] = defaultdict(dict)

    def note(self, place: Place, records: Iterable[KeyedRecord]) -> None:
        """These were committed now, at offsets that ascend."""
        for record in records:
            self._records[place][record.offset] = record
            self._last_offsets[place][record.key] = record.offset

    def forget_from(self, place: Place, offset: int) -> None:
        """What was committed from `offset` on is lost, and may be."""
        kept = [record for at, record in self._records.pop(place, {}).items() if at < offset]
        self._last_offsets.pop(place, None)
        self.note(place, kept)

    def find_differing(self, place: Place, found: Iterable[KeyedRecord], start_offset: int, end_offset: int) -> list[Any]:
        """What a replica has in [start_offset, end_offset) and should not have, and what it lacks."""
        committed, last_offsets = self._records[place], self._last_offsets[place]
        there = {record.offset: record for record in found if start_offset <= record.offset < end_offset}
        strange = [record for offset, record in there.items() if committed.get(offset) != record]
        missing = [
            record
            for key, offset in last_offsets.items()
            if start_offset <= offset < end_offset and offset not in there and not (record := committed[offset]).is_tombstone
        ]
        return [*strange, *missing]


def last_values(records: Iterable[KeyedRecord]) -> dict[bytes, KeyedRecord]:
    """The last record of each key that has a value."""
    state: dict[bytes, KeyedRecord] = {}
    for record in records:
        if record.is_tombstone:
            state.pop(record.key, None)
        else:
            state[record.key] = record
    return state
