"""Encodes metadata records into batches and decodes them, and decides the record versions to write.

The versions are those of the finalized metadata.version, at least 4.0-IV3: Kafka 4.0 to 4.3 reads all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from broker.metadata.features import CORDONED_DIRECTORIES_LEVEL, METADATA_VERSION_LEVEL
from broker.quorum.quorum import Batch
from protocol.errors import DecodeError
from protocol.messages.stored.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnknownMetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from protocol.records import SimpleRecord, append_record, build_batch_of, crc_is_valid, iterate_headers, iterate_records
from storage.errors import StorageError

_RECORD_VERSIONS: dict[type, int] = {
    PartitionRecord: 2,
    PartitionChangeRecord: 2,
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
}

_REGISTER_BROKER_VERSION_WITH_CORDONED = 4
_REGISTRATION_CHANGE_VERSION_WITH_CORDONED = 3

BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Limit of one batch's records once decompressed; Kafka writes at most 8 MiB."""


def build_metadata_batch(
    records: Sequence[Any], *, base_offset: int, epoch: int, now_ms: int, level: int = METADATA_VERSION_LEVEL
) -> bytearray:
    """The records as one batch with its offsets assigned; `level` is the finalized metadata.version."""
    payload = bytearray()
    for offset_delta, record in enumerate(records):
        append_encoded(payload, record, offset_delta, level)
    return batch_of_encoded(payload, len(records), base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def append_encoded(payload: bytearray, record: Any, offset_delta: int, level: int = METADATA_VERSION_LEVEL) -> None:
    """Append a record to a batch's payload. `offset_delta` is its distance from the first record. All records of a batch have one time."""
    value = encode_metadata_record(record, record_version(record, level))
    append_record(payload, SimpleRecord(None, value, (), 0), offset_delta, 0)


def record_version(record: Any, level: int) -> int:
    """The version to write `record` at where metadata.version is `level`."""
    if level >= CORDONED_DIRECTORIES_LEVEL:
        if type(record) is RegisterBrokerRecord:
            return _REGISTER_BROKER_VERSION_WITH_CORDONED
        if type(record) is BrokerRegistrationChangeRecord and record.cordoned_log_dirs is not None:
            return _REGISTRATION_CHANGE_VERSION_WITH_CORDONED
    return _RECORD_VERSIONS.get(type(record), 0)


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
        value, version = decode_metadata_record(record.value)
        if type(value) is UnknownMetadataRecord:
            # Without this record, this node's state would differ from that of the others.
            raise StorageError(
                f"the metadata record at offset {record.offset} is of type {value.key} and version {version}, which this version of "
                "Barnabas does not know: it was written by a newer one, or by a newer Kafka"
            )
        decoded.append(value)
    return decoded
