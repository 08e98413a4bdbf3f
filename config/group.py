"""A group's configs: every group property of Apache Kafka 4.3 (GroupConfig), and what their values must be.

A property that is not set on the group comes from the broker: `consumer.session.timeout.ms` from
`group.consumer.session.timeout.ms`. Loaded when a group's configs are first asked for or changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from config.properties import ConfigError, PropertyTable, Value
from config.server import SERVER_PROPERTIES, ServerConfig

# Columns as in config/server_table.py.
_GROUP_TABLE = """
consumer.assignment.interval.ms     int      1000              0..      -
consumer.heartbeat.interval.ms      int      5000              1..      -
consumer.session.timeout.ms         int      45000             1..      -
share.assignment.interval.ms        int      1000              0..      -
share.auto.offset.reset             string   latest            -        -
share.delivery.count.limit          int      5                 2..      -
share.heartbeat.interval.ms         int      5000              1..      -
share.isolation.level               string   read_uncommitted  read_committed|read_uncommitted -
share.partition.max.record.locks    int      2000              100..    -
share.record.lock.duration.ms       int      30000             1000..   -
share.renew.acknowledge.enable      boolean  true              -        -
share.session.timeout.ms            int      45000             1..      -
streams.assignment.interval.ms      int      1000              0..      -
streams.heartbeat.interval.ms       int      5000              1..      -
streams.initial.rebalance.delay.ms  int      3000              0..      -
streams.num.standby.replicas        int      0                 0..      -
streams.session.timeout.ms          int      45000             1..      -
"""

_WITHOUT_SYNONYM = ("share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable")

GROUP_PROPERTIES = PropertyTable(
    _GROUP_TABLE,
    {
        name: (f"group.{name}",)
        for name in (line.partition(" ")[0] for line in _GROUP_TABLE.splitlines() if line)
        if name not in _WITHOUT_SYNONYM
    },
)
"""Every group property by name. `synonyms` has the broker's property that is its default."""

_DOCUMENTATION = {
    "consumer": "of a group of the consumer protocol",
    "share": "of a share group; accepted, without effect: they are not supported yet",
    "streams": "of a streams group; accepted, without effect: they are not supported yet",
}

# The broker's properties that bound a group's, in the order in which Kafka looks at them; a bound that the broker has not does not count.
_BOUNDED = (
    "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "consumer.assignment.interval.ms", "share.heartbeat.interval.ms",
    "share.session.timeout.ms", "share.record.lock.duration.ms", "share.delivery.count.limit", "share.partition.max.record.locks",
    "share.assignment.interval.ms", "streams.heartbeat.interval.ms", "streams.session.timeout.ms", "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
)  # fmt: skip
_BOUND_NAMES = {"streams.num.standby.replicas": "streams.standby.replicas"}

_DURATION = re.compile(r"by_duration:[+-]?P(?!$)([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?", re.IGNORECASE)


def default_of(config: ServerConfig, name: str) -> Value:
    """What a group has that does not set the property."""
    known = GROUP_PROPERTIES[name]
    if not known.synonyms:
        return known.default
    value = config.value_of(known.synonyms[0])
    return known.default if value is None else value


def validate_group_configs(overrides: Mapping[str, str], config: ServerConfig) -> None:
    """Raises ConfigError, in Kafka's words, unless a group can have these configs, all that it sets (GroupConfig.validate)."""
    for name in overrides:
        if name not in GROUP_PROPERTIES:
            raise ConfigError(name, "", "", message=f"Unknown group config name: {name}")
    values = {name: default_of(config, name) for name in GROUP_PROPERTIES}
    values |= {name: GROUP_PROPERTIES[name].parse(text) for name, text in overrides.items()}
    _check_offset_reset(str(values["share.auto.offset.reset"]))
    for name in _BOUNDED:
        _check_bounds(name, _number(values[name]), config)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _number(values[session]) <= _number(values[heartbeat]):
            raise ConfigError(session, values[session], "", message=f"{session} must be greater than {heartbeat}")


def group_documentation(name: str) -> str:
    """A sentence about the property."""
    kind, _, what = name.partition(".")
    return f"The setting {what} {_DOCUMENTATION[kind]}."


def _check_bounds(name: str, value: int, config: ServerConfig) -> None:
    kind, _, what = _BOUND_NAMES.get(name, name).partition(".")
    low, high = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
    if low in SERVER_PROPERTIES and value < _number(config.value_of(low)):
        raise ConfigError(name, value, "", message=f"{name} must be greater than or equal to {low}")
    if high in SERVER_PROPERTIES and value > _number(config.value_of(high)):
        raise ConfigError(name, value, "", message=f"{name} must be less than or equal to {high}")


def _check_offset_reset(text: str) -> None:
    if text in ("earliest", "latest"):
        return
    duration = _DURATION.fullmatch(text)
    if duration is None or text.partition(":")[2].startswith("-"):
        name = "share.auto.offset.reset"
        form = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        raise ConfigError(name, text, f"Invalid value `{text}` for configuration {name}. {form}")


def _number(value: Value) -> int:
    assert isinstance(value, int), "bounds are those of numbers"
    return value
