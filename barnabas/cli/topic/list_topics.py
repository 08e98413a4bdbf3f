"""List topics: partitions, replicas, records, bytes on disk, and partitions that lack replicas or a leader."""

from __future__ import annotations

import argparse
import time
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import INTERNAL, partitions_of, records_between, sizes, starts_and_ends
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output, byte_rate, human_bytes, rate, thousands
from barnabas.cli.rates import bytes_per_s, records_per_s, sample
from barnabas.cli.settings import resolve
from barnabas.cli.times import parse_duration_ms

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
RATES = (
    Column("records_per_s", "RECORDS/S", rate, is_number=True),
    Column("bytes_per_s", "DISK", byte_rate, is_number=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="only topics whose whole name it matches")
    parser.add_argument("-i", "--internal", action="store_true", help="also Kafka's own topics, such as __consumer_offsets")
    parser.add_argument("--rates", metavar="TIME", help="records and bytes a second, measured over that time, as in 5s")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    pattern = arguments.pattern(options.pattern)
    with Connection(resolve(options)) as connection:
        metadata = connection.metadata()
        topics = {
            name: topic
            for name, topic in sorted(metadata.topics.items())
            if pattern.fullmatch(name) and (options.internal or name not in INTERNAL)
        }
        bounds, on_disk = starts_and_ends(connection, partitions_of(topics)), sizes(connection, metadata.brokers)
        before = after = None
        if options.rates is not None:
            before = sample(connection, topics)
            time.sleep(parse_duration_ms(options.rates) / 1_000)
            after = sample(connection, topics)
    rows: list[dict[str, Any]] = []
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
        if before is not None and after is not None:
            own = [(name, index) for index in partitions]
            rows[-1] |= {"records_per_s": records_per_s(before, after, own), "bytes_per_s": bytes_per_s(before, after, own)}
    Output(options.output).rows(rows, COLUMNS if options.rates is None else (*COLUMNS, *RATES))
    return DONE
