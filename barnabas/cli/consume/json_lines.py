"""Records as lines of JSON (record_json.py), a column at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Message

from barnabas.cli.record_json import dump, header_fields, put

_quote: Callable[[str], str] = json.encoder.encode_basestring  # a text as the encoder writes it
_TIMES: tuple[Callable[[int], str], ...] = (
    '"timestamp":null,"timestamp_type":null'.format,
    '"timestamp":{},"timestamp_type":"CreateTime"'.format,
    '"timestamp":{},"timestamp_type":"LogAppendTime"'.format,
)
"""By librdkafka's codes; the first is for records of the oldest format, which have none."""


def to_lines(messages: Sequence[Any]) -> str:
    """Messages of librdkafka, a line each.

    A column at a time, and without an object for each record: that took 3.8 µs a record with a dictionary and json's encoder, and takes a
    third of it."""
    places: dict[tuple[Any, Any], str] = {}
    lines = []
    for topic, partition, offset, (kind, timestamp_ms), key, value, headers in zip(
        map(Message.topic, messages),
        map(Message.partition, messages),
        map(Message.offset, messages),
        map(Message.timestamp, messages),
        map(Message.key, messages),
        map(Message.value, messages),
        map(Message.headers, messages),
        strict=True,
    ):
        place = places.get((topic, partition))
        if place is None:
            place = places[topic, partition] = f'{{"topic":{_quote(topic)},"partition":{partition},"offset":'
        try:
            content = (
                f'"key":{"null" if key is None else _quote(key.decode())},"value":{"null" if value is None else _quote(value.decode())},'
                f'"headers":{dump([header_fields(*each) for each in headers]) if headers else "[]"}}}\n'
            )
        except UnicodeDecodeError:
            content = _content(key, value, headers or ())
        lines.append(f"{place}{offset},{_TIMES[kind](timestamp_ms)},{content}")
    return "".join(lines)


def _content(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    """The fields behind the time, for bytes of any kind."""
    fields: dict[str, Any] = {}
    put(fields, "key", key)
    put(fields, "value", value)
    fields["headers"] = [header_fields(name, content) for name, content in headers]
    return dump(fields)[1:] + "\n"
