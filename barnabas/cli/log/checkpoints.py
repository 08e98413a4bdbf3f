"""Show the checkpoints of log directories (high watermarks, recovery points, log starts, what is cleaned), leader epochs and topic ids."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.errors import DONE
from barnabas.cli.log.files import LogFile, find_files, parse
from barnabas.cli.log.reading import add_paths, each_file
from barnabas.cli.output import Column, Output
from storage import formats
from storage.files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
)

KINDS = {
    HIGH_WATERMARK_CHECKPOINT: "high watermark",
    RECOVERY_POINT_CHECKPOINT: "recovery point",
    LOG_START_OFFSET_CHECKPOINT: "log start",
    CLEANER_CHECKPOINT: "cleaned to",
    LEADER_EPOCH_CHECKPOINT: "leader epoch",
    PARTITION_METADATA: "topic id",
}
COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("kind", "WHAT"),
    Column("offset", "OFFSET", is_number=True),
    Column("epoch", "EPOCH", is_number=True),
    Column("topic_id", "TOPIC ID"),
    Column("file", "FILE", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    with each_file(find_files(options.paths, tuple(KINDS))) as files:
        rows = [row for file in files for row in files.read(entries_of, file)]
        rows.sort(key=lambda row: (row["topic"], row["partition"]))
        Output(options.output).rows(rows, COLUMNS)
    return DONE


def entries_of(file: LogFile) -> Iterator[dict[str, Any]]:
    """None of an empty file, as Apache Kafka makes them at its first start. Raises RefusedError."""
    if not file.path.stat().st_size:
        return
    row = {"topic": file.of.topic, "partition": file.of.partition, "kind": KINDS[file.path.name]}
    absent = {"offset": None, "epoch": None, "topic_id": None}
    last = {"file": str(file.path)}
    if file.path.name == LEADER_EPOCH_CHECKPOINT:
        for entry in parse(file, formats.LEADER_EPOCH_CHECKPOINT).entries:
            yield {**row, **absent, "offset": entry.start_offset, "epoch": entry.epoch, **last}
    elif file.path.name == PARTITION_METADATA:
        yield {**row, **absent, "topic_id": str(parse(file, formats.PARTITION_METADATA).topic_id).strip(), **last}
    else:
        for entry in parse(file, formats.OFFSET_CHECKPOINT).entries:
            yield {**row, **absent, "topic": entry.topic, "partition": entry.partition, "offset": entry.offset, **last}
