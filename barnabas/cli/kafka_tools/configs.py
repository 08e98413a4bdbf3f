"""kafka-configs: describe and alter configurations of topics, brokers, groups and client metrics.

Users, clients and addresses (quotas, SCRAM) are not served here.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from barnabas.cli.cluster_facts import configs
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.kafka_tools.run import add_connection, settings_of

KINDS = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER, "groups": ResourceType.GROUP}
SINGULAR = {"topics": "topic", "brokers": "broker", "groups": "group"}
DYNAMIC_GROUP = 8
"""ConfigSource's code that librdkafka has no name for."""
DYNAMIC = {
    "topics": ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    "brokers": ConfigSource.DYNAMIC_BROKER_CONFIG.value,
    "groups": DYNAMIC_GROUP,
}
PAIR = re.compile(r"\s*([^=,]+)=(?:\[([^\]]*)\]|([^,]*))\s*(?:,|$)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--describe", action="store_true")
    add("--alter", action="store_true")
    add("--entity-type", choices=KINDS)
    add("--entity-name", metavar="NAME")
    add("--entity-default", action="store_true", help="of all brokers")
    for kind, name in SINGULAR.items():
        add(f"--{name}", dest=f"of_{kind}", metavar="NAME", help=f"--entity-type {kind} --entity-name NAME")
    add("--all", action="store_true", help="also what is not set dynamically")
    add("--add-config", default="", metavar="KEY=VALUE,…", help="a value with commas in brackets: [a,b]")
    add("--delete-config", default="", metavar="KEY,…")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    if options.describe == options.alter:
        raise CommandError("Command must include exactly one action: --describe, --alter")
    kind, name = _entity(options)
    with Connection(settings_of(options)) as connection:
        if options.alter:
            _alter(connection, kind, name, options)
            return DONE
        names = [name] if name is not None else _all(connection, kind)
        for each, entries in configs(connection, KINDS[kind], names).items():
            _print(kind, each, entries, is_all=options.all)
    return DONE


def _entity(options: argparse.Namespace) -> tuple[str, str | None]:
    """The kind and the name; "" for the default of all brokers, None where none was given."""
    for kind in KINDS:
        if (name := getattr(options, f"of_{kind}")) is not None:
            return kind, name
    if options.entity_type is None:
        raise CommandError("At least one entity type must be specified: --topic, --broker, --group or --entity-type")
    if options.entity_default:
        return options.entity_type, ""
    return options.entity_type, options.entity_name


def _all(connection: Connection, kind: str) -> list[str]:
    if kind == "topics":
        return sorted(connection.metadata().topics)
    if kind == "brokers":
        return [*map(str, sorted(connection.metadata().brokers))]
    raise CommandError("--entity-name is missing")


def _print(kind: str, name: str, entries: dict[str, Any], *, is_all: bool) -> None:
    what = f"default {kind}" if not name else f"{SINGULAR[kind]} {name}"
    print(f"{'All' if is_all else 'Dynamic'} configs for {what} {'in the cluster ' if not name else ''}are:")
    dynamic = DYNAMIC[kind] if name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value
    for _, entry in sorted(entries.items()):
        if is_all or entry.source == dynamic:
            synonyms = ", ".join(_synonym(each) for each in entry.synonyms.values())
            print(f"  {entry.name}={_value(entry)} sensitive={str(bool(entry.is_sensitive)).lower()} synonyms={{{synonyms}}}")


def _synonym(entry: Any) -> str:
    try:
        source = ConfigSource(entry.source).name
    except ValueError:
        source = "DYNAMIC_GROUP_CONFIG" if entry.source == DYNAMIC_GROUP else "UNKNOWN"
    return f"{source}:{entry.name}={_value(entry)}"


def _value(entry: Any) -> str:
    return "null" if entry.value is None else str(entry.value)


def _alter(connection: Connection, kind: str, name: str | None, options: argparse.Namespace) -> None:
    if name is None:
        raise CommandError("an entity name must be specified with --alter")
    added = {found[1].strip(): found[2] if found[2] is not None else found[3] for found in PAIR.finditer(options.add_config)}
    if options.add_config and not added:
        raise CommandError('Invalid entity config: all configs to be added must be in the format "key=val".')
    changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in added.items()]
    for key in filter(None, (each.strip() for each in options.delete_config.split(","))):
        changes.append(ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE))
    if not changes:
        raise CommandError("At least one of --add-config and --delete-config must be specified with --alter")
    if kind == "topics" and name not in connection.metadata().topics:
        raise CommandError(f"The topic '{name}' doesn't exist and can't be altered")
    resource = ConfigResource(KINDS[kind], name, incremental_configs=changes)
    connection.results(connection.admin.incremental_alter_configs([resource], request_timeout=connection.timeout_s))
    print(f"Completed updating {'default ' if not name else ''}config for {SINGULAR[kind]}{f' {name}' if name else 's in the cluster'}.")
