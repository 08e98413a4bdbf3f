"""Show the record batches of segments, and with --records what is in them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any

import construct

from barnabas.cli import arguments
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.log.files import Batch, LogFile, batches, find_files
from barnabas.cli.log.reading import add_paths, each_file
from barnabas.cli.output import Column, Output
from barnabas.cli.record_json import put
from barnabas.cli.times import to_text
from protocol.checksum import crc32c
from protocol.compression import Compression, decompress
from protocol.errors import DecodeError
from protocol.records import CRC_START, NO_SEQUENCE, default_decompressed_limit
from storage import formats
from storage.files import LOG_SUFFIX

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("file", "FILE", is_wide=True),
    Column("position", "POSITION", is_number=True),
    Column("base_offset", "BASE", is_number=True),
    Column("last_offset", "LAST", is_number=True),
    Column("count", "RECORDS", is_number=True),
    Column("size_bytes", "BYTES", is_number=True),
    Column("compression", "COMPRESSION"),
    Column("max_timestamp", "LATEST", to_text),
    Column("timestamp_type", "TIMES ARE", is_wide=True),
    Column("leader_epoch", "EPOCH", is_number=True),
    Column("producer_id", "PRODUCER", is_number=True),
    Column("producer_epoch", "PRODUCER EPOCH", is_number=True, is_wide=True),
    Column("base_sequence", "SEQUENCE", is_number=True),
    Column("is_transactional", "TXN"),
    Column("is_control", "CONTROL"),
    Column("is_valid", "CRC FITS"),
)
RECORDS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("offset", "OFFSET", is_number=True),
    Column("timestamp", "TIME", to_text),
    Column("key", "KEY"),
    Column("value", "VALUE"),
    Column("control", "CONTROL"),
)
NONE = -1
MARKERS = ("ABORT", "COMMIT")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    parser.add_argument("--records", action="store_true", help="also their records: a line each, or as data a list in each batch")
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    output = Output(options.output)
    with each_file(find_files(options.paths, (LOG_SUFFIX,))) as files:
        rows = [row for file in files for row in files.read(partial(_batches, has_records=options.records), file)]
        if output.is_data or not options.records:
            output.rows(rows, COLUMNS)
        else:
            output.table([_to_line(row, record) for row in rows for record in row["records"]], RECORDS)
    return DONE


def _batches(file: LogFile, *, has_records: bool) -> Iterator[dict[str, Any]]:
    for batch in batches(file):
        header, attributes = batch.header, batch.header.attributes
        row = {
            "topic": file.of.topic,
            "partition": file.of.partition,
            "file": str(file.path),
            "position": batch.position,
            "base_offset": header.base_offset,
            "last_offset": header.base_offset + header.last_offset_delta,
            "count": header.records_count,
            "size_bytes": len(batch.data),
            "compression": str(attributes.compression),
            "max_timestamp": None if header.max_timestamp < 0 else header.max_timestamp,
            "timestamp_type": str(attributes.timestamp_type),
            "leader_epoch": header.partition_leader_epoch,
            "producer_id": None if header.producer_id == NONE else header.producer_id,
            "producer_epoch": None if header.producer_id == NONE else header.producer_epoch,
            "base_sequence": None if header.base_sequence == NO_SEQUENCE else header.base_sequence,
            "is_transactional": bool(attributes.is_transactional),
            "is_control": bool(attributes.is_control),
            "is_valid": crc32c(batch.data[CRC_START:]) == header.crc,
        }
        if has_records:
            row["records"] = list(_records(file, batch))
        yield row


def _records(file: LogFile, batch: Batch) -> Iterator[dict[str, Any]]:
    """Raises RefusedError."""
    header = batch.header
    is_append_time = str(header.attributes.timestamp_type) == "LogAppendTime"
    try:
        packed = formats.RECORD_BATCH.parse(batch.data).payload
        codec = Compression(int(header.attributes.compression))
        payload = BytesIO(decompress(codec, packed, max_bytes=default_decompressed_limit(len(packed))))
        for _ in range(header.records_count):
            record = formats.RECORD.parse_stream(payload)
            row: dict[str, Any] = {
                "offset": header.base_offset + record.offset_delta,
                "timestamp": header.max_timestamp if is_append_time else header.base_timestamp + record.timestamp_delta,
            }
            if header.attributes.is_control:
                row |= _control(record)
            else:
                put(row, "key", record.key)
                put(row, "value", record.value)
                row["headers"] = [{"key": each.key} for each in record.headers]
                for header_row, each in zip(row["headers"], record.headers, strict=True):
                    put(header_row, "value", each.value)
            yield row
    except (DecodeError, construct.ConstructError, ValueError) as e:
        where = f"{file.path}, byte {batch.position}, offset {header.base_offset}"
        raise RefusedError(f"{where}: the records are not what the header says: {' '.join(str(e).split())}") from e


def _control(record: Any) -> dict[str, Any]:
    kind = str(formats.CONTROL_RECORD_KEY.parse(record.key).type)
    epoch = formats.END_TRANSACTION_MARKER.parse(record.value).coordinator_epoch if kind in MARKERS else None
    return {"control": kind, "coordinator_epoch": epoch}


def _to_line(row: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """With what is no UTF-8 in base64."""
    line = {"topic": row["topic"], "partition": row["partition"], **record}
    for name in ("key", "value"):
        line[name] = record.get(name, record.get(f"{name}_base64"))
    return line
