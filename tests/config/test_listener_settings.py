"""A listener's own properties count before the node's, and what is wrong names the key that is wrong."""

from __future__ import annotations

import pytest

from config.docs import has_effect
from config.listener_settings import ListenerSettings
from config.properties import ConfigError


def test_a_listeners_own_property_counts_before_the_nodes() -> None:
    texts = {"ssl.keystore.type": "PEM", "listener.name.external.ssl.keystore.type": "PKCS12"}

    assert ListenerSettings(texts, "EXTERNAL").value("ssl.keystore.type") == "PKCS12"
    assert ListenerSettings(texts, "INTERNAL").value("ssl.keystore.type") == "PEM"
    assert ListenerSettings({}, "INTERNAL").value("ssl.keystore.type") == "JKS"


def test_a_mechanism_has_properties_of_its_own() -> None:
    texts = {
        "connections.max.reauth.ms": "1",
        "listener.name.a.connections.max.reauth.ms": "2",
        "listener.name.a.scram-sha-256.connections.max.reauth.ms": "3",
    }

    assert ListenerSettings(texts, "A").value_of_mechanism("SCRAM-SHA-256", "connections.max.reauth.ms") == 3
    assert ListenerSettings(texts, "A").value_of_mechanism("PLAIN", "connections.max.reauth.ms") == 2
    assert ListenerSettings(texts, "B").value_of_mechanism("PLAIN", "connections.max.reauth.ms") == 1


def test_an_error_names_the_key_that_is_set() -> None:
    settings = ListenerSettings({"listener.name.a.ssl.client.auth": "maybe"}, "A")

    with pytest.raises(ConfigError, match=r"listener\.name\.a\.ssl\.client\.auth"):
        settings.value("ssl.client.auth")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listener.name.a.ssl.keystore.location", True),
        ("listener.name.a.plain.sasl.jaas.config", True),
        ("listener.name.a.plain.ssl.keystore.location", False),
        ("listener.name.a.log.dirs", False),
    ],
)
def test_which_keys_of_listeners_have_an_effect(name: str, expected: bool) -> None:
    assert has_effect(name) is expected
