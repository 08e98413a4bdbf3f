"""Rules for topic names. Source: org.apache.kafka.common.internals.Topic."""

from __future__ import annotations

import re

from protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def find_name_fault(name: str) -> str | None:
    """Returns why `name` is not a valid topic name, in Kafka's words; None if it is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def validate_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION."""
    fault = find_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def has_collision_characters(name: str) -> bool:
    """Whether the name has '.' or '_'. Metric names do not distinguish them, so topics that differ only there collide."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Two topics collide when this is the same for both."""
    return name.replace(".", "_")
