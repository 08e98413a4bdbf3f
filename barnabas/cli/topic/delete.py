"""Delete topics with all their records."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics, partitions_of, records_between, starts_and_ends
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.output import Output, confirm, thousands
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic_facts import wait_until_seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        topics = get_topics(connection, options.topics)
        bounds = starts_and_ends(connection, partitions_of(topics))
        plan = []
        for name, topic in topics.items():
            records = records_between(bounds[name, index] for index in topic.partitions)
            count = "an unknown number of" if records is None else thousands(records)
            plan.append(f"delete topic {name}: {len(topic.partitions)} partitions with {count} records")
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        answers = connection.attempts(connection.admin.delete_topics(list(topics), request_timeout=connection.timeout_s))
        gone = {name for name, answer in answers.items() if not isinstance(answer, CommandError)}
        wait_until_seen(connection, lambda topics: not gone & topics.keys())
    report(Output(options.output), "topic", [Outcome.of(name, answer, "deleted") for name, answer in answers.items()])
    return DONE
