"""A listener with OAUTHBEARER starts only with what lets nobody in unchecked."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.server.oauthbearer_listener import CALLBACK_HANDLER, OAuthBearerValidator, make_validator
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from tests.support.clock import ManualClock
from tests.support.jwts import ES256, jwk, key_set, token

PREFIX = "listener.name.oauth.oauthbearer."
HANDLER = f"{PREFIX}sasl.server.callback.handler.class"
URL = f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url"


def make(tmp_path: Path, **changes: str | None) -> OAuthBearerValidator:
    """With `changes` of the properties; None leaves one out."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set(jwk(ES256)))
    texts = {HANDLER: CALLBACK_HANDLER, URL: keys.as_uri(), **changes}
    set_texts = {name: text for name, text in texts.items() if text is not None}

    async def run_blocking(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    return make_validator(ListenerSettings(set_texts, "OAUTH"), ManualClock(), run_blocking)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({HANDLER: None}, "without it unsigned tokens would be taken"),
        ({HANDLER: "com.example.Mine"}, "without it unsigned tokens would be taken"),
        ({URL: None}, "must be set"),
        ({URL: ""}, "must be set"),
        ({URL: "http://idp/keys"}, "must be an address with https: or file:"),
        ({URL: "https:///keys"}, "must be an address with https: or file:"),
        ({URL: "file://elsewhere/keys"}, "must be an address with https: or file:"),
        ({URL: "keys.json"}, "must be an address with https: or file:"),
        ({URL: "file:///nowhere"}, "the file cannot be opened"),
        ({URL: "file:///dev/zero"}, "the file is not a regular file"),
        ({URL: Path(__file__).as_uri()}, "is not JSON"),
        ({"sasl.oauthbearer.jwt.validator.class": "com.example.Mine"}, "other validators, written in Java, cannot be loaded"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "must be at least 0"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "must be at least 1"),
        ({"sasl.oauthbearer.sub.claim.name": " "}, "must not be empty"),
        ({f"{PREFIX}sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required;"}, "the login module has to be"),
    ],
)
def test_what_stops_the_start(changes: dict[str, str | None], why: str, tmp_path: Path) -> None:
    """CVE-2026-110985 and CVE-2026-33557: without keys Kafka took any token."""
    with pytest.raises(ConfigError, match=why):
        make(tmp_path, **changes)


async def test_a_mechanism_s_own_property_counts_before_the_listener_s_and_the_node_s(tmp_path: Path) -> None:
    changes = {
        f"{PREFIX}sasl.oauthbearer.sub.claim.name": "of-the-mechanism",
        "listener.name.oauth.sasl.oauthbearer.sub.claim.name": "of-the-listener",
        "sasl.oauthbearer.sub.claim.name": "of-the-node",
        "sasl.oauthbearer.expected.audience": "a,b",
    }
    now_s = ManualClock().now_ms() // 1000
    claims = {"of-the-mechanism": "alice", "of-the-listener": "bob", "of-the-node": "eve", "iat": now_s, "exp": now_s + 60, "aud": "b"}
    validator = make(tmp_path, **changes)
    server = validator.start()

    assert server.evaluate(f"n,,\x01auth=Bearer {token(claims)}\x01\x01".encode()) == b""
    assert server.identity is not None and server.identity.name == "alice"
    await validator.close()


async def test_refusals_are_logged_with_a_limit_and_without_the_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    validator = make(tmp_path)

    with caplog.at_level(logging.INFO):
        for _ in range(1000):
            validator.start().evaluate(b"n,,\x01auth=Bearer secret.secret.secret\x01\x01")

    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert 0 < len(lines) < 100 and not any("secret" in line for line in lines)
    await validator.close()


async def test_what_is_not_required_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await make(tmp_path).close()

    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 2 and "expected.audience" in warned[0] and "expected.issuer" in warned[1]
