"""Make a topic like another one: partitions, replicas and the settings that were set for it. No records are copied."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import NewTopic, ResourceType

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import SOURCES, configs, get_topics, setting
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.output import Output
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic.configs import parse_configs
from barnabas.cli.topic_facts import wait_until_seen

OF_TOPIC = SOURCES[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="TOPIC")
    add("target", metavar="NEW")
    add("-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting that is to be another one")
    arguments.add_change(parser)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    changed = parse_configs(options.config)
    with Connection(settings) as connection:
        topic = get_topics(connection, [options.source])[options.source]
        entries = map(setting, configs(connection, ResourceType.TOPIC, [options.source])[options.source].values())
        own = {each["name"]: each["value"] for each in entries if each["source"] == OF_TOPIC and each["value"] is not None}
        replicas = max(len(each.replicas) for each in topic.partitions.values())
        new = NewTopic(options.target, num_partitions=len(topic.partitions), replication_factor=replicas, config={**own, **changed})
        futures = connection.admin.create_topics([new], request_timeout=connection.timeout_s, validate_only=options.dry_run)
        answers = connection.attempts(futures)
        if not options.dry_run and not any(isinstance(answer, CommandError) for answer in answers.values()):
            wait_until_seen(connection, lambda topics: options.target in topics)
    done = f"{'can be' if options.dry_run else 'is'} like {options.source}"
    report(Output(options.output), "topic", [Outcome.of(name, answer, done) for name, answer in answers.items()])
    return DONE
