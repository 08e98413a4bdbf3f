"""Show the segments of partitions: offsets, records, batches, bytes and times, from the headers of their batches."""

from __future__ import annotations

import argparse
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.errors import DONE
from barnabas.cli.log.files import LogFile, batches, find_files
from barnabas.cli.log.reading import add_paths, each_file
from barnabas.cli.output import Column, Output, human_bytes, thousands
from barnabas.cli.times import to_text
from storage.files import LOG_SUFFIX

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("file", "FILE", is_wide=True),
    Column("base_offset", "BASE", is_number=True),
    Column("next_offset", "NEXT", is_number=True),
    Column("records", "RECORDS", thousands, is_number=True),
    Column("batches", "BATCHES", thousands, is_number=True),
    Column("size_bytes", "SIZE", human_bytes, is_number=True),
    Column("first_timestamp", "FIRST", to_text),
    Column("max_timestamp", "LATEST", to_text),
    Column("rest_bytes", "REST", human_bytes, is_number=True, is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    with each_file(find_files(options.paths, (LOG_SUFFIX,))) as files:
        rows = [row for file in files for row in files.read(_segment, file)]
        Output(options.output).rows(rows, COLUMNS)
    return DONE


def _segment(file: LogFile) -> list[dict[str, Any]]:
    """`rest_bytes` follow the last whole batch: one that is being appended, one that a crash has cut, or zeros."""
    first_timestamp = max_timestamp = None
    records = count = end = 0
    next_offset = file.base_offset
    for batch in batches(file):
        header = batch.header
        records += header.records_count
        count += 1
        end = batch.position + len(batch.data)
        next_offset = header.base_offset + header.last_offset_delta + 1
        if header.max_timestamp >= 0:
            first_timestamp = header.base_timestamp if first_timestamp is None else first_timestamp
            max_timestamp = max(header.max_timestamp, max_timestamp or 0)
    return [
        {
            "topic": file.of.topic,
            "partition": file.of.partition,
            "file": str(file.path),
            "base_offset": file.base_offset,
            "next_offset": next_offset,
            "records": records,
            "batches": count,
            "size_bytes": end,
            "first_timestamp": first_timestamp,
            "max_timestamp": max_timestamp,
            "rest_bytes": file.path.stat().st_size - end,
        }
    ]
