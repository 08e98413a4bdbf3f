"""The gauges of the authorizer, as a scrape sees them."""

from __future__ import annotations

from broker.observability.metrics import Metrics
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from broker.server.authorizer_gauges import MINUTE_MS, add_authorizer_gauges
from tests.broker.security.authorizer.room import KAFKA_S_ACLS, store_of
from tests.support.clock import ManualClock

PREFIX = "kafka_server_plugins_"


def scraped(metrics: Metrics) -> dict[str, float]:
    return {gauge.name.removeprefix(PREFIX): gauge.values[0][1] for gauge in metrics.snapshot().gauges}


def test_rules_and_decisions_are_counted() -> None:
    metrics, clock = Metrics(), ManualClock()
    authorizer = StandardAuthorizer(store_of(list(KAFKA_S_ACLS.values())), super_users={"User:root"})
    authorizer.is_loaded = True
    add_authorizer_gauges(metrics, authorizer, clock)

    for _ in range(30):
        authorizer.authorize("User:root", "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t")
    for _ in range(10):
        authorizer.authorize("User:other", "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t")
    clock.advance(MINUTE_MS // 2)

    assert scraped(metrics) == {
        "acls_total_count": len(KAFKA_S_ACLS),
        "authorization_request_rate_per_minute": 80.0,
        "authorization_allowed_rate_per_minute": 60.0,
        "authorization_denied_rate_per_minute": 20.0,
    }


def test_a_rate_is_that_of_the_last_minute() -> None:
    metrics, clock = Metrics(), ManualClock()
    authorizer = StandardAuthorizer(store_of([]), super_users={"User:root"})
    add_authorizer_gauges(metrics, authorizer, clock)
    authorizer.authorize("User:root", "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t")
    clock.advance(MINUTE_MS)
    assert scraped(metrics)["authorization_allowed_rate_per_minute"] == 1.0

    clock.advance(MINUTE_MS)

    assert scraped(metrics)["authorization_allowed_rate_per_minute"] == 0.0
