"""Records as lines of JSON, which `consume --output json` writes and `produce --json` reads back byte for byte.

{"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000, "timestamp_type": "CreateTime", "key": "k", "value": "v",
 "headers": [{"key": "h", "value": "w"}]}

Bytes that are no UTF-8 are in `key_base64`, `value_base64`, and a header's `value_base64`; null is null.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.cli.errors import NotUnderstoodError

TIMESTAMP_TYPES = (None, "CreateTime", "LogAppendTime")
"""By librdkafka's codes; the first is for records of the oldest format, which have none."""
FIELDS = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "key_base64", "value", "value_base64", "headers"})
BASE64 = "_base64"
dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class JsonRecord(NamedTuple):
    """What a line says of a record; None of partition and timestamp where it says nothing."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    partition: int | None
    timestamp_ms: int | None


def from_line(line: bytes) -> JsonRecord:
    """Raises NotUnderstoodError."""
    try:
        fields = json.loads(line)
    except ValueError as e:
        raise NotUnderstoodError(f"it is no JSON: {e}") from e
    if not isinstance(fields, dict):
        raise NotUnderstoodError("it is no JSON object")
    if unknown := fields.keys() - FIELDS:
        raise NotUnderstoodError(f"unknown fields: {', '.join(sorted(unknown))}; known are {', '.join(sorted(FIELDS))}")
    headers = fields.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(each, dict) and isinstance(each.get("key"), str) for each in headers):
        raise NotUnderstoodError('headers are a list of {"key": …, "value": …}')
    return JsonRecord(
        key=_take(fields, "key"),
        value=_take(fields, "value"),
        headers=[(each["key"], _take(each, "value")) for each in headers],
        partition=_number(fields, "partition"),
        timestamp_ms=_number(fields, "timestamp"),
    )


def header_fields(name: str, value: bytes | None) -> dict[str, Any]:
    header: dict[str, Any] = {"key": name}
    put(header, "value", value)
    return header


def put(fields: dict[str, Any], name: str, value: bytes | None) -> None:
    """As text, or in base64 under another name."""
    try:
        fields[name] = None if value is None else value.decode()
    except UnicodeDecodeError:
        assert value is not None
        fields[name + BASE64] = base64.b64encode(value).decode()


def _take(fields: dict[str, Any], name: str) -> bytes | None:
    if name + BASE64 in fields:
        return _checked(fields[name + BASE64], name + BASE64, lambda text: base64.b64decode(text, validate=True))
    return _checked(fields.get(name), name, str.encode)


def _checked(text: Any, name: str, to_bytes: Callable[[str], bytes]) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise NotUnderstoodError(f"{name} is a text or null")
    try:
        return to_bytes(text)
    except (binascii.Error, ValueError) as e:
        raise NotUnderstoodError(f"{name}: {e}") from e


def _number(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise NotUnderstoodError(f"{name} is a whole number or null")
    return number
