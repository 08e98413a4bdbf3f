"""QuotaKeeper: the managers follow committed quotas, idle clients are forgotten, and a scrape gets Kafka's names."""

from __future__ import annotations

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.security.quotas.client_quotas import make_entity, quota_record
from broker.security.quotas.client_sensors import IDLE_SENSOR_EXPIRY_MS
from broker.security.quotas.quota_managers import QuotaManagers
from broker.server.quota_keeper import EXPIRY_INTERVAL_MS, QuotaKeeper
from tests.support.clock import ManualClock

ALICE = (("user", "alice"),)


class Node:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = ClusterState()
        self.quotas = QuotaManagers(window_ms=1000, windows_count=11, controller_window_ms=1000, controller_windows_count=11)
        self.keeper = QuotaKeeper(self.quotas, self.state, self.clock)

    def set(self, entity: tuple[tuple[str, str | None], ...], key: str, value: float | None) -> None:
        self.state.replay_batch([quota_record(make_entity(entity), key, value)])
        self.keeper.on_metadata_delta(self.state.take_delta())


def test_limits_follow_the_metadata() -> None:
    node = Node()

    node.set(ALICE, "producer_byte_rate", 1000.0)
    assert node.quotas.is_enabled
    assert node.quotas.produce.limit_of("alice", "any") == 1000.0
    node.set(ALICE, "producer_byte_rate", None)

    assert not node.quotas.is_enabled


def test_what_means_nothing_here_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    Node().set((("ip", "no address"),), "connection_creation_rate", 5.0)

    assert "no address" in caplog.text


def test_idle_clients_are_forgotten_by_a_timer_that_the_first_quota_starts() -> None:
    node = Node()
    assert not node.clock.pending_timers
    node.set(ALICE, "producer_byte_rate", 1000.0)
    node.quotas.produce.record("alice", "any", 10, node.clock.monotonic_ms())

    node.clock.advance(IDLE_SENSOR_EXPIRY_MS)
    assert len(node.quotas.produce) == 1
    node.clock.advance(EXPIRY_INTERVAL_MS)

    assert len(node.quotas.produce) == 0
    node.keeper.close()
    assert not node.clock.pending_timers


def test_a_scrape_has_the_names_of_kafka_s_metrics() -> None:
    node = Node()
    node.set(ALICE, "producer_byte_rate", 1000.0)
    node.quotas.produce.record("alice", "any", 20_000, node.clock.monotonic_ms())
    node.quotas.produce.record_throttle_time("alice", "any", 900, node.clock.monotonic_ms())

    samples = {sample.name: sample for sample in node.keeper.samples()}

    assert samples["kafka_server_produce_byte_rate"].label_names == ("user", "client_id")
    assert samples["kafka_server_produce_byte_rate"].values == ((("alice", ""), 2000.0),)
    assert samples["kafka_server_produce_throttle_time"].values == ((("alice", ""), 900.0),)
    assert "kafka_server_fetch_byte_rate" not in samples
    assert not any("connection" in name for name in samples)  # no rate of connections is limited
