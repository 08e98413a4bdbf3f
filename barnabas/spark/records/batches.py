"""Decoded records as record batches of Arrow, in the columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from .arrays import binary_array, fixed_array
from .decode import HEADERS_TYPE, TIMESTAMP_TYPE, Payload, RecordColumns

SCHEMA_TEXT = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS_TEXT = ", headers array<struct<key: string, value: binary>>"
CHUNK_BYTES = 8 << 20
"""Payloads are decoded together up to so many bytes."""
_FIELDS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("timestampType", pa.int32()),
)
_SCHEMA = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS_TYPE)])


def schema_text(*, has_headers: bool) -> str:
    """As Spark writes it."""
    return SCHEMA_TEXT + (HEADERS_TEXT if has_headers else "")


def to_record_batch(columns: RecordColumns, topic: str, partition: int, *, has_headers: bool) -> pa.RecordBatch:
    """The records of one partition."""
    count = len(columns.offset)
    arrays = [
        columns.key,
        columns.value,
        pa.repeat(binary_array([topic.encode()], pa.string())[0], count),
        fixed_array(np.full(count, partition, np.int32), pa.int32()),
        columns.offset,
        columns.timestamp,
        columns.timestamp_type,
    ]
    if has_headers:
        return pa.RecordBatch.from_arrays([*arrays, columns.headers], schema=_SCHEMA_WITH_HEADERS)
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def chunks_of(payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
    """The payloads in runs to be decoded together."""
    chunk: list[Payload] = []
    size = 0
    for payload in payloads:
        if chunk and size + len(payload.data) > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(payload)
        size += len(payload.data)
    if chunk:
        yield chunk
