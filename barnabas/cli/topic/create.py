"""Create topics."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import NewTopic

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.output import Output
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic.configs import parse_configs
from barnabas.cli.topic_facts import wait_until_seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topics", nargs="+", metavar="TOPIC")
    add("-p", "--partitions", type=int, default=-1, metavar="N", help="(the broker's num.partitions)")
    add("-r", "--replicas", "--replication-factor", type=int, default=-1, metavar="N", help="(the broker's default.replication.factor)")
    add("-c", "--config", "--topic-config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topics")
    add("--if-not-exists", action="store_true", help="a topic that is there is no failure")
    arguments.add_change(parser)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    config = parse_configs(options.config)
    new = [
        NewTopic(name, num_partitions=options.partitions, replication_factor=options.replicas, config=config)
        for name in dict.fromkeys(options.topics)
    ]
    with Connection(settings) as connection:
        futures = connection.admin.create_topics(new, request_timeout=connection.timeout_s, validate_only=options.dry_run)
        answers = connection.attempts(futures)
        made = {name for name, answer in answers.items() if not isinstance(answer, CommandError)}
        if not options.dry_run:
            wait_until_seen(connection, lambda topics: made <= topics.keys())
    done = "can be created" if options.dry_run else "created"
    outcomes = [
        Outcome(name, "is there already", is_done=True)
        if options.if_not_exists and str(answer).startswith("TOPIC_ALREADY_EXISTS")
        else Outcome.of(name, answer, done)
        for name, answer in answers.items()
    ]
    report(Output(options.output), "topic", outcomes)
    return DONE
