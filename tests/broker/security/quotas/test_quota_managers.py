"""What the metadata says of an entity reaches the quota that it is of (ClientQuotaMetadataManager)."""

from __future__ import annotations

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.security.quotas.client_quotas import ClientQuota, make_entity, quota_record
from broker.security.quotas.client_sensors import IDLE_SENSOR_EXPIRY_MS, UNLIMITED
from broker.security.quotas.quota_managers import QuotaManagers
from broker.security.quotas.quota_metrics import sanitize


@pytest.fixture
def quotas() -> QuotaManagers:
    return QuotaManagers(window_ms=1000, windows_count=11, controller_window_ms=1000, controller_windows_count=11)


ENTITIES: list[tuple[tuple[tuple[str, str | None], ...], str, str]] = [
    ((("user", "a"), ("client-id", "c")), "a", "c"),
    ((("client-id", None), ("user", "a")), "a", "x"),
    ((("user", "a"),), "a", "x"),
    ((("user", None), ("client-id", "c")), "x", "c"),
    ((("user", None), ("client-id", None)), "x", "x"),
    ((("user", None),), "x", "x"),
    ((("client-id", "c"),), "x", "c"),
    ((("client-id", None),), "x", "x"),
]


@pytest.mark.parametrize(("entity", "user", "client_id"), ENTITIES)
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("producer_byte_rate", "produce"),
        ("consumer_byte_rate", "fetch"),
        ("request_percentage", "request"),
        ("controller_mutation_rate", "controller_mutation"),
    ],
)
def test_a_quota_of_users_and_clients(
    quotas: QuotaManagers, entity: tuple[tuple[str, str | None], ...], user: str, client_id: str, key: str, name: str
) -> None:
    managers = {each: getattr(quotas, each) for each in ("produce", "fetch", "request", "controller_mutation")}

    assert quotas.update(entity, key, 100.0)
    assert [each for each, manager in managers.items() if manager.is_enabled] == [name]
    assert managers[name].limit_of(user, client_id) == 100

    assert quotas.update(entity, key, None)
    assert not managers[name].is_enabled
    assert managers[name].limit_of(user, client_id) == UNLIMITED


@pytest.mark.parametrize("address", ["10.0.0.1", None])
def test_a_quota_of_addresses(quotas: QuotaManagers, address: str | None) -> None:
    assert quotas.update([("ip", address)], "connection_creation_rate", 5.0)
    assert quotas.connection_rates.address_limit("10.0.0.1") == 5

    assert quotas.update([("ip", address)], "connection_creation_rate", None)
    assert not quotas.connection_rates.is_enabled


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        ([("user", "a")], "connection_creation_rate"),
        ([("user", "a")], "unknown"),
        ([("ip", "10.0.0.1")], "producer_byte_rate"),
        ([("ip", "example.org")], "connection_creation_rate"),
        ([("group", "g")], "producer_byte_rate"),
        ([], "producer_byte_rate"),
    ],
)
def test_what_means_nothing_is_ignored(quotas: QuotaManagers, entity: list[tuple[str, str | None]], key: str) -> None:
    assert not quotas.update(entity, key, 1.0)

    assert not any(each.is_enabled for each in (quotas.produce, quotas.fetch, quotas.request, quotas.controller_mutation))
    assert not quotas.connection_rates.is_enabled


def test_quotas_follow_the_metadata(quotas: QuotaManagers) -> None:
    state = ClusterState()
    user, address = make_entity([("user", "a")]), make_entity([("ip", "10.0.0.1")])
    for record in (quota_record(user, "producer_byte_rate", 5.0), quota_record(address, "connection_creation_rate", 7.0)):
        state.replay(record)
    state.replay(quota_record(user, "of.the.future", 1.0))

    ignored = quotas.follow(state.take_delta().changed_client_quotas, state.client_quotas)

    assert ignored == [ClientQuota(user, "of.the.future")]
    assert quotas.produce.limit_of("a", "c") == 5
    assert quotas.connection_rates.address_limit("10.0.0.1") == 7

    state.replay(quota_record(user, "producer_byte_rate", None))
    quotas.follow(state.take_delta().changed_client_quotas, state.client_quotas)

    assert not quotas.produce.is_enabled


def test_idle_clients_are_forgotten_by_all(quotas: QuotaManagers) -> None:
    for key in ("producer_byte_rate", "request_percentage"):
        quotas.update([("user", None)], key, 1.0)
    quotas.produce.record("a", "c", 1, 0)
    quotas.request.record_time("a", "c", 1, 0)

    quotas.expire(IDLE_SENSOR_EXPIRY_MS + 1)

    assert (len(quotas.produce), len(quotas.request)) == (0, 0)
    assert {metric.name for metric in quotas.metrics(IDLE_SENSOR_EXPIRY_MS + 1)} == {"exempt-request-time"}


def test_users_are_sanitized_in_tags() -> None:
    """SanitizerTest; the text is Java's."""
    name = "CN=Some characters !@#$%&*()_-+=';:,/~"

    assert sanitize(name) == "CN%3DSome%20characters%20%21%40%23%24%25%26%2A%28%29_-%2B%3D%27%3B%3A%2C%2F%7E"
    assert sanitize("ü.") == "%C3%BC."
