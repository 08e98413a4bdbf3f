"""Key stores and trust stores of every kind, made by openssl and keytool (files/make.sh), and properties that do not go together."""

from __future__ import annotations

from typing import Any

import pytest

from broker.security.tls.files import read_store_file
from broker.security.tls.settings import TlsSettings
from broker.security.tls.stores import load_key, load_trust
from config.properties import ConfigError
from tests.broker.security.tls.pairs import Pair
from tests.broker.security.tls.stores import (
    FILES,
    KEY_PASSWORD,
    STORE_PASSWORD,
    client,
    needs_cryptography,
    path,
    pem_key,
    server,
    server_settings,
    text,
)

SERVER_NAME = "CN=localhost,O=Barnabas tests,C=DE"
INTERMEDIATE_NAME = "CN=Intermediate,O=Barnabas tests"
CA_NAME, OTHER_CA_NAME = "CN=CA,O=Barnabas tests", "CN=Another CA,O=Barnabas tests"

NO_KEY: dict[str, Any] = {"keystore_key": None, "keystore_certificate_chain": None}
NO_TRUST: dict[str, Any] = {"truststore_certificates": None}


def store(name: str, kind: str, **changes: Any) -> dict[str, Any]:
    return {"keystore_type": kind, "keystore_location": path(name), "keystore_password": STORE_PASSWORD, **changes}


def trust_store(name: str, kind: str, password: str | None = STORE_PASSWORD) -> dict[str, Any]:
    return {"truststore_type": kind, "truststore_location": path(name), "truststore_password": password}


KEY_STORES = [
    pytest.param(store("server.jks", "JKS", key_password=KEY_PASSWORD), id="JKS"),
    pytest.param(store("server.jks", "PKCS12", key_password=KEY_PASSWORD), id="JKS, called PKCS12"),
    pytest.param(store("server.p12", "PKCS12"), id="PKCS12 of keytool", marks=needs_cryptography),
    pytest.param(store("server.p12", "JKS"), id="PKCS12 of keytool, called JKS", marks=needs_cryptography),
    pytest.param(store("bundle.p12", "PKCS12"), id="PKCS12 of openssl", marks=needs_cryptography),
    pytest.param(store("triple-des.p12", "PKCS12"), id="PKCS12 with triple DES", marks=needs_cryptography),
    pytest.param(store("plain-certificates.p12", "PKCS12"), id="PKCS12 with plain certificates"),
    pytest.param(store("legacy.p12", "PKCS12"), id="PKCS12 of older Java"),
    pytest.param(pem_key("server"), id="PEM in properties"),
    pytest.param(
        {**pem_key("server"), "keystore_key": text("server-encrypted.key"), "key_password": KEY_PASSWORD}, id="encrypted PEM in properties"
    ),
    pytest.param(
        {**pem_key("server"), "keystore_key": " ".join(text("server.key").split("\n"))}, id="PEM whose line ends have become blanks"
    ),
]


@pytest.mark.parametrize("properties", KEY_STORES)
def test_key_and_chain_serve_a_client(properties: dict[str, Any]) -> None:
    settings = TlsSettings(**properties)
    loaded = load_key(settings, read_store_file)
    assert loaded is not None
    assert [certificate.subject_text for certificate in loaded.chain] == [SERVER_NAME, INTERMEDIATE_NAME]

    pair = Pair(server(**{**NO_KEY, **properties}), client())
    pair.handshake()

    assert pair.client.peer_certificate == loaded.chain[0].der


def test_rsa_key_of_jks_with_the_store_s_password() -> None:
    pair = Pair(server(**NO_KEY, **store("rsa.jks", "JKS")), client())
    pair.handshake()

    assert pair.client.is_established


def test_pem_file_with_key_and_chain(tmp_path: Any) -> None:
    file = tmp_path / "server.pem"
    file.write_text("subject=a comment\n" + text("server-encrypted.key") + text("server.pem"))

    pair = Pair(
        server(**NO_KEY, keystore_type="PEM", keystore_location=str(file), key_password=KEY_PASSWORD),
        client(),
    )
    pair.handshake()

    assert pair.client.is_established


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(trust_store("trust.jks", "JKS"), id="JKS"),
        pytest.param(trust_store("trust.jks", "JKS", None), id="JKS without the password"),
        pytest.param(trust_store("trust.p12", "PKCS12"), id="PKCS12", marks=needs_cryptography),
        pytest.param(trust_store("trust.p12", "JKS"), id="PKCS12, called JKS", marks=needs_cryptography),
    ],
)
def test_trusted_certificates_of_keytool(properties: dict[str, Any]) -> None:
    trusted = load_trust(TlsSettings(**properties), read_store_file)

    assert trusted is not None
    assert sorted(certificate.subject_text for certificate in trusted) == [OTHER_CA_NAME, CA_NAME]
    pair = Pair(server(), client(**NO_TRUST, **properties))
    pair.handshake()
    assert pair.client.is_established


@pytest.mark.parametrize(
    "name", ["server.jks", pytest.param("server.p12", marks=needs_cryptography), pytest.param("bundle.p12", marks=needs_cryptography)]
)
def test_key_s_own_certificate_is_trusted_as_in_java(name: str) -> None:
    trusted = load_trust(TlsSettings(**trust_store(name, "PKCS12")), read_store_file)

    assert trusted is not None
    assert [certificate.subject_text for certificate in trusted] == [SERVER_NAME]


@needs_cryptography
def test_certificate_of_openssl_is_not_trusted_as_in_java() -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.truststore\.location: has no trusted certificate: as in Java, .* -importcert"):
        load_trust(TlsSettings(**trust_store("openssl-trust.p12", "PKCS12")), read_store_file)


def test_trust_store_of_older_java() -> None:
    """Its certificates are encrypted with RC2 and 40 bits."""
    trusted = load_trust(TlsSettings(**trust_store("legacy-trust.p12", "JKS")), read_store_file)

    assert trusted is not None
    assert [certificate.subject_text for certificate in trusted] == [CA_NAME]


def test_nothing_is_loaded_where_nothing_is_set() -> None:
    assert load_key(TlsSettings(), read_store_file) is None
    assert load_trust(TlsSettings(), read_store_file) is None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"keystore_type": "JKS"}, "keystore.key: can be specified only for PEM, but key store type is JKS."),
        ({"keystore_certificate_chain": None}, "keystore.certificate.chain: SSL private key is specified, but certificate chain is not"),
        ({"keystore_key": None}, "keystore.key: SSL certificate chain is specified, but private key is not specified"),
        ({"keystore_location": "/x"}, "keystore.key: Both SSL key store location and separate private key are specified."),
        ({"keystore_password": "x"}, "keystore.password: SSL key store password cannot be specified with PEM format"),
        ({**NO_KEY, "keystore_type": "JKS", "keystore_password": "x"}, "keystore.location: SSL key store is not specified, but"),
        ({**NO_KEY, "keystore_type": "JKS", "keystore_location": "/x"}, "keystore.password: SSL key store is specified, but"),
        ({"truststore_type": "JKS"}, "truststore.certificates: can be specified only for PEM, but trust store type is JKS."),
        ({"truststore_location": "/x"}, "truststore.certificates: Both SSL trust store location and separate trust certificates"),
        ({"truststore_password": "x"}, "truststore.password: SSL trust store password cannot be specified for PEM format."),
        ({**NO_TRUST, "truststore_type": "JKS", "truststore_password": "x"}, "truststore.location: SSL trust store is not specified, but"),
    ],
)
def test_properties_that_do_not_go_together_are_refused_in_kafka_s_words(changes: dict[str, Any], line: str) -> None:
    settings = server_settings(**changes, prefix="listener.name.x.")

    with pytest.raises(ConfigError) as caught:
        load_key(settings, read_store_file)
        load_trust(settings, read_store_file)

    assert str(caught.value).startswith("listener.name.x.ssl." + line)


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        (store("server.jks", "JKS", keystore_password="wrong"), "keystore.password: the password does not fit, or the file was altered"),
        (store("server.jks", "JKS"), "key.password: the password does not open the key"),
        (store("server.jks", "BCFKS"), "keystore.type: BCFKS is not supported: JKS, PKCS12 and PEM are"),
        (store("trust.jks", "JKS"), "keystore.location: has no private key"),
        (store("ca.pem", "JKS"), "keystore.location: not a PKCS12 file in DER"),
        (store("nowhere.jks", "JKS"), f"keystore.location: the file {FILES}/nowhere.jks cannot be opened: No such file or directory"),
        (store("", "JKS"), f"keystore.location: the file {FILES} is not a regular file"),
        ({**pem_key("server"), "keystore_key": "hush"}, "keystore.key: Private key not provided"),
        ({**pem_key("server"), "keystore_key": text("server.key") * 2}, "keystore.key: Expected one private key, but found 2"),
        ({**pem_key("server"), "keystore_certificate_chain": "hush"}, "keystore.certificate.chain: At least one certificate expected"),
        ({"keystore_type": "PEM", "keystore_location": path("ca.pem")}, "keystore.location: Private key not provided"),
    ],
)
def test_store_that_cannot_be_used_is_one_line(properties: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_key(TlsSettings(**properties), read_store_file)

    assert str(caught.value).startswith("ssl." + line)
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


@needs_cryptography
@pytest.mark.parametrize("name", ["server.p12", "bundle.p12"])
def test_wrong_password_of_pkcs12(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.keystore\.password: the password does not fit"):
        load_key(TlsSettings(**store(name, "PKCS12", keystore_password="wrong")), read_store_file)


@needs_cryptography
def test_encrypted_trust_store_needs_its_password() -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.truststore\.password: the certificates are encrypted, and there is no password"):
        load_trust(TlsSettings(**trust_store("trust.p12", "PKCS12", None)), read_store_file)


def test_settings_and_keys_show_no_secret() -> None:
    settings = TlsSettings(**store("server.jks", "JKS", key_password=KEY_PASSWORD))
    loaded = load_key(settings, read_store_file)
    assert loaded is not None

    assert "secret" not in repr(settings)
    assert repr(loaded) == "KeyMaterial(2 certificates)"
    assert repr(loaded.key) == "Block(PRIVATE KEY)"
