"""Sensors are found fast, live for an hour without records, and are bounded in number and in the size of names."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from broker.security.quotas import client_sensors
from broker.security.quotas.client_quota_manager import ClientQuotaManager
from broker.security.quotas.client_sensors import IDLE_SENSOR_EXPIRY_MS, NAME_SIZE_MAX
from broker.security.quotas.quota_limits import ABSENT, DEFAULT, QuotaScope
from broker.security.quotas.quota_metrics import PRODUCE


@pytest.fixture
def manager() -> ClientQuotaManager:
    manager = ClientQuotaManager(PRODUCE, window_ms=1000, windows_count=11)
    manager.set_limit(QuotaScope(ABSENT, DEFAULT), 500)
    return manager


def test_a_sensor_is_dropped_an_hour_after_its_last_record(manager: ClientQuotaManager) -> None:
    """testExpireQuotaSensors"""
    manager.record("a", "idle", 100, 0)
    manager.record("a", "busy", 100, 0)
    manager.record("a", "busy", 100, 1)

    manager.expire(IDLE_SENSOR_EXPIRY_MS)
    assert len(manager) == 2
    manager.expire(IDLE_SENSOR_EXPIRY_MS + 1)

    assert [sensor.tags.client_id for sensor in manager] == ["busy"]
    assert manager.record("a", "idle", 10_000, IDLE_SENSOR_EXPIRY_MS + 1) == 10_000
    assert len(manager) == 2


def test_clients_beyond_the_bound_take_the_place_of_those_that_were_idle_longest(manager: ClientQuotaManager) -> None:
    with patch.object(client_sensors, "SENSORS_MAX", 10):
        for index in range(10):
            manager.record("a", f"c{index}", 1, index)
        manager.record("a", "c0", 1, 100)

        manager.record("a", "another", 1, 101)

    assert [sensor.tags.client_id for sensor in manager] == ["c0", "c6", "c7", "c8", "c9", "another"]


def test_clients_beyond_the_cache_keep_their_measurements(manager: ClientQuotaManager) -> None:
    with patch.object(client_sensors, "CACHED_CLIENTS_MAX", 3):
        for index in range(10):
            manager.record("a", f"c{index}", 6000, 0)

        assert [manager.record("a", f"c{index}", 0, 0) for index in range(10)] == [2000] * 10


def test_a_long_client_id_is_measured_and_not_kept(manager: ClientQuotaManager) -> None:
    name = "x" * 30_000
    manager.set_limit(QuotaScope(ABSENT, name + "b"), 100)

    assert manager.record("a", name + "a", 6000, 0) == 2000
    assert manager.record("a", name + "a", 500, 0) == 3000
    assert manager.record("a", name + "b", 500, 0) == 0  # which has a limit and a rate of its own
    assert manager.record("a", name + "b", 600, 0) == 1000

    assert {len(sensor.tags.client_id) for sensor in manager} == {NAME_SIZE_MAX + 67}


def test_a_changed_limit_counts_for_a_client_that_was_found_before(manager: ClientQuotaManager) -> None:
    assert manager.record("a", "c", 6000, 0) == 2000

    manager.set_limit(QuotaScope(ABSENT, DEFAULT), 600)

    assert manager.record("a", "c", 0, 0) == 0
