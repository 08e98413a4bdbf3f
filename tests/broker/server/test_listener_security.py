"""What a node that runs takes up of changed properties of its listeners, and what not."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from broker.observability.metrics import Metrics
from broker.server.listener_security import ListenerSecurity
from config.listener_properties import DYNAMIC_LISTENER_PROPERTIES, LISTENER_PROPERTIES, is_dynamic
from config.loading import load_server_config
from config.properties import ConfigError
from storage.disk import SYSTEM_DISK
from tests.broker.security.tls import stores
from tests.support.clock import ManualClock

PREFIX = "listener.name.internal."


def make_security(**changes: str) -> ListenerSecurity:
    """`changes` with `_` for `.`."""
    settings = {
        "listeners": "INTERNAL://127.0.0.1:9092",
        "listener.security.protocol.map": "INTERNAL:SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": stores.text("server.key"),
        "ssl.keystore.certificate.chain": stores.text("server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": stores.text("ca.pem"),
    } | {name.replace("_", "."): value for name, value in changes.items()}
    config = load_server_config(None, {}, [f"{name}={value}" for name, value in settings.items()])
    platform: Any = SimpleNamespace(clock=ManualClock(), disk=SYSTEM_DISK)
    unused: Any = None
    registry: Any = SimpleNamespace(network=None, frame_turn=SimpleNamespace(wait=None))
    return ListenerSecurity(config, platform, registry, credentials=unused, cluster_secret=unused, metrics=Metrics())


def test_connections_to_other_nodes_take_the_new_certificate() -> None:
    """KAFKA-20025: Kafka's went on with the old one."""
    security = make_security()
    peers = security.to_brokers()
    assert peers is not None
    before = peers._context

    security.take_over(
        {f"{PREFIX}ssl.keystore.key": stores.text("client.key"), f"{PREFIX}ssl.keystore.certificate.chain": stores.text("client.pem")}
    )

    assert peers._context is not before


def test_brokers_that_would_not_trust_themselves_do_not_start() -> None:
    with pytest.raises(ConfigError, match=r"would not trust each other's certificates on this listener: .*issuer certificate"):
        make_security(ssl_truststore_certificates=stores.text("other-ca.pem")).secure("INTERNAL", "SSL")


def test_a_certificate_that_the_other_brokers_would_not_trust_is_not_taken_up() -> None:
    """The old side has to trust the new one, and the reverse: an authority is replaced in the trust stores of all brokers first."""
    security = make_security(ssl_allow_dn_changes="true", ssl_allow_san_changes="true", ssl_client_auth="required")
    security.secure("INTERNAL", "SSL")
    both = {f"{PREFIX}ssl.truststore.certificates": stores.text("ca.pem") + stores.text("other-ca.pem")}

    def keys(name: str) -> dict[str, str]:
        return {
            f"{PREFIX}ssl.keystore.key": stores.text(f"{name}.key"),
            f"{PREFIX}ssl.keystore.certificate.chain": stores.text(f"{name}.pem"),
        }

    for change, why in (
        (keys("stranger"), "issuer certificate"),
        ({**keys("stranger"), **both}, "."),  # the other brokers do not have the new trust store yet
        (keys("expired"), "expired"),
        (keys("client"), "purpose"),
    ):
        found = security.find_fault(change)
        assert found is not None and re.search(f"would not trust each other's certificates on this listener: .*{why}", found), found
    assert security.find_fault(keys("rsa")) is None


def test_the_check_of_a_host_s_name_is_not_switched_off_by_a_request() -> None:
    security = make_security()
    peers = security.to_brokers()
    assert peers is not None

    security.take_over({f"{PREFIX}ssl.endpoint.identification.algorithm": "", f"{PREFIX}ssl.enabled.protocols": "TLSv1.3"})

    assert peers._context is not None
    assert peers._context.check_hostname


def test_what_a_request_may_change_are_kafkas_dynamic_properties() -> None:
    assert not DYNAMIC_LISTENER_PROPERTIES - set(LISTENER_PROPERTIES)
    assert is_dynamic(f"{PREFIX}ssl.keystore.location")
    assert is_dynamic(f"{PREFIX}plain.sasl.jaas.config")
    assert not is_dynamic(f"{PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.url")
    assert not is_dynamic(f"{PREFIX}sasl.server.max.receive.size")
    assert not is_dynamic("ssl.keystore.location")
