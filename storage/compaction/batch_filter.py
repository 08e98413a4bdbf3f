"""Filters one batch for compaction, with the same bytes as Kafka writes (MemoryRecords.filterTo with the Cleaner's RecordFilter).

A record is removed if the map has a later one of its key, or if it is a tombstone past its delete horizon. The horizon is stored in the
batch: the first compaction that sees a tombstone writes it in place of the base timestamp. Offsets, sequences and the last offset of a
batch never change. A batch without records is removed, unless it is the last of an active producer or of the whole range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.compression import Buffer, Compression, compress
from protocol.errors import DecodeError
from protocol.record_spans import RecordSpan, iterate_spans
from protocol.records import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    append_varint,
    assemble_batch,
    read_control_type,
    read_payload,
)
from storage.compaction.offset_map import OffsetMap
from storage.compaction.plan import LastRecord
from storage.compaction.superseded import SupersededOffsets
from storage.compaction.transactions import TransactionTracker

_KEPT_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG  # of a batch that is emptied


class KeptBatch(NamedTuple):
    """A batch to be written: its bytes, which may be a view, and its header."""

    data: Buffer
    header: BatchHeader


class BatchFilter:
    """Filters the batches of a log in order. DecodeError for a malformed one."""

    def __init__(
        self,
        offsets: OffsetMap,
        superseded: SupersededOffsets,
        transactions: TransactionTracker,
        producers: Mapping[int, LastRecord],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._superseded = superseded
        self._transactions = transactions
        self._producers = producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.read_records = 0
        self.written_records = 0
        self.keyless_records = 0

    def keep(self, batch: memoryview, header: BatchHeader) -> KeptBatch | None:
        """Returns the rest of the batch; None if nothing is left."""
        horizon_ms = _delete_horizon(header)
        if header.is_control:
            is_needless = self._transactions.drops_control_batch(header, read_control_type(batch, 0, header))
            drops_records = is_needless and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            is_needless = drops_records = self._transactions.drops_batch(header)
        if drops_records:
            return self._emptied(header)
        superseded = self._find_superseded(header)
        if superseded is not None and 0 not in superseded:
            self.read_records += header.records_count
            return self._emptied(header)
        payload = read_payload(batch, 0, header)
        if not isinstance(payload, bytes):
            payload = bytes(payload)
        spans, has_tombstone = self._kept_spans(header, payload, superseded, horizon_ms)
        if not spans:
            return self._emptied(header)
        self.written_records += len(spans)
        starts_horizon = horizon_ms is None and (has_tombstone or (header.is_control and is_needless))
        if not starts_horizon and len(spans) == header.records_count:
            return KeptBatch(batch, header)
        if starts_horizon:
            horizon_ms = self._now_ms + self._delete_retention_ms
        return _rebuilt(header, payload, spans, horizon_ms)

    def _find_superseded(self, header: BatchHeader) -> bytes | None:
        """Returns 1 for each record that is known to be superseded without reading it, else 0; None if the records have to be read."""
        is_dense = header.records_count == header.last_offset_delta + 1
        return self._superseded.flags(header.base_offset, header.next_offset) if is_dense and not header.is_control else None

    def _kept_spans(
        self, header: BatchHeader, payload: bytes, superseded: bytes | None, horizon_ms: int | None
    ) -> tuple[list[RecordSpan], bool]:
        """Returns the records that stay, and whether one of them is a tombstone."""
        self.read_records += header.records_count
        if header.is_control:
            return list(iterate_spans(payload, header.records_count)), False
        base_offset, latest_offset, find = header.base_offset, self._offsets.latest_offset, self._offsets.find
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        start = self._superseded.first_offset
        bits = self._superseded.bits if self._superseded.is_kept and base_offset >= start else None
        kept: list[RecordSpan] = []
        has_tombstone = False
        for span in iterate_spans(payload, header.records_count, superseded):
            _, _, _, _, offset_delta, key, has_value = span
            offset = base_offset + offset_delta
            if offset <= latest_offset:
                if key is None:
                    self.keyless_records += 1
                    continue
                if superseded is None:
                    place = offset - start
                    if offset < find(key) if bits is None else bits[place >> 3] >> (place & 7) & 1:
                        continue
                if not (has_value or keeps_tombstones):
                    continue
            kept.append(span)
            if not has_value:
                has_tombstone = True
        return kept, has_tombstone

    def _emptied(self, header: BatchHeader) -> KeptBatch | None:
        """Returns the batch without records if it must stay: it has its producer's last sequence, or its last offset ends the range.
        Else None."""
        if header.next_offset != self._end_offset and not self._is_last_of_producer(header):
            return None
        emptied = header._replace(attributes=header.attributes & _KEPT_FLAGS, base_timestamp=NO_TIMESTAMP, records_count=0)
        return _assembled(emptied, b"")

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER_ID:
            return False
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _delete_horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else None


def _rebuilt(header: BatchHeader, payload: bytes, spans: list[RecordSpan], horizon_ms: int | None) -> KeptBatch:
    """Returns the batch with only these records. With a horizon, timestamps are relative to it."""
    append_time = header.max_timestamp if header.is_log_append_time else None
    old_base = header.base_timestamp
    first_timestamp = old_base + spans[0][3] if append_time is None else append_time
    new_base = first_timestamp if horizon_ms is None else horizon_ms
    records = bytearray()
    max_timestamp = NO_TIMESTAMP
    for start, rest, end, timestamp_delta, _, _, _ in spans:
        timestamp = old_base + timestamp_delta if append_time is None else append_time
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        if timestamp - new_base == timestamp_delta:
            records += payload[start:end]
            continue
        body = bytearray(1)  # the record's attributes, unused
        append_varint(body, timestamp - new_base)
        append_varint(records, len(body) + end - rest)
        records += body
        records += payload[rest:end]
    codec = header.compression
    attributes = header.attributes & ~DELETE_HORIZON_FLAG | (0 if horizon_ms is None else DELETE_HORIZON_FLAG)
    rebuilt = header._replace(attributes=attributes, base_timestamp=new_base, max_timestamp=max_timestamp, records_count=len(spans))
    return _assembled(rebuilt, records if codec is Compression.NONE else compress(codec, records))


def _assembled(header: BatchHeader, payload: Buffer) -> KeptBatch:
    data = assemble_batch(header, payload)
    return KeptBatch(data, header._replace(batch_length=len(data) - LOG_OVERHEAD))


def check_magic(header: BatchHeader) -> None:
    """DecodeError for the formats before Kafka 0.11."""
    if header.magic != 2:
        raise DecodeError(f"batch magic {header.magic}, only 2 is supported")
