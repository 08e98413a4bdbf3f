"""The end of a listener's certificate is told a day at a time, and by a gauge."""

from __future__ import annotations

import logging

import pytest

from broker.observability.metrics import Metrics
from broker.security.tls.certificate import Certificate
from broker.server.certificate_watch import DAY_MS, GAUGE, CertificateWatch
from tests.support.clock import ManualClock


def certificate(clock: ManualClock, days: float) -> Certificate:
    return Certificate(b"", b"", b"", clock.now_ms() + int(days * DAY_MS), frozenset())


def test_a_line_a_day_in_the_last_30_days_and_after_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    watch = CertificateWatch(clock, Metrics())
    watch.note("SSL", [certificate(clock, 900), certificate(clock, 31.5)])
    said: list[list[str]] = []
    for _ in range(34):
        caplog.clear()
        clock.advance(DAY_MS)
        said.append([f"{record.levelname} {record.getMessage()}" for record in caplog.records])

    assert said[0] == []
    soon = "WARNING the certificate of a listener ends soon, `barnabas secure renew` makes another listener=SSL"
    assert (said[1], said[30]) == ([f"{soon} days=29"], [f"{soon} days=0"])
    assert said[31] == ["ERROR the certificate of a listener has ended, clients refuse it listener=SSL"]


def test_a_new_certificate_counts_from_its_taking_up(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    metrics = Metrics()
    watch = CertificateWatch(clock, metrics)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            watch.note("SSL", [certificate(clock, 5)])
        assert len(caplog.records) == 1
        watch.note("SSL", [certificate(clock, 100)])
        clock.advance(10 * DAY_MS)

    assert len(caplog.records) == 1
    gauges = {gauge.name: gauge for gauge in metrics.snapshot().gauges}
    assert dict(gauges[GAUGE].values) == {("SSL",): 90 * DAY_MS / 1000}
