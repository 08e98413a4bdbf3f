"""Metadata records in batches: the record versions this broker writes, and batches to records and back.

The versions are those of metadata.version 4.0-IV3, which is also what a new cluster is finalized at; Kafka 4.0 to 4.3 reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from broker.quorum.quorum import Batch
from protocol.errors import DecodeError
from protocol.messages.stored.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from protocol.records import SimpleRecord, append_record, build_batch_of, crc_is_valid, iterate_headers, iterate_records
from storage.errors import StorageError

METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 7
"""3.3-IV3, the oldest that Kafka 4 reads."""
METADATA_VERSION_LEVEL = 25
"""4.0-IV3."""

_RECORD_VERSIONS: dict[type, int] = {
    PartitionRecord: 2,
    PartitionChangeRecord: 2,
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
}

BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Limit of one batch's records once decompressed; Kafka writes at most 8 MiB."""


def build_metadata_batch(records: Sequence[Any], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """The records as one batch with its offsets assigned."""
    payload = bytearray()
    for offset_delta, record in enumerate(records):
        append_encoded(payload, record, offset_delta)
    return batch_of_encoded(payload, len(records), base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def append_encoded(payload: bytearray, record: Any, offset_delta: int) -> None:
    """Append to a batch's payload the record that comes `offset_delta` after its first. All records of a batch have one time."""
    value = encode_metadata_record(record, _RECORD_VERSIONS.get(type(record), 0))
    append_record(payload, SimpleRecord(None, value, (), 0), offset_delta, 0)


def batch_of_encoded(payload: bytearray, records_count: int, *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """The batch of a payload that `append_encoded` made."""
    return build_batch_of(payload, records_count, timestamp=now_ms, base_offset=base_offset, partition_leader_epoch=epoch)


def read_metadata_batches(buffer: memoryview, what: str) -> Iterator[Batch]:
    """The whole batches in `buffer`. Raises StorageError, naming `what`, for one that is damaged."""
    try:
        for position, header in iterate_headers(buffer):
            if not crc_is_valid(buffer, position, header.size_bytes):
                raise StorageError(f"{what}: the batch at offset {header.base_offset} has a wrong CRC")
            records = [] if header.is_control else _records(buffer, position)
            yield Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, records)
    except DecodeError as error:
        raise StorageError(f"{what} cannot be read: {error}") from error


def _records(buffer: memoryview, position: int) -> list[Any]:
    decoded = []
    for record in iterate_records(buffer, position, max_bytes=BATCH_BYTES_MAX):
        if record.value is None:
            raise DecodeError(f"the metadata record at offset {record.offset} has no value")
        decoded.append(decode_metadata_record(record.value)[0])
    return decoded
