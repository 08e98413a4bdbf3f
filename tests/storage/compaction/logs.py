"""Logs to compact, and compaction as the broker does it, without a broker."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.records import BatchHeader, Record, SimpleRecord, build_batch, iterate_headers, iterate_records
from storage.compaction.cleaner import compact
from storage.compaction.plan import CompactionPlan, CompactionResult
from storage.compaction.selection import find_cleanable, make_plan, swap_in
from storage.disk import SYSTEM_DISK, Disk
from storage.log import Log
from storage.validation import AppendOrigin
from tests.storage.conftest import NOW_MS, read_bytes
from tests.support.transactions import verified
from tests.support.turns import finished

LIMIT_BYTES = 1 << 27

Pair = tuple[str | None, str | None]


def put(log: Log, *pairs: Pair, timestamp: int = NOW_MS, now_ms: int = NOW_MS, **fields: object) -> None:
    """Append one batch of these keys and values."""
    records = [SimpleRecord(_encode(key), _encode(value), (), timestamp) for key, value in pairs]
    data = memoryview(build_batch(records, **fields))  # type: ignore[arg-type]
    log.append_as_leader(data, leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.COORDINATOR, transaction=verified(log, data))
    log.set_high_watermark(log.log_end_offset)


def plan_of(
    log: Log, *, now_ms: int = NOW_MS, limit_bytes: float = LIMIT_BYTES, read_bytes: int = 4096, disk: Disk = SYSTEM_DISK
) -> CompactionPlan:
    log.flush()
    return make_plan(find_cleanable(log, now_ms), now_ms=now_ms, map_limit_bytes=limit_bytes, read_bytes=read_bytes, disk=disk)


def swap(log: Log, plan: CompactionPlan, result: CompactionResult, now_ms: int = NOW_MS) -> bool:
    """Put what came of it into the log, all that still fits."""
    are_in = [swap_in(log, plan, cleaned, now_ms) for cleaned in result.cleaned]
    if all(are_in):
        log.clean_end_offset = result.clean_end_offset
    return all(are_in)


def run(log: Log, *, now_ms: int = NOW_MS, **arguments: object) -> CompactionResult:
    """Compact everything but the active segment."""
    plan = plan_of(log, now_ms=now_ms, **arguments)  # type: ignore[arg-type]
    result = finished(compact(plan))
    assert swap(log, plan, result, now_ms)
    return result


def headers_of(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for _, header in segment.iterate_batches()]


def records_of(log: Log) -> list[Record]:
    """All records, but for those of control batches."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset and (data := read_bytes(log, offset)):
        for position, header in iterate_headers(data):
            if not header.is_control:
                records += iterate_records(data, position)
            offset = header.next_offset
    return records


def pairs_of(log: Log) -> list[tuple[int, str | None, str | None]]:
    return [(record.offset, _decode(record.key), _decode(record.value)) for record in records_of(log)]


def last_values(records: Sequence[Record]) -> dict[bytes | None, bytes]:
    """The last value of each key; a key whose last record is a tombstone has none."""
    values: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decode(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
