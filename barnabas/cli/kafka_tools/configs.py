"""kafka-configs: describe and alter configurations of topics, brokers, groups and client metrics, the levels of a broker's or controller's
loggers, quotas, and SCRAM credentials.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import ConfigSource

from barnabas.cli.config import resources
from barnabas.cli.config.resources import Change, entries, names_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.group.states import list_groups
from barnabas.cli.kafka_tools import config_quotas
from barnabas.cli.kafka_tools.config_entities import BY_NUMBER, DEFAULT, WITH_DEFAULT, Entities, add_entities, entities_of
from barnabas.cli.kafka_tools.controllers import connect, node_ids
from barnabas.cli.kafka_tools.run import add_connection
from config.loading import read_properties
from protocol.messages.describe_configs import DescribeConfigsResourceResult

LOGGERS = "broker-loggers"
KINDS = {"topics": "topic", "brokers": "broker", LOGGERS: "broker-logger", "groups": "group", "client-metrics": "client-metrics"}
"""As config/resources.py has them."""
SINGULAR = {kind: kind[:-1] for kind in KINDS}
"""As in Kafka's words, also client-metric."""
SOURCES = {source.value: source.name for source in ConfigSource} | {7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG"}
"""librdkafka has no name for the last two."""
DYNAMIC = {"topics": 1, "brokers": 2, "client-metrics": 7, "groups": 8}
"""All the levels of loggers are shown."""
DYNAMIC_DEFAULT_BROKER = 3
OUTSIDE = r"(?=[^\]]*(?:\[|$))"
"""Behind a character that is in no brackets."""
KEY = re.compile(r"[$a-zA-Z0-9._-]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--describe", action="store_true")
    add("--alter", action="store_true")
    add_entities(parser)
    add("--all", action="store_true", help="also what is not set dynamically")
    add("--add-config", metavar="KEY=VALUE,…", help="a value with commas in brackets: [a,b]; of users SCRAM-SHA-512=[password=…], too")
    add("--add-config-file", metavar="FILE", help="a properties file with the same")
    add("--delete-config", action="append", default=[], metavar="KEY,…")
    add_connection(parser, to_controllers=True)


def run(options: argparse.Namespace) -> int:
    if options.describe == options.alter:
        raise CommandError("Command must include exactly one action: --describe, --alter")
    entities = entities_of(options)
    added, deleted = _changes(options)
    if LOGGERS in entities.types and not entities.names:
        raise CommandError(f"An entity name must be specified with --{'alter' if options.alter else 'describe'} of {LOGGERS}")
    if options.alter and len(entities.names) < len(entities.types):
        raise CommandError("An entity name must be specified for every entity type")
    if options.alter != bool(added or deleted):
        raise CommandError("--add-config, --add-config-file and --delete-config go with --alter, which takes one of them")
    kind = entities.types[0]
    with connect(options) as connection:
        if options.alter:
            if kind == LOGGERS:
                _check_loggers(connection, entities.names[0], [*deleted, *added])
            if kind in KINDS:
                changes = [Change(key, resources.SET, value) for key, value in added.items()]
                changes += [Change(key, resources.DELETE) for key in deleted]
                resources.alter(connection, KINDS[kind], _named(entities.names[0]), changes, dry_run=False)
            else:
                config_quotas.alter(connection, entities, added, deleted)
            name = entities.names[0]
            what = f"config for {kind[:-1]} {name}" if name else f"default config for {kind} in the cluster"
            print(f"Completed updating {what}.")
        elif kind in KINDS:
            _describe(connection, entities, is_all=options.all)
        else:
            config_quotas.describe(connection, entities)
    return DONE


def _changes(options: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """What is added, and the names that are deleted. Raises CommandError, ConfigError."""
    if options.add_config is not None and options.add_config_file is not None:
        raise CommandError("Only one of --add-config or --add-config-file must be specified")
    added = read_properties(Path(options.add_config_file)) if options.add_config_file is not None else {}
    if options.add_config is not None:
        for pair in re.split(f",{OUTSIDE}", options.add_config):
            words = re.split(rf"\s*=\s*{OUTSIDE}", pair)
            if len(words) != 2:
                raise CommandError(
                    'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or  '
                    '"key=[val1,val2]" to group values which contain commas.'
                )
            added[words[0].strip()] = re.sub(r"[\[\]]", "", words[1]).strip()
    if wrong := [key for key in added if not KEY.fullmatch(key)]:
        raise CommandError(f"Invalid character found for config key: {wrong[0]}")
    return added, [key.strip() for text in options.delete_config for key in text.split(",") if key.strip()]


def _describe(connection: Connection, entities: Entities, *, is_all: bool) -> None:
    kind = entities.types[0]
    if entities.names and not is_all and not _is_there(connection, kind, entities.names[0]):
        print(f"The {SINGULAR[kind]} '{entities.names[0]}' doesn't exist and doesn't have dynamic config.")
        return
    for name in entities.names or _all(connection, kind):
        (own,) = entries(connection, KINDS[kind], [_named(name)]).values()
        what = f"{'All' if is_all else 'Dynamic'} configs for {SINGULAR[kind]} {name} are:"
        print(f"Default configs for {kind} in the cluster are:" if name == DEFAULT else what)
        dynamic = DYNAMIC.get(kind) if name != DEFAULT else DYNAMIC_DEFAULT_BROKER
        for entry in own:
            if is_all or dynamic in (None, entry.config_source):
                synonyms = ", ".join(f"{SOURCES.get(each.source, 'UNKNOWN')}:{each.name}={_value(each.value)}" for each in entry.synonyms)
                print(f"  {entry.name}={_of(entry)} sensitive={str(bool(entry.is_sensitive)).lower()} synonyms={{{synonyms}}}")


def _check_loggers(connection: Connection, name: str, loggers: Sequence[str]) -> None:
    """Raises CommandError if one of them is not there."""
    (own,) = entries(connection, KINDS[LOGGERS], [name]).values()
    known = {entry.name for entry in own}
    if missing := [logger for logger in loggers if logger not in known]:
        raise CommandError(f"Invalid broker logger(s): {','.join(missing)}")


def _is_there(connection: Connection, kind: str, name: str) -> bool:
    if kind == "brokers" and name == DEFAULT:
        return True
    return name in _all(connection, kind)


def _all(connection: Connection, kind: str) -> list[str]:
    """Raises CommandError."""
    if kind in BY_NUMBER:
        return [*map(str, node_ids(connection)), *([DEFAULT] if kind in WITH_DEFAULT else [])]
    if kind == "groups":
        return sorted({*(each.name for each in list_groups(connection)), *names_of(connection, "group")})
    return names_of(connection, KINDS[kind])


def _named(name: str) -> str:
    """As config/resources.py calls it."""
    return name or resources.DEFAULT


def _of(entry: DescribeConfigsResourceResult) -> str:
    return "null" if entry.is_sensitive else _value(entry.value)


def _value(value: str | None) -> str:
    return "null" if value is None else value
