"""MetricsData as clients push it, written by hand: Protocol Buffers' few kinds of fields."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def embedded(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def text(number: int, value: str) -> bytes:
    return embedded(number, value.encode())


def attribute(key: str, value: str) -> bytes:
    return embedded(7, text(1, key) + embedded(2, text(1, value)))


def double_point(value: float, **attributes: str) -> bytes:
    return embedded(1, varint(4 << 3 | 1) + struct.pack("<d", value) + b"".join(attribute(*each) for each in attributes.items()))


def int_point(value: int, **attributes: str) -> bytes:
    return embedded(1, varint(6 << 3 | 1) + struct.pack("<q", value) + b"".join(attribute(*each) for each in attributes.items()))


def gauge(name: str, *points: bytes) -> bytes:
    return text(1, name) + embedded(5, b"".join(points))


def total(name: str, *points: bytes, temporality: int = 1) -> bytes:
    return text(1, name) + embedded(7, b"".join(points) + varint(2 << 3) + varint(temporality) + varint(3 << 3) + varint(1))


def metrics_data(*metrics: bytes) -> bytes:
    scope = embedded(2, embedded(1, text(1, "scope")) + b"".join(embedded(2, metric) for metric in metrics))
    return embedded(1, embedded(1, b"") + scope)
