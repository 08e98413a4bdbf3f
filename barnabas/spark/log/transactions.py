"""Which records of a log are of committed transactions: by the transaction indexes, producer snapshots and markers in its directory.

Source: TransactionIndex, ProducerStateManager (org.apache.kafka.storage.internals.log).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...protocol.records import BatchHeader
from ..errors import BarnabasError
from .batches import iterate_batches

_ABORTED = struct.Struct(">hqqqq")
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")
NO_TRANSACTION = -1


class Aborted(NamedTuple):
    """The records of the producer from `first_offset` to `last_offset`, its marker's, count nothing."""

    producer_id: int
    first_offset: int
    last_offset: int


def aborted_transactions(segment: Path) -> list[Aborted]:
    """Those that have records in this segment: each is in the index of the segment with its marker, this one or a later one."""
    base = int(segment.stem)
    found = []
    for index in sorted(segment.parent.glob("*.txnindex")):
        if int(index.stem) >= base:
            try:
                data = index.read_bytes()
            except FileNotFoundError:
                continue  # removed with its segment, which is not read either
            whole = len(data) - len(data) % _ABORTED.size
            found += [Aborted(each[1], each[2], each[3]) for each in _ABORTED.iter_unpack(data[:whole])]
    return found


def first_unstable_offset(directory: Path, segments: Sequence[Path], end: int | None) -> int | None:
    """Where the oldest transaction begins that is open before `end`; None without one. Begins with the newest producer snapshot that is not
    behind `end`, and reads the headers of the batches after it."""
    began, position = _open_at_snapshot(directory, end)
    for header in _headers(segments, position, end):
        if header.is_control:
            began.pop(header.producer_id, None)
        elif header.is_transactional:
            began.setdefault(header.producer_id, header.base_offset)
    return min(began.values(), default=None)


def _headers(segments: Sequence[Path], position: int, end: int | None) -> Iterator[BatchHeader]:
    bases = [int(each.stem) for each in segments]
    for number, segment in enumerate(segments):
        if number + 1 < len(bases) and bases[number + 1] <= position:
            continue
        for _, header, _ in iterate_batches(segment):
            if end is not None and header.base_offset >= end:
                return
            if header.base_offset >= position:
                yield header


def _open_at_snapshot(directory: Path, end: int | None) -> tuple[dict[int, int], int]:
    """The first offsets of open transactions by producer id, and the offset that they are of."""
    offsets = sorted((int(each.stem) for each in directory.glob("*.snapshot") if each.stem.isdigit()), reverse=True)
    for offset in offsets:
        if end is not None and offset > end:
            continue
        try:
            data = (directory / f"{offset:020}.snapshot").read_bytes()
        except FileNotFoundError:
            continue
        if len(data) < _SNAPSHOT_HEADER.size or (len(data) - _SNAPSHOT_HEADER.size) % _PRODUCER.size:
            raise BarnabasError(f"{directory}/{offset:020}.snapshot is damaged")
        producers = _PRODUCER.iter_unpack(data[_SNAPSHOT_HEADER.size :])
        return {each[0]: each[7] for each in producers if each[7] != NO_TRANSACTION}, offset
    return {}, 0
