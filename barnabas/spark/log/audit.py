"""Whether the files of a partition fit together: batches, indexes, leader epochs, aborted transactions. A finding for each thing that does
not. It needs neither Spark nor pyarrow: `barnabas log verify` uses it too.

Source: LogValidator, OffsetIndex, TimeIndex, TransactionIndex, LeaderEpochFileCache, ProducerAppendInfo (Apache Kafka's checks at an append
and at the recovery of a log).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...protocol.compression import Buffer
from ...protocol.errors import DecodeError
from ...protocol.record_outlines import iterate_outlines
from ...protocol.records import BatchHeader, ControlRecordType, crc_is_valid, read_control_type, read_payload
from .batches import DamagedError, iterate_batches
from .checkpoints import CLEANED, LOG_STARTS, read_checkpoint

_OFFSET_ENTRY, _TIME_ENTRY, _ABORTED = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
SEQUENCE_MAX = 0x7FFFFFFF
NO_SEQUENCE = NO_PRODUCER = -1


RecordCheck = Callable[[BatchHeader, Buffer], None]
"""Raises DecodeError if the uncompressed records of a batch are not what its header says."""


def check_records(header: BatchHeader, payload: Buffer) -> None:
    """A RecordCheck that looks at one record after another."""
    before = -1
    for offset_delta, _, _ in iterate_outlines(header, payload):
        if not before < offset_delta <= header.last_offset_delta:
            raise DecodeError(f"offset {header.base_offset + offset_delta} is behind the batch's last, or does not ascend")
        before = offset_delta


class Finding(NamedTuple):
    """`position` is a byte of the file, `offset` a record's; None where there is none."""

    file: str
    position: int | None
    offset: int | None
    problem: str


class _Place(NamedTuple):
    """A batch in a file, as far as indexes and later batches are compared with it."""

    position: int
    base_offset: int
    last_offset: int


class Audit:
    """Of one partition; `run` gives the findings in the order of the log."""

    def __init__(self, directory: Path, topic: str, partition: int, check: RecordCheck = check_records) -> None:
        self._directory = directory
        self._check_records = check
        self._cleaned = read_checkpoint(directory.parent / CLEANED).get((topic, partition), 0)
        self._log_start = read_checkpoint(directory.parent / LOG_STARTS).get((topic, partition), 0)
        self._next: int | None = None  # the offset that is expected
        self._epoch = -1
        self._sequences: dict[tuple[int, int], tuple[int, int]] = {}  # by producer id and epoch: the next one, and where the last batch was
        self._aborts: set[tuple[int, int]] = set()  # producer id and offset of each abort marker
        self._epochs = _leader_epochs(directory)

    def run(self) -> Iterator[Finding]:
        segments = sorted(each for each in self._directory.glob("*.log") if each.stem.isdigit())
        for number, segment in enumerate(segments):
            places: list[_Place] = []
            yield from self._segment(segment, places, is_last=number + 1 == len(segments))
            yield from _offset_index(segment, places)
            yield from _time_index(segment, places)
        for index in sorted(self._directory.glob("*.txnindex")):
            yield from self._transaction_index(index)
        yield from _epochs_ascend(self._directory, self._epochs)

    def _segment(self, segment: Path, places: list[_Place], *, is_last: bool) -> Iterator[Finding]:
        base, size = int(segment.stem), 0
        try:
            for position, header, data in iterate_batches(segment):
                places.append(_Place(position, header.base_offset, header.last_offset))
                size = position + header.size_bytes
                for problem in self._batch(header, data, base):
                    yield Finding(segment.name, position, header.base_offset, problem)
        except DamagedError as error:
            yield Finding(segment.name, size, self._next, str(error))
            self._next = None  # what follows is judged by itself
            return
        rest = segment.stat().st_size - size
        if rest and (not is_last or rest > (1 << 20)):
            yield Finding(segment.name, size, self._next, f"{rest} bytes after the last whole batch")

    def _batch(self, header: BatchHeader, data: memoryview, base: int) -> Iterator[str]:
        if not crc_is_valid(data, 0, len(data)):
            yield "the CRC does not fit"
        else:
            yield from self._records(header, data)
        if header.base_offset < base:
            yield f"the offset is below the segment's, {base}"
        if self._next is not None and header.base_offset < self._next:
            yield f"the offset goes back: {self._next} or more is expected"
        elif self._next is not None and header.base_offset > max(self._next, self._cleaned):
            yield f"offsets {max(self._next, self._cleaned)} to {header.base_offset - 1} are missing, and no compaction came so far"
        self._next = max(header.next_offset, self._next or 0)
        if header.partition_leader_epoch < self._epoch:
            yield f"leader epoch {header.partition_leader_epoch} comes after {self._epoch}"
        elif header.base_offset >= self._log_start and self._epochs and not self._has_epoch(header):
            yield f"leader epoch {header.partition_leader_epoch} is not in leader-epoch-checkpoint, or begins later there"
        self._epoch = max(self._epoch, header.partition_leader_epoch)
        yield from self._sequence(header)

    def _records(self, header: BatchHeader, data: memoryview) -> Iterator[str]:
        try:
            if header.is_control:
                if read_control_type(data, 0, header) == ControlRecordType.ABORT:
                    self._aborts.add((header.producer_id, header.base_offset))
            else:
                self._check_records(header, read_payload(data, 0, header))
        except DecodeError as error:
            yield f"the records are not what the header says: {error}"

    def _sequence(self, header: BatchHeader) -> Iterator[str]:
        """A producer whose first batches were deleted, or that has expired, may begin anywhere: only what follows is judged."""
        if header.producer_id == NO_PRODUCER or header.base_sequence == NO_SEQUENCE:
            return
        producer = header.producer_id, header.producer_epoch
        expected, place = self._sequences.get(producer, (header.base_sequence, 0))
        if header.base_sequence not in (expected, 0) and place >= self._cleaned:
            yield f"producer {header.producer_id} has sequence {header.base_sequence}, and {expected} is expected"
        self._sequences[producer] = (header.last_sequence + 1) & SEQUENCE_MAX, header.base_offset

    def _has_epoch(self, header: BatchHeader) -> bool:
        return any(epoch == header.partition_leader_epoch and start <= header.base_offset for epoch, start in self._epochs)

    def _transaction_index(self, index: Path) -> Iterator[Finding]:
        data = index.read_bytes()
        if len(data) % _ABORTED.size:
            yield Finding(index.name, len(data) - len(data) % _ABORTED.size, None, "the last entry is cut")
        before = -1
        for number, (version, producer_id, first, last, _) in enumerate(
            _ABORTED.iter_unpack(data[: len(data) - len(data) % _ABORTED.size])
        ):
            position = number * _ABORTED.size
            if version or first > last or last <= before:
                yield Finding(index.name, position, last, "the entry is not one, or out of order")
            elif (producer_id, last) not in self._aborts and last >= self._cleaned:
                yield Finding(index.name, position, last, f"there is no abort marker of producer {producer_id} at that offset")
            before = last


def _offset_index(segment: Path, places: list[_Place]) -> Iterator[Finding]:
    by_position = {place.position: place for place in places}
    before = (-1, -1)
    for position, (relative, at) in _entries(segment.with_suffix(".index"), _OFFSET_ENTRY):
        offset, place = int(segment.stem) + relative, by_position.get(at)
        if place is None or not place.base_offset <= offset <= place.last_offset:
            yield Finding(f"{segment.stem}.index", position, offset, f"byte {at} of the log is no batch with that offset")
        elif (relative, at) <= before:
            yield Finding(f"{segment.stem}.index", position, offset, "the entries do not ascend")
        before = relative, at


def _time_index(segment: Path, places: list[_Place]) -> Iterator[Finding]:
    last = max((place.last_offset for place in places), default=int(segment.stem) - 1)
    before = (-1, -1)
    for position, (timestamp, relative) in _entries(segment.with_suffix(".timeindex"), _TIME_ENTRY):
        offset = int(segment.stem) + relative
        if (timestamp, relative) < before or relative < 0:
            yield Finding(f"{segment.stem}.timeindex", position, offset, "the entries do not ascend")
        elif offset > last and places:
            yield Finding(f"{segment.stem}.timeindex", position, offset, f"the segment ends at offset {last}")
        before = timestamp, relative


def _entries(index: Path, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Positions and entries. A running broker of Kafka's has preallocated the rest with zeros."""
    try:
        data = index.read_bytes()
    except FileNotFoundError:
        return  # it is made anew at the next start
    for position in range(0, len(data) - len(data) % entry.size, entry.size):
        found = entry.unpack_from(data, position)
        if position and not any(found):
            return
        if any(found):
            yield position, found


def _leader_epochs(directory: Path) -> list[tuple[int, int]]:
    try:
        lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
    except (FileNotFoundError, ValueError):
        return []


def _epochs_ascend(directory: Path, epochs: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    before = (-1, -1)
    for epoch, start in epochs:
        if epoch <= before[0] or start < before[1]:
            yield Finding("leader-epoch-checkpoint", None, start, f"epoch {epoch} at {start} comes after {before[0]} at {before[1]}")
        before = epoch, start
