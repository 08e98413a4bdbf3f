"""Resources that have settings: topics, brokers, their loggers, groups and client metrics, and how they are asked for on the wire.

librdkafka's administrator tells no documentation and knows neither groups nor client metrics, so the wire does. A broker is asked itself:
it alone knows what is in its file, and its loggers' levels. `broker default` are the settings of all brokers that have none of their own
(Kafka's --entity-default).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from barnabas.cli.cluster_facts import SOURCES
from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError, RefusedError, check
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest

KINDS = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
"""ConfigResource.Type's codes."""
OTHER_NAMES = {
    "topics": "topic",
    "brokers": "broker",
    "broker-loggers": "broker-logger",
    "groups": "group",
    "client-metric": "client-metrics",
}
DEFAULT = "default"
"""As a broker's name."""
OWN_SOURCES = {"topic": (1,), "broker": (2, 3), "broker-logger": (6,), "client-metrics": (7,), "group": (8,)}
"""Of settings that were set for a resource of this kind, and can be deleted. A broker tells the levels of all its loggers, and not which of
them were set."""
LOGGER = "broker-logger"
DEFAULT_CONFIG, STATIC_BROKER_CONFIG = 5, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


class Change(NamedTuple):
    """`operation` is AlterConfigOp.OpType's code; `value` is None to delete."""

    name: str
    operation: int
    value: str | None = None


def add_kind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=[*KINDS, *OTHER_NAMES], help=", ".join(KINDS))


def kind_of(options: argparse.Namespace) -> str:
    given: str = options.kind
    return OTHER_NAMES.get(given, given)


def describe(connection: Connection, kind: str, names: Sequence[str], *, documentation: bool = False) -> dict[str, list[dict[str, Any]]]:
    """The settings of each resource, by name. Raises RefusedError."""
    found = entries(connection, kind, names, documentation=documentation)
    return {name: [_setting(each) for each in own] for name, own in found.items()}


def entries(
    connection: Connection, kind: str, names: Sequence[str], *, documentation: bool = False
) -> dict[str, list[DescribeConfigsResourceResult]]:
    """As `describe`, with the entries as they are on the wire, in the order of their names. Raises RefusedError."""
    found: dict[str, list[DescribeConfigsResourceResult]] = {}
    for broker_id, asked in _by_broker(kind, names).items():
        code, wire_names = KINDS[kind], [_on_wire(kind, name) for name in asked]
        resources = [DescribeConfigsResource(resource_type=code, resource_name=name, configuration_keys=None) for name in wire_names]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=documentation)
        for result in connection.wire(broker_id).request(request).results:
            _check(kind, result)
            found[result.resource_name or DEFAULT] = sorted(result.configs, key=lambda each: str(each.name))
    return found


def alter(connection: Connection, kind: str, name: str, changes: Iterable[Change], *, dry_run: bool) -> None:
    """Raises RefusedError."""
    configs = [AlterableConfig(name=each.name, config_operation=each.operation, value=each.value) for each in changes]
    resource = AlterConfigsResource(resource_type=KINDS[kind], resource_name=_on_wire(kind, name), configs=configs)
    (broker_id,) = _by_broker(kind, [name])
    answer = connection.wire(broker_id).request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run))
    for result in answer.responses:
        _check(kind, result)


def names_of(connection: Connection, kind: str) -> list[str]:
    """All that can be described; of groups and client metrics those that have settings of their own. Raises CommandError, also for loggers:
    a broker does not say which levels were set."""
    if kind == LOGGER:
        raise NotUnderstoodError(f"a broker does not say which levels were set: barnabas config describe {LOGGER} N has them all")
    if kind == "topic":
        return sorted(connection.metadata().topics)
    if kind == "broker":
        return [*map(str, sorted(connection.metadata().brokers)), DEFAULT]
    wire = connection.wire()
    if kind == "group" and not wire.serves(ListConfigResourcesRequest, 1):
        raise RefusedError("this broker does not list the settings of groups (KIP-1142)")
    answer = wire.request(ListConfigResourcesRequest(resource_types=[KINDS[kind]] if wire.serves(ListConfigResourcesRequest, 1) else []))
    check(answer.error_code)
    return sorted(each.resource_name for each in answer.config_resources)


def is_own(kind: str, setting: dict[str, Any]) -> bool:
    """Whether it was set for this resource."""
    return setting["source"] in {SOURCES[code] for code in OWN_SOURCES[kind]}


def _by_broker(kind: str, names: Sequence[str]) -> dict[int | None, list[str]]:
    """Whom to ask; None for any broker. Raises NotUnderstoodError."""
    if kind not in ("broker", LOGGER):
        return {None: list(names)}
    asked: dict[int | None, list[str]] = {}
    for name in names:
        is_default = kind == "broker" and name == DEFAULT
        if not is_default and not name.isdecimal():
            raise NotUnderstoodError(f"{name!r} is no broker: it is a number{f', or {DEFAULT}' if kind == 'broker' else ''}")
        asked.setdefault(None if is_default else int(name), []).append(name)
    return asked


def _on_wire(kind: str, name: str) -> str:
    return "" if kind == "broker" and name == DEFAULT else name


def _check(kind: str, result: Any) -> None:
    check(result.error_code, result.error_message, of=f"{kind} {result.resource_name or DEFAULT}")


def _setting(each: Any) -> dict[str, Any]:
    """`default` is what counts if neither the resource nor the brokers have set it."""
    default = next((synonym.value for synonym in each.synonyms if synonym.source == DEFAULT_CONFIG), None)
    return {
        "name": each.name,
        "value": None if each.is_sensitive else each.value,
        "source": SOURCES.get(each.config_source, str(each.config_source)),
        "default": each.value if each.config_source == DEFAULT_CONFIG else default,
        "is_sensitive": bool(each.is_sensitive),
        "is_read_only": bool(each.read_only),
        "documentation": each.documentation or None,
    }
