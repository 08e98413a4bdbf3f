"""The cases of ConnectionQuotasTest about rates."""

from __future__ import annotations

import math

import pytest

from broker.security.quotas.client_sensors import IDLE_SENSOR_EXPIRY_MS
from broker.security.quotas.connection_rates import UNLIMITED, ConnectionRates

ADDRESS, OTHER_ADDRESS = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def rates() -> ConnectionRates:
    """Two windows: the rate is that of one full second and the begun one."""
    rates = ConnectionRates(window_ms=1000, windows_count=2, inter_broker_listener="REPLICATION")
    for name in ("EXTERNAL", "ADMIN", "REPLICATION"):
        rates.add_listener(name)
    return rates


def accept(rates: ConnectionRates, count: int, address: str = ADDRESS, *, listener: str = "EXTERNAL", now_ms: int = 0) -> int:
    """Returns how many of `count` connections were let in."""
    accepted = 0
    for _ in range(count):
        rates.record(listener, now_ms)
        accepted += rates.record_address(listener, address, now_ms) == 0
    return accepted


def values(rates: ConnectionRates, name: str, now_ms: int = 0) -> dict[str, float]:
    return {next(iter(metric.tags.values()), ""): metric.value for metric in rates.metrics(now_ms) if metric.name == name}


def test_without_limits_nothing_waits(rates: ConnectionRates) -> None:
    assert not rates.is_enabled

    assert [rates.record("EXTERNAL", 0) for _ in range(500)] == [0] * 500
    assert accept(rates, 500) == 500


def test_listeners_share_the_broker_s_rate_but_that_between_brokers(rates: ConnectionRates) -> None:
    rates.set_broker_limit(90)
    assert rates.is_enabled

    assert [rates.record("EXTERNAL", 0) for _ in range(90)] == [0] * 90
    assert rates.record("ADMIN", 0) == 11  # (91 - 90) / 90 x 1000 ms
    assert rates.record("REPLICATION", 0) == 0
    assert values(rates, "connection-accept-throttle-time")["ADMIN"] == 11


def test_an_only_listener_is_bound_by_the_broker_s_rate() -> None:
    rates = ConnectionRates(window_ms=1000, windows_count=2, inter_broker_listener="REPLICATION")
    rates.add_listener("REPLICATION")
    rates.set_broker_limit(1)

    assert [rates.record("REPLICATION", 0) for _ in range(2)] == [0, 1000]


def test_a_listener_has_its_own_rate(rates: ConnectionRates) -> None:
    rates.set_broker_limit(125)
    rates.set_listener_limit("REPLICATION", 30)

    assert [rates.record("REPLICATION", 0) for _ in range(30)] == [0] * 30
    assert rates.record("REPLICATION", 0) == 33
    assert rates.record("EXTERNAL", 0) == 0


@pytest.mark.parametrize("limit", [5, 30])
def test_connections_that_wait_come_at_the_limit_s_rate(rates: ConnectionRates, limit: int) -> None:
    """testListenerConnectionRateLimitWhenActualRateAboveLimit: 20 seconds of attempts every 5 ms."""
    rates.set_listener_limit("EXTERNAL", limit)
    now_ms = accepted = 0
    while now_ms < 20_000:
        now_ms += rates.record("EXTERNAL", now_ms)
        accepted += 1
        now_ms += 5

    assert accepted / 20 == pytest.approx(limit, rel=0.25)


def test_a_wait_is_no_longer_than_a_window(rates: ConnectionRates) -> None:
    rates.set_listener_limit("EXTERNAL", 1)

    assert max(rates.record("EXTERNAL", 0) for _ in range(50)) == 1000


def test_an_address_is_refused_while_it_is_over_its_rate(rates: ConnectionRates) -> None:
    """testEnforcedIpConnectionRateQuotaUpdate"""
    rates.set_address_limit(ADDRESS, 20)
    assert accept(rates, 40) == 20
    assert accept(rates, 40, OTHER_ADDRESS) == 40

    rates.set_address_limit(ADDRESS, 30)
    assert accept(rates, 40) == 10

    rates.set_address_limit(ADDRESS, None)
    assert accept(rates, 40) == 40
    assert not rates.is_enabled

    rates.set_address_limit(None, 20)
    assert accept(rates, 40, OTHER_ADDRESS) == 20


def test_refused_connections_count_nowhere(rates: ConnectionRates) -> None:
    """testRejectedIpConnectionUnrecordedFromConnectionRateQuotas"""
    rates.set_address_limit(ADDRESS, 20)

    accept(rates, 50)
    accept(rates, 50, listener="REPLICATION")

    assert values(rates, "connection-accept-rate") == {"EXTERNAL": 20, "ADMIN": 0, "REPLICATION": 0, ADDRESS: 20}
    assert values(rates, "broker-connection-accept-rate") == {"": 20}
    assert values(rates, "ip-connection-accept-throttle-time")["EXTERNAL"] == 50  # (21 - 20) / 20 x 1000 ms
    assert math.isnan(values(rates, "ip-connection-accept-throttle-time")["ADMIN"])


def test_an_address_s_own_limit_comes_before_the_default(rates: ConnectionRates) -> None:
    """testIpConnectionRateMetricUpdate"""
    rates.set_address_limit(None, 50)
    rates.set_address_limit(ADDRESS, 30)
    rates.set_address_limit(None, 20)
    assert (rates.address_limit(ADDRESS), rates.address_limit(OTHER_ADDRESS)) == (30, 20)

    rates.set_address_limit(None, None)
    assert (rates.address_limit(ADDRESS), rates.address_limit(OTHER_ADDRESS)) == (30, UNLIMITED)
    rates.set_address_limit(ADDRESS, None)
    assert rates.address_limit(ADDRESS) == UNLIMITED


@pytest.mark.parametrize(
    ("name", "peer"), [("::1", "0:0:0:0:0:0:0:1"), ("FE80::0A", "fe80::a"), ("::ffff:10.0.0.1", ADDRESS), (ADDRESS, "::ffff:10.0.0.1")]
)
def test_an_address_is_the_same_however_it_is_written(rates: ConnectionRates, name: str, peer: str) -> None:
    rates.set_address_limit(name, 1)

    assert accept(rates, 5, peer) == 1


@pytest.mark.parametrize("name", ["example.org", "10.0.0", "10.0.0.256", "", "fe80::1%eth0", "1\0"])
def test_what_is_no_address_is_refused(rates: ConnectionRates, name: str) -> None:
    with pytest.raises(ValueError, match="is no IP address"):
        rates.set_address_limit(name, 1)


def test_an_address_is_forgotten_after_an_hour(rates: ConnectionRates) -> None:
    rates.set_address_limit(None, 20)
    accept(rates, 1)

    rates.expire(IDLE_SENSOR_EXPIRY_MS)
    assert ADDRESS in values(rates, "connection-accept-rate", IDLE_SENSOR_EXPIRY_MS)
    rates.expire(IDLE_SENSOR_EXPIRY_MS + 1)

    assert ADDRESS not in values(rates, "connection-accept-rate", IDLE_SENSOR_EXPIRY_MS + 1)
