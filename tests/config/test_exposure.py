"""A start says, in a line for each kind, what of the broker other machines reach without leave."""

from __future__ import annotations

import logging

import pytest

from config.exposure import log_exposure
from config.loading import load_server_config

MAP = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,S:SSL,P:SASL_PLAINTEXT,T:SASL_SSL"


def lines(caplog: pytest.LogCaptureFixture, *overrides: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log_exposure(load_server_config(None, {}, overrides))
    return [record.getMessage() for record in caplog.records]


def listening(*listeners: str) -> tuple[str, ...]:
    return (f"listeners={','.join(listeners)}", f"inter.broker.listener.name={listeners[0].partition(':')[0]}", MAP)


def advertised(*names: str) -> str:
    return "advertised.listeners=" + ",".join(f"{name}://me:{9000 + number}" for number, name in enumerate(names))


def test_the_shipped_configuration_is_open_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    assert lines(caplog) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_loopback_is_no_other_machine(caplog: pytest.LogCaptureFixture, host: str) -> None:
    assert lines(caplog, *listening(f"A://{host}:9092"), "barnabas.metrics.listener=" + host + ":9404") == []


def test_listeners_without_authentication_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    said = lines(caplog, *listening("A://:9092", "B://10.0.0.1:9093"), advertised("A", "B"))

    assert said == ["other machines reach listeners that let in anyone, without authentication: A://:9092, B://10.0.0.1:9093"]


@pytest.mark.parametrize(("setting", "is_told"), [("none", True), ("requested", True), ("required", False)])
def test_tls_alone_lets_in_who_has_no_certificate(caplog: pytest.LogCaptureFixture, setting: str, is_told: bool) -> None:
    said = lines(caplog, *listening("S://:9092"), advertised("S"), f"listener.name.s.ssl.client.auth={setting}")

    assert [("without a certificate" in line) for line in said] == ([True] if is_told else [])


@pytest.mark.parametrize(("mechanisms", "is_told"), [("PLAIN,SCRAM-SHA-256", True), ("SCRAM-SHA-256", False)])
def test_plain_without_tls_is_told(caplog: pytest.LogCaptureFixture, mechanisms: str, is_told: bool) -> None:
    said = lines(caplog, *listening("P://:9092", "T://:9093"), advertised("P", "T"), f"sasl.enabled.mechanisms={mechanisms}")

    assert [("PLAIN sends passwords in clear" in line and line.endswith("P://:9092")) for line in said] == ([True] if is_told else [])


def test_open_metrics_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """CVE-2026-82266 of Redpanda: its API for administrators was open to all."""
    said = lines(caplog, "barnabas.metrics.listener=0.0.0.0:9404")

    assert said == ["other machines reach the metrics, which let in anyone: barnabas.metrics.listener=0.0.0.0:9404"]
