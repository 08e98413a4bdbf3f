"""kafka-get-offsets: the offsets of partitions, as topic:partition:offset. Those of tiered storage (--time -4 to -6) are not here."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import INTERNAL, offsets, partitions_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.kafka_tools.run import add_connection, settings_of
from barnabas.cli.kafka_tools.topic_filters import ALL, Chooses, by_rules, by_topic_and_partitions

SPECS = {
    "-1": OffsetSpec.latest, "latest": OffsetSpec.latest, "-2": OffsetSpec.earliest, "earliest": OffsetSpec.earliest,
    "-3": OffsetSpec.max_timestamp, "max-timestamp": OffsetSpec.max_timestamp,
}  # fmt: skip
OF_EACH = frozenset({"-1", "latest", "-2", "earliest"})
"""What every partition has that has a leader. A partition without a record, or without one so late, has no offset by the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic-partitions", metavar="RULE,…", help="orders, orders:0, pay.*:2-5, :7-")
    add("--topic", metavar="REGEX")
    add("--partitions", metavar="N,…")
    add("--time", default="latest", metavar="TIME", help="latest or -1, earliest or -2, max-timestamp or -3, or milliseconds")
    add("--exclude-internal-topics", action="store_true")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    if options.time not in SPECS and not options.time.isdecimal():
        raise CommandError(
            f"Malformed time argument {options.time}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp, or a timestamp"
        )
    make: Any = SPECS.get(options.time)
    spec = OffsetSpec.for_timestamp(int(options.time)) if make is None else make()
    chooses = _chooses(options)
    with Connection(settings_of(options)) as connection:
        topics = {
            name: topic
            for name, topic in connection.metadata().topics.items()
            if not (options.exclude_internal_topics and name in INTERNAL)
        }
        chosen = sorted(filter(chooses, partitions_of(topics)), key=lambda each: f"{each[0]}-{each[1]}")  # as Kafka's: 10 is before 2
        if not chosen:
            raise CommandError("Could not match any topic-partitions with the specified filters")
        for (name, index), offset in offsets(connection, chosen, spec).items():
            if offset is not None:
                print(f"{name}:{index}:{offset}")
            elif options.time in OF_EACH:
                print(f"Skip getting offsets for topic-partition {name}-{index}: it has no leader that answers", file=sys.stderr)
    return DONE


def _chooses(options: argparse.Namespace) -> Chooses:
    """Raises CommandError."""
    if options.topic_partitions is None:
        return by_topic_and_partitions(options.topic or ALL, options.partitions or "")
    if options.topic is not None or options.partitions is not None:
        raise CommandError("--topic-partitions cannot be used with --topic or --partitions")
    return by_rules(options.topic_partitions)
