"""RefusedSequences: batches of idempotent producers that this broker refused lately, so that it can tell why the next batch is out of
order.

A producer has several requests in flight. The first may be refused because this broker does not lead yet, or because the ISR is too small.
If the second arrives when that is over, it is out of order, and Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then takes a
new producer epoch and sends everything again in it. That may include records that a leader appended before it died without an answer: these
are duplicated, in any partition. Here the second batch gets the error of the first, and the client sends both again, in order.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import DecodeError, ErrorCode
from protocol.records import BatchHeader, read_header
from storage.log import Log
from storage.validation import PreparedBatch

CAUSES = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS})
KEPT_MS = 5_000
"""A producer that was refused tries again within milliseconds. After this time a gap in its sequence is a real one."""
KEPT_MAX = 1_000
"""Pairs of producer and partition; the oldest is forgotten first."""


class Refused(NamedTuple):
    """A range of sequences that was refused lately, and the error that the client got. The first of them may be in the log: a leader may
    have died before it answered, and NOT_ENOUGH_REPLICAS is checked before duplicates are."""

    epoch: int
    first_sequence: int
    last_sequence: int
    code: ErrorCode
    at_ms: int


class RefusedSequences:
    """Owned by the ProducePath, which calls it only for refused batches, so that appends cost nothing."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, int, int], Refused] = {}

    def record(self, topic: str, index: int, records: memoryview | PreparedBatch, code: ErrorCode, now_ms: int) -> None:
        """Record that a batch was refused for one of CAUSES."""
        header = _find_header(records)
        if header is None or header.producer_id < 0:
            return
        first, last = header.base_sequence, header.last_sequence
        key = (topic, index, header.producer_id)
        known = self._refused.pop(key, None)
        if known is not None and known.epoch == header.producer_epoch and _is_fresh(known, now_ms):
            first, last = min(first, known.first_sequence), max(last, known.last_sequence)
        self._refused[key] = Refused(header.producer_epoch, first, last, code, now_ms)
        if len(self._refused) > KEPT_MAX:
            del self._refused[next(iter(self._refused))]

    def find_cause(self, topic: str, index: int, records: memoryview | PreparedBatch, log: Log, now_ms: int) -> ErrorCode | None:
        """Returns the error for which the batch before this one, which is out of order, was refused; None if that batch never arrived."""
        header = _find_header(records)
        refused = None if header is None else self._refused.get((topic, index, header.producer_id))
        if header is None or refused is None or refused.epoch != header.producer_epoch or not _is_fresh(refused, now_ms):
            return None
        entry = log.producers.producers.get(header.producer_id)
        if entry is None or entry.producer_epoch < header.producer_epoch:
            expected = 0  # each transaction of version 2 begins so, in an epoch of its own
        elif entry.producer_epoch == header.producer_epoch:
            expected = entry.last_sequence + 1
        else:
            return None
        is_cause = refused.first_sequence <= expected <= refused.last_sequence
        return refused.code if is_cause else None


def _find_header(records: memoryview | PreparedBatch) -> BatchHeader | None:
    try:
        return read_header(records.records if isinstance(records, PreparedBatch) else records)
    except DecodeError:
        return None


def _is_fresh(refused: Refused, now_ms: int) -> bool:
    return 0 <= now_ms - refused.at_ms <= KEPT_MS
