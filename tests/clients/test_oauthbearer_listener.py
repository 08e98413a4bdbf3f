"""OAUTHBEARER on listeners: logins by librdkafka, with keys from a file and by HTTPS."""

from __future__ import annotations

import http.server
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess
from tests.support.jwts import ES256, RS256, jwk, key_set, private_key, token
from tests.support.ports import free_ports
from tests.support.secured import FILES

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
AUDIENCE, ISSUER = "brokers", "https://idp.example"
PREFIX = "listener.name.oauth.oauthbearer."


def settings(port: int, plain_port: int, url: str, **changes: str) -> dict[str, str]:
    return {
        "listeners": f"OAUTH://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain_port}",
        "listener.security.protocol.map": "OAUTH:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}sasl.server.callback.handler.class": HANDLER,
        f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        **changes,
    }


def claims(**changes: Any) -> dict[str, Any]:
    now_s = int(time.time())
    return {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 300, **changes}


def log_in(port: int, text: str) -> bool:
    """Whether librdkafka gets in by this token."""
    failures: list[Any] = []
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda config: (text, time.time() + 300),
            "error_cb": failures.append,
        }
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        admin.poll(0.1)
        try:
            return bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            if any("SASL" in str(failure) or "authentication" in str(failure).lower() for failure in failures):
                return False
    raise AssertionError(f"neither in nor refused: {failures}")


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a broker that has the keys `a` and `b` from a file."""
    directory = tmp_path_factory.mktemp("oauth")
    keys = directory / "keys.json"
    keys.write_bytes(key_set(jwk(ES256, "a"), jwk(RS256, "b")))
    port, plain_port = free_ports(2)
    broker = BrokerProcess(directory / "broker", settings(port, plain_port, keys.as_uri()))
    broker.port = plain_port
    broker.start()
    yield port
    broker.stop()


def test_signed_tokens_get_in(port: int) -> None:
    assert log_in(port, token(claims(), ES256, "a"))
    assert log_in(port, token(claims(), RS256, "b"))


def test_other_tokens_do_not(port: int) -> None:
    assert not log_in(port, token(claims(exp=int(time.time()) - 60, iat=int(time.time()) - 90)))
    assert not log_in(port, token(claims(aud="others")))
    assert not log_in(port, token(claims(), key=private_key(ES256, "stranger")))


class Keys(http.server.BaseHTTPRequestHandler):
    """Serves one key set; counts who asks."""

    asked: list[str] = []
    content = b""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(302 if self.path == "/elsewhere" else 200)
        self.send_header("Location", "http://127.0.0.1/keys")
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[str]:
    """The address of an HTTPS server of keys, whose authority is `ca.pem`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / "server.pem", FILES / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Keys.asked, Keys.content = [], key_set(jwk(ES256, "a"))
    yield f"https://localhost:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_come_by_https_and_a_new_key_is_fetched_when_a_token_names_it(provider: str, tmp_path: Path) -> None:
    port, plain_port = free_ports(2)
    trust = f'{MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{FILES / "ca.pem"}";'
    broker = BrokerProcess(tmp_path, settings(port, plain_port, f"{provider}/keys", **{f"{PREFIX}sasl.jaas.config": trust}))
    broker.port = plain_port
    broker.start()
    try:
        assert log_in(port, token(claims(), name="a"))
        Keys.content = key_set(jwk(ES256, "a"), jwk(ES256, "new"))
        log_in(port, token(claims(), name="new"))  # refused while the keys are fetched
        assert log_in(port, token(claims(), name="new"))
        assert not log_in(port, token(claims(), name="never"))
    finally:
        broker.stop()

    assert Keys.asked == ["/keys", "/keys"]


def test_a_redirect_to_http_is_not_followed(provider: str) -> None:
    from broker.server.https_get import GetError, https_get

    context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))

    with pytest.raises(GetError, match="not https"):
        https_get(f"{provider}/elsewhere", context, 1000)
    with pytest.raises(GetError, match="more than 10 bytes"):
        https_get(f"{provider}/keys", context, 10)
    assert https_get(f"{provider}/keys", context, 1000) == Keys.content
