"""Show the log directories of brokers: replicas, bytes, room on the disk, and whether one is offline or cordoned."""

from __future__ import annotations

import argparse
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import log_dirs
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Column, Output, human_bytes
from barnabas.cli.settings import resolve
from protocol.errors import ErrorCode

COLUMNS = (
    Column("broker", "BROKER", is_number=True),
    Column("log_dir", "LOG DIRECTORY"),
    Column("state", "STATE"),
    Column("replicas", "REPLICAS", is_number=True),
    Column("size_bytes", "SIZE", human_bytes, is_number=True),
    Column("usable_bytes", "FREE", human_bytes, is_number=True),
    Column("total_bytes", "DISK", human_bytes, is_number=True),
    Column("moving", "MOVING IN", is_number=True, is_wide=True),
)
PARTITIONS = (
    Column("broker", "BROKER", is_number=True),
    Column("log_dir", "LOG DIRECTORY"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("size_bytes", "SIZE", human_bytes, is_number=True),
    Column("offset_lag", "LAG", is_number=True),
    Column("is_future", "MOVING IN"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("brokers", nargs="*", type=int, metavar="BROKER", help="only of these (all)")
    add("-t", "--topic", action="append", default=[], metavar="TOPIC", help="only replicas of these; implies --partitions")
    add("-p", "--partitions", action="store_true", help="a line for each replica")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        alive = connection.metadata().brokers
        if unknown := sorted({*options.brokers} - alive.keys()):
            raise RefusedError(f"there is no broker {', '.join(map(str, unknown))}; barnabas cluster info has those that are there")
        asked = sorted({*options.brokers} or alive)
        rows = [_directory(broker, each, options.topic) for broker in asked for each in log_dirs(connection, broker)]
    rows.sort(key=lambda row: (row["broker"], row["log_dir"]))
    output = Output(options.output)
    if output.is_data or not (options.partitions or options.topic):
        output.rows(rows, COLUMNS)
    else:
        output.rows([{**row, **each} for row in rows for each in row["partitions"]], PARTITIONS)
    return DONE


def _directory(broker: int, told: Any, topics: list[str]) -> dict[str, Any]:
    partitions = [
        {
            "topic": topic.name,
            "partition": each.partition_index,
            "size_bytes": each.partition_size,
            "offset_lag": each.offset_lag,
            "is_future": each.is_future_key,
        }
        for topic in sorted(told.topics, key=lambda topic: str(topic.name))
        if not topics or topic.name in topics
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    ]
    return {
        "broker": broker,
        "log_dir": told.log_dir,
        "state": _state(told),
        "replicas": sum(not each["is_future"] for each in partitions),
        "size_bytes": sum(each["size_bytes"] for each in partitions),
        "usable_bytes": None if told.usable_bytes < 0 else told.usable_bytes,
        "total_bytes": None if told.total_bytes < 0 else told.total_bytes,
        "moving": sum(each["is_future"] for each in partitions),
        "partitions": partitions,
    }


def _state(told: Any) -> str:
    if told.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        return "offline"
    if told.error_code != ErrorCode.NONE:
        return f"({ErrorCode(told.error_code).name})"
    return "cordoned" if told.is_cordoned else "online"
