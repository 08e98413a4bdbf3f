"""Alter topics: set or delete settings."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Output
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic.configs import parse_configs

OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topics", nargs="+", metavar="TOPIC")
    add("-s", "--set", "--add-config", "-c", "--config", action="append", default=[], metavar="KEY=VALUE")
    add("-d", "--delete", "--delete-config", action="append", default=[], metavar="KEY", help="the broker's default counts again")
    add("--append", action="append", default=[], metavar="KEY=VALUE", help="add to a list")
    add("--subtract", action="append", default=[], metavar="KEY=VALUE", help="take from a list")
    arguments.add_change(parser)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    changes = [
        ConfigEntry(key, value, incremental_operation=operation)
        for name, operation in OPERATIONS.items()
        for key, value in parse_configs(getattr(options, name)).items()
    ]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in options.delete]
    if not changes:
        raise NotUnderstoodError("nothing to change: --set KEY=VALUE or --delete KEY")
    with Connection(settings) as connection:
        get_topics(connection, options.topics)
        resources = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes) for name in dict.fromkeys(options.topics)]
        futures = connection.admin.incremental_alter_configs(resources, request_timeout=connection.timeout_s, validate_only=options.dry_run)
        answers = connection.attempts(futures)
    done = "can be altered" if options.dry_run else "altered"
    report(Output(options.output), "topic", [Outcome.of(str(resource.name), answer, done) for resource, answer in answers.items()])
    return DONE
