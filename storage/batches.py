"""Reads several batches that arrive together: from a leader, with offsets assigned, or from the broker's own coordinators.

Log uses it. Callers that append a leader's batches to an empty log first ask for the offset at which the log has to begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from config.topic import LogConfig
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.records import (
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    EndTransactionMarker,
    crc_is_valid,
    iterate_headers,
    read_end_transaction_marker,
)
from storage.producer_state import ProducerStateManager
from storage.validation import AppendOrigin, CheckedBatch, check_batch
from storage.verification import TransactionAppend


class OwnBatch(NamedTuple):
    """A checked batch of the broker's own."""

    records: memoryview
    checked: CheckedBatch
    marker: EndTransactionMarker | None


def check_own_batches(
    records: memoryview,
    config: LogConfig,
    producers: ProducerStateManager,
    now_ms: int,
    origin: AppendOrigin,
    transaction: TransactionAppend | None,
) -> list[OwnBatch]:
    """Checks and returns every batch in `records`; KafkaError if one is refused. Only one may be of a producer: each is judged against the
    state before the first."""
    batches = []
    for view in _split_batches(records):
        checked = check_batch(view, config, now_ms=now_ms, origin=origin)
        header = checked.header
        marker = read_end_transaction_marker(view, 0, header) if header.is_control else None
        if header.producer_id >= 0:
            producers.check_append(header, origin, marker, transaction=transaction)
        batches.append(OwnBatch(view, checked, marker))
    return batches


class ReplicatedBatch(NamedTuple):
    """A batch from a leader: its place in the received bytes, its header, and its marker if it ends a transaction."""

    position: int
    header: BatchHeader
    marker: EndTransactionMarker | None


def read_replicated_batches(records: memoryview, log_end_offset: int, leader_epoch: int) -> list[ReplicatedBatch]:
    """Returns the whole batches in `records` up to the first of a higher epoch than `leader_epoch`. All are checked before any is written:
    checksum, format, offsets that ascend from the log's end, the content of control batches.

    A fetch that was sent in one epoch may be answered in the next: the follower has not truncated for that one yet (KAFKA-18723)."""
    batches: list[ReplicatedBatch] = []
    next_offset = log_end_offset
    try:
        for position, header in iterate_headers(records):
            if header.partition_leader_epoch > leader_epoch:
                break
            if header.magic != MAGIC_V2 or not crc_is_valid(records, position, header.batch_length + LOG_OVERHEAD):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} from the leader is corrupt")
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"a batch at offset {header.base_offset} came where {next_offset} was next")
            is_marker = header.producer_id >= 0 and header.is_control
            marker = read_end_transaction_marker(records, position, header) if is_marker else None
            batches.append(ReplicatedBatch(position, header, marker))
            next_offset = header.next_offset
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a malformed batch came from the leader: {error}") from error
    return batches


def find_start_within_batch(start_offset: int, records: memoryview) -> int | None:
    """Returns the base offset of the first whole batch in `records` if the batch contains `start_offset` and begins before it; else None.

    That happens if records were deleted up to an offset within a batch: an empty copy of such a log has to begin at the batch's base
    offset. The append checks whether the batch is valid."""
    try:
        _, header = next(iterate_headers(records), (0, None))
    except DecodeError:
        return None
    return header.base_offset if header is not None and header.base_offset < start_offset <= header.last_offset else None


def _split_batches(records: memoryview) -> Iterator[memoryview]:
    """Yields one view per batch; the last may be partial, which the validation refuses."""
    end = 0
    for position, header in iterate_headers(records):
        end = position + header.size_bytes
        yield records[position:end]
    if end < len(records):
        yield records[end:]
