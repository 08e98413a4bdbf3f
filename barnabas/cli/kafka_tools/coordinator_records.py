"""Kafka's formatters of the topics of coordinators, __consumer_offsets and __transaction_state, for kafka-console-consumer.

They write JSON without a line's end, and nothing for records of another type, as Kafka's do.

Source: org.apache.kafka.tools.consumer.CoordinatorRecordMessageFormatter, and the JSON converters of the records.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

from protocol.codec import decode
from protocol.errors import DecodeError
from protocol.messages.stored.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.messages.stored.transaction_records import TransactionLogKey, TransactionLogValue
from protocol.messages.stored.version_prefix import decode_with_version
from protocol.schema import FieldType, Kind, schema_of
from protocol.uuids import uuid_to_text

TYPE = struct.Struct(">h")
UUID_CODE = "16s"
FORMATTERS: dict[str, dict[int, tuple[type[Any], type[Any]]]] = {
    "OffsetsMessageFormatter": {0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue), 1: (OffsetCommitKey, OffsetCommitValue)},
    "GroupMetadataMessageFormatter": {2: (GroupMetadataKey, GroupMetadataValue)},
    "TransactionLogMessageFormatter": {0: (TransactionLogKey, TransactionLogValue)},
}
"""By a class's name, what it writes: key and value of a record by its type, which stands before the key."""


def formatter_of(name: str) -> Callable[[Any], bytes]:
    """Raises ValueError, when it is called, for a record that is malformed."""
    classes = FORMATTERS[name]

    def format_(message: Any) -> bytes:
        key, value = message.key(), message.value()
        if key is None:
            return b""
        try:
            (kind,) = TYPE.unpack_from(key)
            if kind not in classes:
                return b""
            key_class, value_class = classes[kind]
            told = {"key": {"type": kind, "data": to_json(decode(key_class, 0, key, TYPE.size)[0], 0)}, "value": None}
            if value is not None:
                decoded, version = decode_with_version(value_class, value)
                told["value"] = {"version": version, "data": to_json(decoded, version)}
        except (DecodeError, struct.error) as e:
            raise ValueError(f"Could not read record at offset {message.offset()} due to: {e}") from e
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()

    return format_


def to_json(message: Any, version: int) -> dict[str, Any]:
    """The fields of this version by Kafka's names; of tagged ones those that are not the default."""
    return {
        _camel_case(field.name): _value(field.type, getattr(message, field.name), version)
        for field in schema_of(type(message)).fields
        if field.is_in(version) and (field.tag is None or getattr(message, field.name) != field.default)
    }


def _value(of: FieldType, value: Any, version: int) -> Any:
    if value is None:
        return None
    if of.kind is Kind.ARRAY and of.element is not None:
        return [_value(of.element, each, version) for each in value]
    if of.kind is Kind.STRUCT:
        return to_json(value, version)
    if of.kind is Kind.BYTES:
        return base64.b64encode(value).decode()
    return uuid_to_text(value) if of.code == UUID_CODE else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
