"""Show the replicas that are being moved between brokers, and how much of them is copied."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics, partitions_of, topics_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Column, Output, human_bytes
from barnabas.cli.reassignment.moves import all_sizes, copied, in_progress, wait
from barnabas.cli.reassignment.throttle import release
from barnabas.cli.settings import resolve

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("replicas", "REPLICAS"),
    Column("adding", "ADDING"),
    Column("removing", "REMOVING"),
    Column("copied_bytes", "COPIED", human_bytes, is_number=True),
    Column("copy_bytes", "OF", human_bytes, is_number=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topics", nargs="*", metavar="TOPIC", help="only of these (all)")
    add("--wait", action="store_true", help="until nothing of it is being moved, with a progress bar on a terminal")
    add(
        "--clear-throttles",
        action="store_true",
        help="remove the limits of `topic reassign --throttle`; refused while something is being moved",
    )
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve(options)
    if options.clear_throttles:
        settings.check_writable()
    output = Output(options.output)
    with Connection(settings) as connection:
        topics = get_topics(connection, options.topics) if options.topics else topics_of(connection)
        if options.wait:
            wait(connection, partitions_of(topics))
        moving = {each: move for each, move in in_progress(connection).items() if each[0] in topics}
        rows, sizes = [], all_sizes(connection) if moving else {}
        for (name, index), move in moving.items():
            one = {(name, index): move}
            done, total = copied(sizes, one, one)
            rows.append(
                {
                    "topic": name,
                    "partition": index,
                    "replicas": list(move.replicas),
                    "adding": list(move.adding),
                    "removing": list(move.removing),
                    "copied_bytes": done,
                    "copy_bytes": total,
                }
            )
        if options.clear_throttles:
            if moving:
                raise RefusedError(f"{len(moving)} partitions are still being moved; with --wait it waits for them")
            release(connection, sorted(topics), sorted(connection.metadata().brokers))
    if rows or output.is_data:
        output.rows(rows, COLUMNS)
    else:
        output.line("nothing is being moved")
    return DONE
