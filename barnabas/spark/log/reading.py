"""The rows of one segment."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.compression import Buffer
from ...protocol.errors import DecodeError
from ...protocol.records import BatchHeader, crc_is_valid, read_payload
from ..records.batches import CHUNK_BYTES, to_record_batch
from ..records.decode import TIMESTAMP_TYPE, Payload, decode_columns
from .batches import DamagedError, check_end, iterate_batches
from .options import LogOptions
from .partitions import Segment
from .transactions import Aborted, aborted_transactions

FOREVER = (1 << 63) - 1


def read_segment(options: LogOptions, segment: Segment) -> Iterator[pa.RecordBatch]:
    """Raises DamagedError where a batch is not what its CRC and its header say: never a wrong row."""
    aborted = [] if options.reads_uncommitted else aborted_transactions(segment.path)
    chunk: list[Payload] = []
    size = 0
    for payload in _payloads(segment, aborted):
        chunk.append(payload)
        size += len(payload.data)
        if size >= CHUNK_BYTES:
            yield from _rows(options, segment, chunk)
            chunk, size = [], 0
    if chunk:
        yield from _rows(options, segment, chunk)


def check_columns(header: BatchHeader, payload: Buffer) -> None:
    """Whether the records of a batch can be read as columns: audit.RecordCheck, all of them at once."""
    decode_columns([Payload(header, payload)], start_offset=0, end_offset=header.next_offset)


def _payloads(segment: Segment, aborted: list[Aborted]) -> Iterator[Payload]:
    of_producer: dict[int, list[Aborted]] = {}
    for each in aborted:
        of_producer.setdefault(each.producer_id, []).append(each)
    size, next_offset = 0, int(segment.path.stem)
    for position, header, data in iterate_batches(segment.path):
        size, next_offset = position + header.size_bytes, header.next_offset
        if segment.end is not None and header.base_offset >= segment.end:
            return
        if header.next_offset <= segment.start or header.is_control or _is_aborted(header, of_producer):
            continue
        if not crc_is_valid(data, 0, len(data)):
            raise DamagedError(
                f"{segment.path} is damaged: the CRC of the batch at byte {position}, offset {header.base_offset}, does not fit"
            )
        try:
            yield Payload(header, read_payload(data, 0, header))
        except DecodeError as error:
            raise DamagedError(f"{segment.path} is damaged at byte {position}, offset {header.base_offset}: {error}") from error
    check_end(segment.path, size, next_offset, segment.end, is_last=segment.is_last)


def _is_aborted(header: BatchHeader, of_producer: dict[int, list[Aborted]]) -> bool:
    if not header.is_transactional:
        return False
    return any(each.first_offset <= header.base_offset <= each.last_offset for each in of_producer.get(header.producer_id, ()))


def _rows(options: LogOptions, segment: Segment, payloads: list[Payload]) -> Iterator[pa.RecordBatch]:
    try:
        columns = decode_columns(payloads, start_offset=segment.start, end_offset=FOREVER if segment.end is None else segment.end)
    except DecodeError as error:
        raise DamagedError(f"{segment.path} is damaged at or after offset {payloads[0].header.base_offset}: {error}") from error
    rows = to_record_batch(columns, segment.topic, segment.partition, has_headers=options.has_headers)
    for bound_ms, compare in ((options.starting_ms, pc.greater_equal), (options.ending_ms, pc.less)):
        if bound_ms is not None:
            rows = rows.filter(compare(rows.column("timestamp"), pa.scalar(bound_ms * 1000, TIMESTAMP_TYPE)))
    if rows.num_rows:
        yield rows
