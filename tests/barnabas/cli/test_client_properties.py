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
from tests.broker.security.tls.stores import KEY_PASSWORD, STORE_PASSWORD, needs_cryptography, path, text

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
