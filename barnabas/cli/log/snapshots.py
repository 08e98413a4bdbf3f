"""Show the producers in snapshots: the last sequence and offset of each, and its open transaction."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.log.files import LogFile, find_files, parse
from barnabas.cli.log.reading import add_paths, each_file
from barnabas.cli.output import Column, Output
from barnabas.cli.times import to_text
from protocol.checksum import crc32c
from storage import formats
from storage.files import PRODUCER_SNAPSHOT_SUFFIX

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("file", "FILE", is_wide=True),
    Column("offset", "BEFORE", is_number=True),
    Column("producer_id", "PRODUCER", is_number=True),
    Column("producer_epoch", "EPOCH", is_number=True),
    Column("last_sequence", "LAST SEQUENCE", is_number=True),
    Column("last_offset", "LAST OFFSET", is_number=True),
    Column("timestamp", "TIME", to_text),
    Column("coordinator_epoch", "COORDINATOR EPOCH", is_number=True, is_wide=True),
    Column("transaction_start_offset", "OPEN SINCE", is_number=True),
)
CRC_PART = 6
"""From here on the checksum covers the file."""
NONE = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    with each_file(find_files(options.paths, (PRODUCER_SNAPSHOT_SUFFIX,))) as files:
        rows = [row for file in files for row in files.read(_producers, file)]
        Output(options.output).rows(rows, COLUMNS)
    return DONE


def check_crc(file: LogFile) -> Any:
    """The snapshot, as it is declared. Raises RefusedError."""
    snapshot = parse(file, formats.PRODUCER_SNAPSHOT)
    if crc32c(memoryview(file.path.read_bytes())[CRC_PART:]) != snapshot.crc:
        raise RefusedError(f"{file.path} is damaged: its CRC does not fit")
    return snapshot


def _producers(file: LogFile) -> Iterator[dict[str, Any]]:
    for entry in check_crc(file).entries:
        known = entry.last_offset != NONE
        yield {
            "topic": file.of.topic,
            "partition": file.of.partition,
            "file": str(file.path),
            "offset": file.base_offset,
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence if known else None,
            "last_offset": entry.last_offset if known else None,
            "timestamp": entry.timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_start_offset": None if entry.current_transaction_first_offset == NONE else entry.current_transaction_first_offset,
        }
