"""MetricsData is read as it was written, and whatever else comes ends in DecodeError."""

from __future__ import annotations

import random

import pytest

from broker.telemetry.otlp import FIELDS_MAX, Point, read_points
from protocol.errors import DecodeError
from tests.broker.telemetry.pushed import double_point, embedded, gauge, int_point, metrics_data, text, total

SAMPLE = metrics_data(
    gauge("latency", double_point(1.5, topic="t"), double_point(2.5, topic="u")),
    total("sent", int_point(-3)),
    total("all", int_point(7), temporality=2),
)


def test_gauges_and_sums_are_read() -> None:
    assert read_points(SAMPLE) == [
        Point("latency", (("topic", "t"),), 1.5, False, False),
        Point("latency", (("topic", "u"),), 2.5, False, False),
        Point("sent", (), -3, True, True),
        Point("all", (), 7, True, False),
    ]


def test_unknown_fields_and_histograms_are_skipped() -> None:
    histogram = text(1, "h") + embedded(9, embedded(1, b"\x08\x01"))

    assert [point.metric for point in read_points(metrics_data(histogram, gauge("g", double_point(1.0))) + embedded(99, b"?"))] == ["g"]


def test_every_prefix_and_any_change_is_read_or_refused() -> None:
    source = random.Random(7)
    inputs = [SAMPLE[:end] for end in range(len(SAMPLE))]
    for _ in range(2_000):
        changed = bytearray(SAMPLE)
        changed[source.randrange(len(changed))] = source.randrange(256)
        inputs.append(bytes(changed))

    refused_count = 0
    for data in inputs:
        try:
            read_points(data)
        except DecodeError:
            refused_count += 1

    assert 0 < refused_count < len(inputs)


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\xff", b"\xff" * 11, b"\x0b", b"\x09\x00", b"\x0a\x05\x12\x7f"])
def test_what_is_cut_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_points(data)


def test_no_more_fields_are_read_than_a_client_can_need() -> None:
    many = metrics_data(gauge("g", *(double_point(1.0) for _ in range(2 * FIELDS_MAX))))

    assert FIELDS_MAX // 3 < len(read_points(many)) <= FIELDS_MAX // 2


@pytest.mark.parametrize("data", [embedded(1, b"") * 10**6, metrics_data(gauge("g", embedded(1, embedded(7, b"") * 10**6)))])
def test_a_push_of_a_million_empty_messages_is_not_read_to_its_end(data: bytes) -> None:
    assert len(read_points(data)) <= 1
