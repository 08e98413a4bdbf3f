"""kafka-get-offsets: the offsets of partitions, as topic:partition:offset."""

from __future__ import annotations

import argparse
import re
from typing import Any

from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import INTERNAL, offsets, partitions_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.kafka_tools.run import add_connection, settings_of

SPECS = {
    "-1": OffsetSpec.latest, "latest": OffsetSpec.latest, "-2": OffsetSpec.earliest, "earliest": OffsetSpec.earliest,
    "-3": OffsetSpec.max_timestamp, "max-timestamp": OffsetSpec.max_timestamp,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", default=".*", metavar="REGEX")
    add("--partitions", default="", metavar="N,…")
    add("--time", default="latest", metavar="TIME", help="latest or -1, earliest or -2, max-timestamp or -3, or milliseconds")
    add("--exclude-internal-topics", action="store_true")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    if options.time not in SPECS and not options.time.isdigit():
        raise CommandError(
            f"Malformed time argument {options.time}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp, or a timestamp"
        )
    make: Any = SPECS.get(options.time)
    spec = OffsetSpec.for_timestamp(int(options.time)) if make is None else make()
    pattern = re.compile(options.topic.replace(",", "|"))
    only = {int(number) for number in options.partitions.split(",") if number}
    with Connection(settings_of(options)) as connection:
        topics = {
            name: topic
            for name, topic in sorted(connection.metadata().topics.items())
            if pattern.fullmatch(name) and not (options.exclude_internal_topics and name in INTERNAL)
        }
        chosen = [each for each in partitions_of(topics) if not only or each[1] in only]
        if not chosen:
            raise CommandError("Could not match any topic-partitions with the specified filters")
        for (name, index), offset in offsets(connection, chosen, spec).items():
            print(f"{name}:{index}:{'' if offset is None else offset}")
    return DONE
