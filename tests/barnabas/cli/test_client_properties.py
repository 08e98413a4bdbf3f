"""Files of client properties: stores of each type and logins, as librdkafka takes them, and back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.cli.client_properties import ClientProperties, read_client_properties
from barnabas.cli.cluster_facts import sizes
from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.settings import Settings
from broker.cli.client_security import client_security
from broker.security.tls import pem
from config.properties import ConfigError
from tests.barnabas.cli.conftest import Command
from tests.broker.security.tls.stores import KEY_PASSWORD, STORE_PASSWORD, needs_cryptography, path, text
from tests.clients.test_oauthbearer_listener import settings as oauth_settings
from tests.support.broker import BrokerProcess
from tests.support.jwts import ES256, jwk, key_set
from tests.support.ports import free_ports
from tests.support.token_endpoint import AUTHORITY, CLIENT, SECRET, TokenEndpoint

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = f'{SCRAM} required username="a" password="b";'
TRUST = {
    "JKS": {"ssl.truststore.location": path("trust.jks"), "ssl.truststore.password": STORE_PASSWORD},
    "PKCS12": {
        "ssl.truststore.type": "PKCS12", "ssl.truststore.location": path("trust.p12"), "ssl.truststore.password": STORE_PASSWORD,
    },
    "PEM": {"ssl.truststore.type": "PEM", "ssl.truststore.location": path("ca.pem")},
}  # fmt: skip


def read(directory: Path, properties: dict[str, str]) -> ClientProperties:
    file = directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return read_client_properties(file)


@needs_cryptography
@pytest.mark.parametrize("kind", TRUST)
def test_java_trust_store_of_each_type_is_pem_for_librdkafka(kind: str, tmp_path: Path) -> None:
    found = read(tmp_path, {"security.protocol": "SSL", **TRUST[kind]})

    assert pem.certificates_of(text("ca.pem"))[0] in pem.certificates_of(found.librdkafka["ssl.ca.pem"])
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **found.librdkafka})
    assert client_security(found.java) is not None


@needs_cryptography
def test_java_key_store_is_key_and_chain_for_librdkafka(tmp_path: Path) -> None:
    key = {
        "ssl.keystore.location": path("server.jks"), "ssl.keystore.password": STORE_PASSWORD, "ssl.key.password": KEY_PASSWORD,
    }  # fmt: skip
    found = read(tmp_path, {"security.protocol": "SSL", **TRUST["JKS"], **key}).librdkafka

    assert "PRIVATE KEY" in found["ssl.key.pem"] and len(pem.certificates_of(found["ssl.certificate.pem"])) > 1
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **found})


def test_java_login_is_librdkafka_s(tmp_path: Path) -> None:
    login = f'{SCRAM} required username="me" password="a=\\"b\\\\";'.replace("\\", "\\\\")
    found = read(
        tmp_path, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": login, "acks": "all"}
    )

    assert found.librdkafka == {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "acks": "all",
        "sasl.username": "me", "sasl.password": 'a="b\\',
    }  # fmt: skip
    assert client_security(found.java) is not None


@needs_cryptography
def test_librdkafka_file_is_a_java_client_s_for_the_wire(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": path("ca.pem"),
            "ssl.key.location": path("client.key"),
            "ssl.certificate.location": path("client.pem"),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "me",
            "sasl.password": 'a"b\\c',
        },
    )

    assert found.librdkafka["sasl.password"] == 'a"b\\c'
    assert found.java["sasl.jaas.config"].endswith('username="me" password="a\\"b\\\\c";')
    assert client_security(found.java) is not None


def test_login_that_only_librdkafka_knows_leaves_sizes_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    address = {"bootstrap.servers": "127.0.0.1:1"}

    with Connection(Settings({**found.librdkafka, **address}, {**found.java, **address})) as connection:
        with pytest.raises(RefusedError, match="GSSAPI"):
            connection.wire()
        connection.metadata = lambda: SimpleNamespace(brokers={1: SimpleNamespace(host="127.0.0.1", port=1)})  # type: ignore[method-assign]
        assert sizes(connection, [1]) is None


def test_what_has_no_counterpart_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, {"key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer", "metric.reporters": "mine"})

    assert found.unread == ("metric.reporters",)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"sasl.login.class": "Mine", "security.protocol": "SASL_SSL", "sasl.jaas.config": LOGIN}, "sasl.login.class"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": "com.example.Mine required;"}, "com.example.Mine"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.truststore.type": "PEM"}, "sasl.jaas.config"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/nowhere.jks", "ssl.truststore.password": "x"}, "/nowhere.jks"),
    ],
)  # fmt: skip
def test_login_that_cannot_be_read_is_named(properties: dict[str, str], named: str, tmp_path: Path) -> None:
    with pytest.raises((NotUnderstoodError, ConfigError), match=named.replace(".", "[.]")):
        read(tmp_path, properties)


PACKAGE = "org.apache.kafka.common.security.oauthbearer"
BY_TOKEN = {
    "security.protocol": "SASL_SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": path("ca.pem"),
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
    "sasl.login.retry.backoff.ms": "100",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.jaas.config": f'{PACKAGE}.OAuthBearerLoginModule required clientSecret="a secret" scope="kafka" extension_team="blue" '
    f'ssl.truststore.type="PEM" ssl.truststore.location="{path("ca.pem")}";',
}
"""A Java client's, with the id of one kind and the secret of the other."""


@needs_cryptography
def test_login_by_token_is_by_oidc_of_librdkafka(tmp_path: Path) -> None:
    found = read(tmp_path, BY_TOKEN)

    assert found.unread == () and found.java["sasl.jaas.config"] == BY_TOKEN["sasl.jaas.config"]
    authority = found.librdkafka.pop("https.ca.pem")
    assert authority == found.librdkafka["ssl.ca.pem"] and authority.startswith("-----BEGIN CERTIFICATE")
    assert {key: value for key, value in found.librdkafka.items() if key.startswith("sasl.")} == {
        "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token", "sasl.oauthbearer.client.secret": "a secret",
        "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "team=blue",
    }  # fmt: skip


@needs_cryptography
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sasl.login.callback.handler.class": "com.example.Mine"}, "sasl.login.callback.handler.class"),
        ({"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.FileJwtRetriever"}, "sasl.oauthbearer.jwt.retriever.class"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:/token"}, "sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.oauthbearer.assertion.file": "/a"}, "sasl.oauthbearer.assertion.file"),
        ({"sasl.oauthbearer.client.credentials.client.id": ""}, "sasl.oauthbearer.client.credentials.client.id"),
        ({"sasl.jaas.config": f'{PACKAGE}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="me";'}, "client.secret"),
        ({"sasl.jaas.config": LOGIN}, "sasl.jaas.config"),
    ],
)
def test_login_by_token_that_librdkafka_has_not_is_named(change: dict[str, str], named: str, tmp_path: Path) -> None:
    with pytest.raises(NotUnderstoodError, match=named.replace(".", "[.]")):
        read(tmp_path, {**BY_TOKEN, **change})


@needs_cryptography
def test_both_clients_log_in_with_a_java_client_s_file(barnabas_command: Command, tmp_path: Path) -> None:
    """At a listener that knows the endpoint's keys: librdkafka lists, the wire tells the sizes."""
    port, plain_port = free_ports(2)
    with TokenEndpoint() as endpoint:
        keys = tmp_path / "keys.json"
        keys.write_bytes(key_set(jwk(ES256)))
        settings = oauth_settings(port, plain_port, keys.as_uri())
        server = BrokerProcess(tmp_path / "broker", settings)
        server.port = plain_port
        server.start()
        try:
            lines = {
                **BY_TOKEN,
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.oauthbearer.token.endpoint.url": endpoint.url,
                "sasl.oauthbearer.client.credentials.client.id": CLIENT,
                "sasl.jaas.config": BY_TOKEN["sasl.jaas.config"]
                .replace("a secret", SECRET)
                .replace(' extension_team="blue"', "")
                .replace(path("ca.pem"), str(AUTHORITY)),
            }
            file = tmp_path / "client.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in lines.items() if not key.startswith("ssl.")))
            barnabas_command.done("topic", "create", "t", "-F", str(file))

            (row,) = barnabas_command.done("topic", "list", "-F", str(file), "-o", "json").data

            assert (row["name"], row["size_bytes"]) == ("t", 0) and set(endpoint.issued) == {CLIENT}
        finally:
            server.kill()
