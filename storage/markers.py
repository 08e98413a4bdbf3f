"""Transaction markers, as a transaction coordinator asks for them: control batches with a verdict for each (WriteTxnMarkers).

Kafka appends one producer's markers at a time. Here those of several producers are written with one call; each is judged by itself.
Called by Log only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from config.topic import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    BatchHeader,
    ControlRecordType,
    EndTransactionMarker,
    build_control_batch,
    encode_end_transaction_value,
    read_header,
    set_log_append_time,
)
from storage.producer_state import ProducerStateManager
from storage.validation import AppendOrigin

MARKER_BYTES = 78  # of one marker's batch


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction. `transaction_version` is that of WriteTxnMarkers 2; 0 if the request has none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = 0

    @property
    def control(self) -> EndTransactionMarker:
        """What its record has."""
        return EndTransactionMarker(ControlRecordType.COMMIT if self.is_commit else ControlRecordType.ABORT, self.coordinator_epoch)


class MarkerResult(NamedTuple):
    """`offset` is the marker's, -1 when it was refused; then `error_code` and `message` say why."""

    error_code: ErrorCode
    offset: int
    message: str | None = None


class AcceptedMarker(NamedTuple):
    """A marker's batch with its offset."""

    control: EndTransactionMarker
    header: BatchHeader
    records: bytearray


def split_markers(markers: Sequence[TransactionMarker], bytes_max: int) -> Iterator[Sequence[TransactionMarker]]:
    """Yields runs of markers that can be judged before any of them is written: no producer twice, and not longer than `bytes_max`."""
    count_max = max(bytes_max // MARKER_BYTES, 1)
    start, producers = 0, set[int]()
    for index, marker in enumerate(markers):
        if marker.producer_id in producers or index - start >= count_max:
            yield markers[start:index]
            start, producers = index, set()
        producers.add(marker.producer_id)
    if start < len(markers):
        yield markers[start:]


def judge_markers(
    markers: Sequence[TransactionMarker],
    producers: ProducerStateManager,
    config: LogConfig,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> tuple[list[MarkerResult], list[AcceptedMarker]]:
    """Returns each marker's result, and the batches of the accepted ones, whose offsets follow each other from `first_offset` on. Nothing
    is changed. The broker's own batches need no check of their bytes."""
    results: list[MarkerResult] = []
    accepted: list[AcceptedMarker] = []
    for marker in markers:
        offset = first_offset + len(accepted)
        control = marker.control
        batch = _build(marker, control, offset, leader_epoch, now_ms)
        if config.is_log_append_time:
            set_log_append_time(batch, 0, now_ms)
        header = read_header(batch)
        try:
            producers.check_append(header, AppendOrigin.COORDINATOR, control, transaction_version=marker.transaction_version)
        except KafkaError as error:
            results.append(MarkerResult(error.code, -1, error.message))
        else:
            results.append(MarkerResult(ErrorCode.NONE, offset))
            accepted.append(AcceptedMarker(control, header, batch))
    return results, accepted


def _build(marker: TransactionMarker, control: EndTransactionMarker, offset: int, leader_epoch: int, now_ms: int) -> bytearray:
    return build_control_batch(
        control.control_type,
        encode_end_transaction_value(control.coordinator_epoch),
        timestamp=now_ms,
        base_offset=offset,
        partition_leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
