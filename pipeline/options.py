"""Parses the values of the command line's options. Each function raises UsageError for an invalid value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path

from barnabas.spark.errors import OptionError
from barnabas.spark.formats.naming import read_format
from config.endpoints import address_text
from config.loading import read_properties
from config.properties import ConfigError
from pipeline.errors import UsageError

DEFAULT_SERVERS = "localhost:9092"
PORT_MAX = 65_535
PARQUET, DELTA = "parquet", "delta"
"""Formats of an archive."""
DECODED_COLUMNS = ("key", "value")
LOG_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")
# The archive's format and guarantees depend on these settings, so users cannot change them.
FIXED_SETTINGS = frozenset(
    ("spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType", "spark.sql.sources.partitionColumnTypeInference.enabled")
)
REGISTRY_LOGIN = "basic.auth.user.info"
"""Confluent's property of a Java client with user:password for a schema registry: not for the brokers, nor for Spark's plans."""
FIXED_CONSUMER_PROPERTIES = frozenset(("bootstrap.servers", "isolation.level", REGISTRY_LOGIN))
FIXED_PRODUCER_PROPERTIES = frozenset(("bootstrap.servers", "enable.idempotence", "acks"))


def topic_names(text: str) -> list[str]:
    """The topics of a comma-separated list, as Spark takes it."""
    return [topic.strip() for topic in text.split(",") if topic.strip()]


def topic_list(text: str) -> str:
    """A list with one topic at least."""
    if not topic_names(text):
        raise UsageError("no topic is named")
    return text


def group_name(text: str) -> str:
    if not text.strip():
        raise UsageError("the group has no name")
    return text


def server_list(text: str) -> str:
    """A list of addresses that `servers` can read."""
    servers(text)
    return text


def servers(text: str) -> list[tuple[str, int]]:
    """Host and port of each address in a comma-separated list."""
    found = []
    for address in text.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise UsageError(f"{address.strip() or 'an empty address'} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


def joined_servers(text: str, more: Iterable[tuple[str, int]]) -> str:
    """A list that `servers` reads and Kafka's clients take: that of `text`, then those of `more` that it lacks."""
    known = servers(text)
    addresses = [*known, *(address for address in more if address not in known)]
    return ",".join(starmap(address_text, addresses))


def count(text: str) -> int:
    return int(_above_zero(text, int(text) if text.strip("-").isdecimal() else None))


def seconds(text: str) -> float:
    try:
        return _above_zero(text, float(text))
    except ValueError:
        return _above_zero(text, None)


def replay_id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", text):
        raise UsageError(f"{text} is not a name of at most 200 letters, digits, underscores and hyphens")
    return text


def offset(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text} is not an offset")
    return int(text)


def time_ms(text: str) -> int:
    """The milliseconds since 1970 of an ISO 8601 time, which is UTC if it has no offset."""
    found = start_position(text)
    if not isinstance(found, int):
        raise UsageError(f"{text} is not a time such as 2026-11-21T08:00")
    return found


def age_days(text: str) -> int:
    """The days in `7d`."""
    number = text.removesuffix("d")
    if number == text or not number.isdecimal():
        raise UsageError(f"{text} is not a number of days such as 7d")
    return int(number)


def size_bytes(text: str) -> int:
    """The bytes in `256MB`; a MB is 1024 KB."""
    found = re.fullmatch(r"(\d+)(KB|MB|GB)", text.strip().upper())
    if found is None or not int(found[1]):
        raise UsageError(f"{text} is not a size such as 256MB")
    return int(found[1]) << {"KB": 10, "MB": 20, "GB": 30}[found[2]]


def start_position(text: str) -> str | int:
    """`earliest`, `latest`, or the milliseconds since 1970 of an ISO 8601 time, which is UTC if it has no offset."""
    if text in ("earliest", "latest"):
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise UsageError(f"{text} is neither earliest nor latest nor a time such as 2026-11-21T08:00") from e
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def column_format(text: str) -> tuple[str, str]:
    """Of --decode: key or value, and its format."""
    column, is_given, name = text.partition("=")
    if not is_given or column not in DECODED_COLUMNS:
        raise UsageError(f"{text} is not value=FORMAT or key=FORMAT")
    try:
        read_format(name)
    except OptionError as e:
        raise UsageError(str(e)) from e
    return column, name


def log_level(text: str) -> str:
    if text.upper() not in LOG_LEVELS:
        raise UsageError(f"{text} is none of {', '.join(LOG_LEVELS)}")
    return text.upper()


def spark_setting(text: str) -> tuple[str, str]:
    return _setting(text, FIXED_SETTINGS)


def consumer_property(text: str) -> tuple[str, str]:
    return _setting(text, FIXED_CONSUMER_PROPERTIES)


def producer_property(text: str) -> tuple[str, str]:
    return _setting(text, FIXED_PRODUCER_PROPERTIES)


def command_config(path: str) -> dict[str, str]:
    """The properties of a Java client's file, as Kafka's tools take it: passwords in it are in no process list."""
    try:
        return read_properties(Path(path))
    except ConfigError as e:
        raise UsageError(str(e)) from e


def client_properties(file: Mapping[str, str], given: Iterable[tuple[str, str]], fixed: frozenset[str]) -> dict[str, str]:
    """Those of the command line count before those of the file. What the job sets itself is left out of the file's."""
    return {**{name: value for name, value in file.items() if name not in fixed}, **dict(given)}


def _setting(text: str, fixed: frozenset[str]) -> tuple[str, str]:
    key, is_given, value = text.partition("=")
    if not key or not is_given:
        raise UsageError(f"{text} is not KEY=VALUE")
    if key in fixed:
        raise UsageError(f"{key} is the job's own to set")
    return key, value


def _above_zero(text: str, value: float | None) -> float:
    # NaN is not above 0 either.
    if value is None or not 0 < value < math.inf:
        raise UsageError(f"{text} is not a number above 0")
    return value
