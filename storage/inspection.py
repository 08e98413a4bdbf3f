"""Prints what is in a log directory's files, in the layout of kafka-dump-log (DumpLogSegments): `python -m storage.inspection PATH…`

A path is a file, or a partition's directory, whose files are printed in order. With --print-data-log the records follow their batch.
Beyond what Kafka's tool prints: leader-epoch-checkpoint, the offset checkpoints and partition.metadata, which it calls unknown files.
Not done: --index-sanity-check and the comparison of indexes with their segments; decoders of the records of internal topics.

The files are read with the declarations of `storage/formats.py`, not with what the broker reads them with, and are never written to:
it may run beside a broker. A batch that is being appended may then look torn.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import count
from pathlib import Path

import construct as c

from protocol.checksum import crc32c
from protocol.compression import Compression, decompress
from protocol.errors import DecodeError
from protocol.records import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, NO_SEQUENCE, SEQUENCE_MAX, default_decompressed_limit
from storage import formats
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    read_file,
)

UNKNOWN_VALUE = -1  # no such batch, transaction, key
_CRC_PART = 6  # of a producer snapshot: from here on the checksum covers it


def dump(path: Path, *, prints_data: bool = False, disk: Disk = SYSTEM_DISK) -> Iterator[str]:
    """The lines of one file. ValueError when it is none of a log directory's, OSError or StorageError when the disk fails, and
    construct.ConstructError when the file is torn other than at its end."""
    read = _READERS.get(path.name) or _READERS.get(path.suffix)
    if read is None:
        raise ValueError(f"unknown file {path}")
    yield f"Dumping {path}"
    yield from _dump_log(path, disk, prints_data) if read is _dump_log else read(path, disk)


def files_of(directory: Path, disk: Disk = SYSTEM_DISK) -> list[Path]:
    """The files of a partition's directory, or the checkpoints of a log directory, that `dump` knows, by name. OSError."""
    paths = [directory / entry.name for entry in disk.scan(directory) if not entry.is_directory]
    return sorted(path for path in paths if path.name in _READERS or path.suffix in _READERS)


# -- segments ------------------------------------------------------------------------------------------------------------


def _dump_log(path: Path, disk: Disk, prints_data: bool = False) -> Iterator[str]:
    yield f"Log starting offset: {_base_offset(path)}"
    position = 0
    descriptor = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = disk.fstat(descriptor).st_size
        while (data := _read_batch(descriptor, position, size, disk)) is not None:
            batch = formats.RECORD_BATCH.parse(data)
            yield _batch_line(batch, position, data)
            if prints_data:
                yield from _record_lines(batch)
            position += len(data)
    finally:
        disk.close(descriptor)
    if position < size:
        yield f"Found {size - position} invalid bytes at the end of {path.name}"


def _read_batch(descriptor: int, position: int, end_position: int, disk: Disk) -> bytes | None:
    """None where no whole batch of format 2 lies before `end_position`."""
    head = disk.pread(descriptor, HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return None
    header = formats.RECORD_BATCH_HEADER.parse(head)
    size = header.batch_length + LOG_OVERHEAD
    if header.magic != MAGIC_V2 or not HEADER_SIZE <= size <= end_position - position:
        return None
    data = disk.pread(descriptor, size, position)
    return data if len(data) == size else None


def _batch_line(batch: c.Container, position: int, data: bytes) -> str:
    header, attributes = batch.header, batch.header.attributes
    return _fields(
        baseOffset=header.base_offset,
        lastOffset=header.base_offset + header.last_offset_delta,
        count=header.records_count,
        baseSequence=header.base_sequence,
        lastSequence=_sequence(header, header.last_offset_delta),
        producerId=header.producer_id,
        producerEpoch=header.producer_epoch,
        partitionLeaderEpoch=header.partition_leader_epoch,
        isTransactional=_bool(attributes.is_transactional),
        isControl=_bool(attributes.is_control),
        deleteHorizonMs=_optional(header.base_timestamp if attributes.has_delete_horizon else None),
        position=position,
        **{str(attributes.timestamp_type): header.max_timestamp},
        size=len(data),
        magic=header.magic,
        compresscodec=attributes.compression,
        crc=header.crc,
        isvalid=_bool(crc32c(memoryview(data)[CRC_START:]) == header.crc),
    )


def _record_lines(batch: c.Container) -> Iterator[str]:
    try:
        yield from (_record_line(batch.header, record) for record in _records(batch))
    except (DecodeError, c.ConstructError, ValueError) as error:
        yield f"| malformed records: {error}"


def _records(batch: c.Container) -> Iterator[c.Container]:
    codec = Compression(int(batch.header.attributes.compression))
    payload = BytesIO(decompress(codec, batch.payload, max_bytes=default_decompressed_limit(len(batch.payload))))
    for _ in range(batch.header.records_count):
        yield formats.RECORD.parse_stream(payload)


def _record_line(header: c.Container, record: c.Container) -> str:
    kind = str(header.attributes.timestamp_type)
    line = "| " + _fields(
        offset=header.base_offset + record.offset_delta,
        **{kind: header.max_timestamp if kind == "LogAppendTime" else header.base_timestamp + record.timestamp_delta},
        keySize=UNKNOWN_VALUE if record.key is None else len(record.key),
        valueSize=UNKNOWN_VALUE if record.value is None else len(record.value),
        sequence=_sequence(header, record.offset_delta),
        headerKeys=f"[{','.join(each.key for each in record.headers)}]",
    )
    if header.attributes.is_control:
        return f"{line} {_control_fields(record)}"
    for name, content in (("key", record.key), ("payload", record.value)):
        if content is not None:
            line += f" {name}: {content.decode(errors='replace')}"
    return line


def _control_fields(record: c.Container) -> str:
    kind = formats.CONTROL_RECORD_KEY.parse(record.key).type
    if str(kind) in ("ABORT", "COMMIT"):
        return _fields(endTxnMarker=kind, coordinatorEpoch=formats.END_TRANSACTION_MARKER.parse(record.value).coordinator_epoch)
    return f"controlType: {kind}({int(kind)})"


def _sequence(header: c.Container, offset_delta: int) -> int:
    """It wraps behind 2^31 - 1."""
    return NO_SEQUENCE if header.base_sequence == NO_SEQUENCE else (header.base_sequence + offset_delta) % (SEQUENCE_MAX + 1)


# -- indexes, snapshots --------------------------------------------------------------------------------------------------


def _dump_offset_index(path: Path, disk: Disk) -> Iterator[str]:
    if not _content(path, disk):
        yield f"{path} is empty."  # of an offset index alone, as in Kafka
    base_offset = _base_offset(path)
    for entry in _entries(path, disk, formats.OFFSET_INDEX_ENTRY):
        yield _fields(offset=base_offset + entry.relative_offset, position=entry.position)


def _dump_time_index(path: Path, disk: Disk) -> Iterator[str]:
    base_offset = _base_offset(path)
    for entry in _entries(path, disk, formats.TIME_INDEX_ENTRY):
        yield _fields(timestamp=entry.timestamp, offset=base_offset + entry.relative_offset)


def _dump_transaction_index(path: Path, disk: Disk) -> Iterator[str]:
    for entry in _entries(path, disk, formats.TRANSACTION_INDEX_ENTRY):
        yield _fields(
            version=entry.version, producerId=entry.producer_id, firstOffset=entry.first_offset,
            lastOffset=entry.last_offset, lastStableOffset=entry.last_stable_offset,
        )  # fmt: skip


def _entries(path: Path, disk: Disk, entry: c.Construct) -> Iterator[c.Container]:
    """Of an index. An active one of Kafka's is preallocated: behind its entries come zeros, which only the first entry may be."""
    content, size = _content(path, disk), entry.sizeof()
    for slot in count():
        packed = content[slot * size : (slot + 1) * size]
        if len(packed) < size or (slot and not any(packed)):
            return
        yield entry.parse(packed)


def _dump_producer_snapshot(path: Path, disk: Disk) -> Iterator[str]:
    content = _content(path, disk)
    snapshot = formats.PRODUCER_SNAPSHOT.parse(content)
    if crc32c(memoryview(content)[_CRC_PART:]) != snapshot.crc:
        yield f"{path.name} is corrupt: its CRC does not match"
    for entry in snapshot.entries:
        first_offset = entry.current_transaction_first_offset
        line = _fields(
            producerId=entry.producer_id, producerEpoch=entry.producer_epoch, coordinatorEpoch=entry.coordinator_epoch,
            currentTxnFirstOffset=_optional(None if first_offset == UNKNOWN_VALUE else first_offset), lastTimestamp=entry.timestamp,
        )  # fmt: skip
        if entry.last_offset != UNKNOWN_VALUE:
            first_sequence = (entry.last_sequence - entry.offset_delta) % (SEQUENCE_MAX + 1)
            line += " " + _fields(
                firstSequence=first_sequence, lastSequence=entry.last_sequence, lastOffset=entry.last_offset,
                offsetDelta=entry.offset_delta, timestamp=entry.timestamp,
            )  # fmt: skip
        yield line


# -- text ----------------------------------------------------------------------------------------------------------------


def _dump_leader_epochs(path: Path, disk: Disk) -> Iterator[str]:
    for entry in formats.LEADER_EPOCH_CHECKPOINT.parse(_content(path, disk)).entries:
        yield _fields(epoch=entry.epoch, startOffset=entry.start_offset)


def _dump_offset_checkpoint(path: Path, disk: Disk) -> Iterator[str]:
    for entry in formats.OFFSET_CHECKPOINT.parse(_content(path, disk)).entries:
        yield _fields(topic=entry.topic, partition=entry.partition, offset=entry.offset)


def _dump_partition_metadata(path: Path, disk: Disk) -> Iterator[str]:
    metadata = formats.PARTITION_METADATA.parse(_content(path, disk))
    yield _fields(version=metadata.version, topicId=metadata.topic_id.strip())


# -- inside --------------------------------------------------------------------------------------------------------------


def _content(path: Path, disk: Disk) -> bytes:
    content = read_file(path, disk)
    if content is None:
        raise StorageError(f"{path} is missing", path=path)
    return content


def _base_offset(path: Path) -> int:
    return int(path.name.split(".")[0])


def _fields(**fields: object) -> str:
    return " ".join(f"{name}: {value}" for name, value in fields.items())


def _bool(value: object) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    """As Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


_READERS: dict[str, Callable[[Path, Disk], Iterator[str]]] = {
    LOG_SUFFIX: _dump_log,
    INDEX_SUFFIX: _dump_offset_index,
    TIME_INDEX_SUFFIX: _dump_time_index,
    TRANSACTION_INDEX_SUFFIX: _dump_transaction_index,
    PRODUCER_SNAPSHOT_SUFFIX: _dump_producer_snapshot,
    LEADER_EPOCH_CHECKPOINT: _dump_leader_epochs,
    PARTITION_METADATA: _dump_partition_metadata,
    RECOVERY_POINT_CHECKPOINT: _dump_offset_checkpoint,
    HIGH_WATERMARK_CHECKPOINT: _dump_offset_checkpoint,
    LOG_START_OFFSET_CHECKPOINT: _dump_offset_checkpoint,
    CLEANER_CHECKPOINT: _dump_offset_checkpoint,
}
"""By name, or by suffix."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 when a file could not be read."""
    parser = argparse.ArgumentParser(prog="python -m storage.inspection", description="Print the files of partitions' directories.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file, or a directory with all its files")
    parser.add_argument("--print-data-log", action="store_true", help="print the records of each batch too")
    options = parser.parse_args(arguments)
    try:
        are_all_read = [_print(path, options.print_data_log) for given in options.paths for path in _files(given)]
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        with suppress(BrokenPipeError):
            sys.stdout.close()  # else the interpreter's end would try to write the rest
        return 0
    return 0 if all(are_all_read) else 1


def _files(given: Path) -> list[Path]:
    try:
        return files_of(given)
    except OSError:  # no directory: `dump` says what else is wrong with it
        return [given]


def _print(path: Path, prints_data: bool) -> bool:
    """Returns whether the file could be read."""
    try:
        for line in dump(path, prints_data=prints_data):
            print(line)
    except BrokenPipeError:
        raise
    except (OSError, StorageError, ValueError, c.ConstructError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
