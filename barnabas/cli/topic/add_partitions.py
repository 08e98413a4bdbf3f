"""Give topics more partitions. Records stay where they are: keys may go to other partitions from then on."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import NewPartitions

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.output import Output
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic_facts import wait_until_seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    count = parser.add_mutually_exclusive_group(required=True)
    count.add_argument("-n", "--num", type=int, metavar="N", help="how many more")
    count.add_argument("-p", "--partitions", "--total", type=int, metavar="N", help="how many then")
    arguments.add_change(parser)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        topics = get_topics(connection, options.topics)
        totals = {name: options.partitions or len(topic.partitions) + options.num for name, topic in topics.items()}
        futures = connection.admin.create_partitions(
            [NewPartitions(name, total) for name, total in totals.items()],
            request_timeout=connection.timeout_s,
            validate_only=options.dry_run,
        )
        answers = connection.attempts(futures)
        made = {name: totals[name] for name, answer in answers.items() if not isinstance(answer, CommandError)}
        if not options.dry_run:
            wait_until_seen(connection, lambda topics: all(len(topics[name].partitions) >= total for name, total in made.items()))
    done = "can have" if options.dry_run else "has"
    report(
        Output(options.output),
        "topic",
        [Outcome.of(name, answer, f"{done} {totals[name]} partitions") for name, answer in answers.items()],
    )
    return DONE
