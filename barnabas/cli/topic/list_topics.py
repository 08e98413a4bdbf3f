"""List topics: partitions, replicas, records, bytes on disk, and partitions that lack replicas or a leader."""

from __future__ import annotations

import argparse
import re

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import INTERNAL, partitions_of, records_between, sizes, starts_and_ends
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Column, Output, human_bytes, thousands
from barnabas.cli.settings import resolve

COLUMNS = (
    Column("name", "TOPIC"),
    Column("partitions", "PARTITIONS", is_number=True),
    Column("replicas", "REPLICAS", is_number=True),
    Column("records", "RECORDS", thousands, is_number=True),
    Column("size_bytes", "SIZE", human_bytes, is_number=True),
    Column("under_replicated", "UNDER-REPL", is_number=True),
    Column("without_leader", "NO LEADER", is_number=True),
    Column("is_internal", "INTERNAL", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="only topics whose whole name it matches")
    parser.add_argument("-i", "--internal", action="store_true", help="also Kafka's own topics, such as __consumer_offsets")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    try:
        pattern = re.compile(options.pattern or ".*", re.DOTALL)
    except re.error as e:
        raise NotUnderstoodError(f"{options.pattern!r} is no regular expression: {e}") from e
    with Connection(resolve(options)) as connection:
        metadata = connection.metadata()
        topics = {
            name: topic
            for name, topic in sorted(metadata.topics.items())
            if pattern.fullmatch(name) and (options.internal or name not in INTERNAL)
        }
        bounds, on_disk = starts_and_ends(connection, partitions_of(topics)), sizes(connection, metadata.brokers)
    rows = []
    for name, topic in topics.items():
        partitions = topic.partitions
        rows.append(
            {
                "name": name,
                "partitions": len(partitions),
                "replicas": max((len(each.replicas) for each in partitions.values()), default=0),
                "records": records_between(bounds[name, index] for index in partitions),
                "size_bytes": None if on_disk is None else sum(on_disk.get((name, index), 0) for index in partitions),
                "under_replicated": sum(len(each.isrs) < len(each.replicas) for each in partitions.values()),
                "without_leader": sum(each.leader < 0 for each in partitions.values()),
                "is_internal": name in INTERNAL,
            }
        )
    Output(options.output).rows(rows, COLUMNS)
    return DONE
