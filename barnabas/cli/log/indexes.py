"""Show the entries of indexes: of offsets, of times, and of aborted transactions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.errors import DONE
from barnabas.cli.log.files import LogFile, entries, find_files
from barnabas.cli.log.reading import add_paths, each_file
from barnabas.cli.output import Column, Output
from barnabas.cli.times import to_text
from storage import formats
from storage.files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("file", "FILE", is_wide=True),
    Column("kind", "INDEX OF"),
    Column("offset", "OFFSET", is_number=True),
    Column("position", "POSITION", is_number=True),
    Column("timestamp", "TIME", to_text),
    Column("producer_id", "PRODUCER", is_number=True),
    Column("first_offset", "ABORTED FROM", is_number=True),
    Column("last_stable_offset", "LAST STABLE", is_number=True, is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    with each_file(find_files(options.paths, (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX))) as files:
        rows = [row for file in files for row in files.read(_entries, file)]
        Output(options.output).rows(rows, COLUMNS)
    return DONE


def _entries(file: LogFile) -> Iterator[dict[str, Any]]:
    common = {"topic": file.of.topic, "partition": file.of.partition, "file": str(file.path)}
    absent = dict.fromkeys(("position", "timestamp", "producer_id", "first_offset", "last_stable_offset"))
    if file.path.suffix == INDEX_SUFFIX:
        for entry in entries(file, formats.OFFSET_INDEX_ENTRY):
            yield {**common, "kind": "offsets", "offset": file.base_offset + entry.relative_offset, **absent, "position": entry.position}
    elif file.path.suffix == TIME_INDEX_SUFFIX:
        for entry in entries(file, formats.TIME_INDEX_ENTRY):
            yield {**common, "kind": "times", "offset": file.base_offset + entry.relative_offset, **absent, "timestamp": entry.timestamp}
    else:
        for entry in entries(file, formats.TRANSACTION_INDEX_ENTRY):
            yield {
                **common, "kind": "transactions", "offset": entry.last_offset, **absent, "producer_id": entry.producer_id,
                "first_offset": entry.first_offset, "last_stable_offset": entry.last_stable_offset,
            }  # fmt: skip
