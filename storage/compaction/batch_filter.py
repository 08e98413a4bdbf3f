"""Filters one batch for compaction, with the same bytes as Kafka writes (MemoryRecords.filterTo with the Cleaner's RecordFilter).

A record is removed if the map has a later one of its key, or if it is a tombstone past its delete horizon. The horizon is stored in the
batch: the first compaction that sees a tombstone writes it in place of the base timestamp. Offsets, sequences and the last offset of a
batch never change. A batch without records is removed, unless it is the last of an active producer or of the whole range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from protocol.compression import Buffer, compress
from protocol.record_spans import find_records, iterate_spans, list_keys
from protocol.records import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    assemble_batch,
    read_control_type,
)
from protocol.varint import append_varint
from storage.compaction.chunks import Payload, locate_payload
from storage.compaction.last_offsets import LastOffsets
from storage.compaction.offset_map import OffsetMap
from storage.compaction.plan import LastRecord
from storage.compaction.transactions import TransactionTracker

_KEPT_FLAGS = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG  # of a batch that is emptied

Span = tuple[int, int, int, int]
"""A record that stays, in its payload: where it starts, where what follows its timestamp starts, where it ends; timestamp delta."""


class KeptBatch(NamedTuple):
    """A batch to be written; `data` is None if it stays as it is."""

    data: Buffer | None
    last_offset: int
    max_timestamp: int


class BatchFilter:
    """Filters the batches of a log in order. DecodeError for a malformed one."""

    def __init__(
        self,
        offsets: OffsetMap,
        last_offsets: LastOffsets,
        transactions: TransactionTracker,
        producers: Mapping[int, LastRecord],
        *,
        first_dirty_offset: int,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._last_offsets = last_offsets
        self._transactions = transactions
        self._producers = producers
        self._first_dirty_offset = first_dirty_offset
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.read_records = 0
        self.written_records = 0
        self.keyless_records = 0

    def keep(self, data: bytes, position: int, header: BatchHeader) -> KeptBatch | None:
        """Returns what stays of the batch that begins at `data[position]`; None if nothing does. DecodeError when it is malformed."""
        if header.attributes & CONTROL_FLAG:
            return self._keep_control_batch(data, position, header)
        if header.attributes & TRANSACTIONAL_FLAG and self._transactions.drops_batch(header):
            return self._emptied(header)
        self.read_records += header.records_count
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        if last_offset < self._first_dirty_offset:
            return self._keep_clean_batch(data, position, header)
        if base_offset < self._first_dirty_offset or last_offset > self._offsets.latest_offset or not self._last_offsets.is_kept:
            return self._keep_by_records(locate_payload(data, position, header), header, None)
        staying = self._last_offsets.flags(base_offset, last_offset + 1)
        if (count := staying.count(1)) == 0:
            return self._emptied(header)
        has_tombstone = self._last_offsets.has_tombstone(base_offset)
        if count == header.records_count and not has_tombstone:
            return self._whole(header)
        payload = locate_payload(data, position, header)
        if len(staying) != header.records_count:  # records are missing, so the flags of offsets are not those of records
            _, deltas, _ = list_keys(payload[0], header.records_count, *payload[1:])
            staying = bytes([staying[delta] for delta in deltas]) if deltas is not None else staying[: header.records_count]
        return self._keep_by_records(payload, header, staying) if has_tombstone else self._keep_staying(payload, header, staying)

    def _keep_clean_batch(self, data: bytes, position: int, header: BatchHeader) -> KeptBatch | None:
        """For a batch of which every record is superseded whose key is in the map."""
        payload = locate_payload(data, position, header)
        keys, _, has_tombstone = list_keys(payload[0], header.records_count, *payload[1:])
        staying = None if None in keys else self._offsets.absent(cast("list[bytes]", keys))
        if staying is None or has_tombstone:
            return self._keep_by_records(payload, header, staying)
        if 0 not in staying:
            return self._whole(header) if staying else self._emptied(header)
        return self._keep_staying(payload, header, staying) if 1 in staying else self._emptied(header)

    def _keep_control_batch(self, data: bytes, position: int, header: BatchHeader) -> KeptBatch | None:
        is_needless = self._transactions.drops_control_batch(header, read_control_type(data, position, header))
        horizon_ms = _delete_horizon(header)
        if is_needless and horizon_ms is not None and horizon_ms <= self._now_ms:
            return self._emptied(header)
        self.read_records += header.records_count
        payload, start, end = locate_payload(data, position, header)
        spans = [span[:4] for span in iterate_spans(payload[start:end], header.records_count)]
        if not spans:
            return self._emptied(header)
        if is_needless and horizon_ms is None:
            self.written_records += len(spans)
            return _rebuilt(header, payload[start:end], spans, self._now_ms + self._delete_retention_ms)
        return self._whole(header)

    def _keep_by_records(self, payload: Payload, header: BatchHeader, staying: bytes | None) -> KeptBatch | None:
        """For a batch of which something but its keys decides. `staying` has 1 for each record that no later one of its key supersedes,
        or is None if the map must be asked."""
        data, start, end = payload
        data = data[start:end]
        base_offset, latest_offset, find = header.base_offset, self._offsets.latest_offset, self._offsets.find
        horizon_ms = _delete_horizon(header)
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        spans: list[Span] = []
        has_tombstone = False
        for start, rest, end, timestamp_delta, offset_delta, key, has_value in iterate_spans(data, header.records_count, staying):
            offset = base_offset + offset_delta
            if offset <= latest_offset:
                if key is None:
                    self.keyless_records += 1
                    continue
                if (staying is None and offset < find(key)) or not (has_value or keeps_tombstones):
                    continue
            spans.append((start, rest, end, timestamp_delta))
            has_tombstone = has_tombstone or not has_value
        if not spans:
            return self._emptied(header)
        if has_tombstone and horizon_ms is None:
            horizon_ms = self._now_ms + self._delete_retention_ms
        elif len(spans) == header.records_count:
            return self._whole(header)
        self.written_records += len(spans)
        return _rebuilt(header, data, spans, horizon_ms)

    def _keep_staying(self, payload: Payload, header: BatchHeader, staying: bytes) -> KeptBatch:
        """For a batch without tombstones: the records that are marked with 1."""
        data, start, _ = payload
        spans = find_records(data, staying, start)
        self.written_records += len(spans)
        return _rebuilt(header, data, spans, _delete_horizon(header))

    def _whole(self, header: BatchHeader) -> KeptBatch:
        self.written_records += header.records_count
        return KeptBatch(None, header.last_offset, header.max_timestamp)

    def _emptied(self, header: BatchHeader) -> KeptBatch | None:
        """Returns the batch without records if it must stay: it has its producer's last sequence, or its last offset ends the range.
        Else None."""
        if header.next_offset != self._end_offset and not self._is_last_of_producer(header):
            return None
        return _assembled(
            header, b"", attributes=header.attributes & _KEPT_FLAGS,
            base_timestamp=NO_TIMESTAMP, max_timestamp=header.max_timestamp, records_count=0,
        )  # fmt: skip

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


def _rebuilt(header: BatchHeader, data: bytes, spans: Sequence[Span], horizon_ms: int | None) -> KeptBatch:
    """Returns the batch with only these records. With a horizon, timestamps are relative to it."""
    if header.is_log_append_time:
        max_timestamp = header.max_timestamp
        base_timestamp = max_timestamp if horizon_ms is None else horizon_ms
        deltas = [max_timestamp - base_timestamp] * len(spans)
    else:
        base_timestamp = header.base_timestamp + spans[0][3] if horizon_ms is None else horizon_ms
        shift = header.base_timestamp - base_timestamp
        deltas = [timestamp_delta + shift for _, _, _, timestamp_delta in spans]
        max_timestamp = base_timestamp + max(deltas)
    if header.base_timestamp == base_timestamp and not header.is_log_append_time:
        records: Buffer = b"".join([data[start:end] for start, _, end, _ in spans])
    else:
        records = _with_timestamps(data, spans, deltas)
    return _assembled(
        header,
        compress(header.compression, records) if header.attributes & COMPRESSION_MASK else records,
        attributes=header.attributes & ~DELETE_HORIZON_FLAG | (0 if horizon_ms is None else DELETE_HORIZON_FLAG),
        base_timestamp=base_timestamp,
        max_timestamp=max(max_timestamp, NO_TIMESTAMP),
        records_count=len(spans),
    )


def _with_timestamps(data: bytes, spans: Sequence[Span], deltas: Sequence[int]) -> bytearray:
    """Returns the records with these timestamp deltas."""
    records = bytearray()
    for (start, rest, end, old_delta), delta in zip(spans, deltas, strict=True):
        if delta == old_delta:
            records += data[start:end]
            continue
        head = bytearray(1)  # the record's attributes, unused
        append_varint(head, delta)
        append_varint(records, len(head) + end - rest)
        records += head
        records += data[rest:end]
    return records


def _assembled(
    header: BatchHeader, payload: Buffer, *, attributes: int, base_timestamp: int, max_timestamp: int, records_count: int
) -> KeptBatch:
    base_offset, _, leader_epoch, magic, _, _, last_offset_delta, _, _, producer_id, producer_epoch, base_sequence, _ = header
    assembled = BatchHeader(
        base_offset, 0, leader_epoch, magic, 0, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, records_count,
    )  # fmt: skip
    return KeptBatch(assemble_batch(assembled, payload), base_offset + last_offset_delta, max_timestamp)
