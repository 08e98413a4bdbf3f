"""The SSLContext of the properties: protocols, cipher suites, keys that do not fit."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from broker.security.tls.cipher_suites import TLS_1_2_SUITES, TLS_1_3_SUITES, check_protocols, openssl_suites
from broker.security.tls.layer import TlsError
from broker.security.tls.settings import ClientAuth
from config.properties import ConfigError
from tests.broker.security.tls.pairs import Pair, read
from tests.broker.security.tls.stores import client, pem_key, server, text

BOTH = frozenset({"TLSv1.2", "TLSv1.3"})
GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def test_server_and_client_agree_on_the_newest_protocol() -> None:
    pair = Pair(server(), client())
    pair.handshake()

    assert pair.server.protocol == "TLSv1.3"


def test_sides_without_a_common_protocol_fail() -> None:
    pair = Pair(server(enabled_protocols=("TLSv1.3",)), client(enabled_protocols=("TLSv1.2",)))

    with pytest.raises(TlsError, match=r"^TLS handshake failed: "):
        pair.handshake()


@pytest.mark.parametrize("protocol", ["TLSv1.1", "TLSv1", "SSLv3", "TLS", ""])
def test_other_protocols_are_refused(protocol: str) -> None:
    with pytest.raises(ConfigError, match=r"^listener\.name\.x\.ssl\.enabled\.protocols: .*TLSv1\.2 and TLSv1\.3 are"):
        server(enabled_protocols=("TLSv1.2", protocol), prefix="listener.name.x.")


def test_suite_of_the_list_is_used() -> None:
    pair = Pair(server(cipher_suites=(GCM,), enabled_protocols=("TLSv1.2",)), client())
    pair.handshake()

    assert pair.server.cipher_suite == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_list_without_suites_of_tls_1_2_leaves_tls_1_3() -> None:
    context = server(cipher_suites=TLS_1_3_SUITES)

    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_list_that_leaves_out_a_suite_of_tls_1_3_is_refused() -> None:
    """Python could not switch it off."""
    with pytest.raises(ConfigError, match=r"^ssl\.cipher\.suites: the list leaves out TLS_AES_128_GCM_SHA256, and TLSv1\.3 is enabled"):
        server(cipher_suites=(*TLS_1_3_SUITES[:2], GCM))
    with pytest.raises(ConfigError, match="leaves out"):
        server(cipher_suites=(GCM,))


@pytest.mark.parametrize("suite", ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_RSA_WITH_RC4_128_MD5", "TLS_NULL_WITH_NULL_NULL", "DEFAULT"])
def test_unknown_suite_is_refused(suite: str) -> None:
    with pytest.raises(ConfigError, match=f"^ssl.cipher.suites: {suite} is not a cipher suite that is supported here"):
        server(cipher_suites=(*TLS_1_3_SUITES, suite))


def test_list_without_a_suite_of_the_enabled_protocols_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no suite of TLSv1\.2"):
        openssl_suites(TLS_1_3_SUITES, frozenset({"TLSv1.2"}))


def test_all_suites_are_known_to_openssl() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in TLS_1_2_SUITES.values():
        context.set_ciphers(f"{name}:@SECLEVEL=0")
        assert name in [cipher["name"] for cipher in context.get_ciphers()] or "DSS" in name


def test_signalling_value_is_no_suite() -> None:
    assert openssl_suites(("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", GCM, *TLS_1_3_SUITES), BOTH) == ("ECDHE-ECDSA-AES128-GCM-SHA256", BOTH)
    assert check_protocols(()) == BOTH


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"keystore_key": text("client.key")}, "ssl.keystore.key: the private key does not belong to the first certificate"),
        ({"keystore_key": text("rsa.key")}, "ssl.keystore.key: the private key does not belong to the first certificate"),
        ({"keystore_key": text("server-encrypted.key")}, "ssl.key.password: the private key is encrypted, and there is no password"),
        ({"keystore_key": text("server-encrypted.key"), "key_password": "x"}, "ssl.key.password: the password does not open the key"),
        ({"keystore_key": text("server-encrypted.key"), "key_password": "x" * 5000}, "ssl.key.password: the password is too long"),
        (
            {"keystore_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"},
            "ssl.keystore.key: OpenSSL cannot load the private key or a certificate",
        ),
        ({"keystore_key": None, "keystore_certificate_chain": None}, "ssl.keystore.location: a listener with TLS needs a key store"),
    ],
)
def test_key_that_cannot_be_used_is_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server(**changes)

    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("auth", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_client_certificates_need_a_trust_store(auth: ClientAuth) -> None:
    """Kafka would let in the holder of any certificate that a public authority has signed."""
    with pytest.raises(ConfigError, match=rf"^ssl\.truststore\.location: ssl\.client\.auth={auth.value} needs a trust store"):
        server(client_auth=auth, truststore_certificates=None)


def test_other_identification_algorithm_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.endpoint\.identification\.algorithm: "):
        client(endpoint_identification_algorithm="LDAPS")


def test_certificate_of_the_trust_store_ends_a_chain() -> None:
    """As in Java: the intermediate certificate alone may be trusted."""
    intermediate = text("server.pem").split("-----END CERTIFICATE-----\n")[1] + "-----END CERTIFICATE-----\n"
    pair = Pair(server(), client(truststore_certificates=intermediate))
    pair.handshake()

    assert pair.client.is_established


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_new_context_lets_no_removed_client_in_by_an_old_ticket(protocol: str) -> None:
    """On the old context a session ticket brings in the certificate that was trusted then, with its name."""
    changes: dict[str, Any] = {"client_auth": ClientAuth.REQUIRED, "enabled_protocols": (protocol,)}
    old, new = server(**changes), server(**changes, truststore_certificates=text("other-ca.pem"))
    context = client(**pem_key("client"))
    first, again, refused = Pair(old, context), Pair(old, context), Pair(new, context)
    first.handshake()
    first.server.write(b"tickets come before")
    first.carry()
    read(first.client)
    again.client._tls.session = refused.client._tls.session = first.client._tls.session

    again.handshake()

    assert again.client._tls.session_reused
    assert again.server.peer_certificate is not None
    assert again.server.peer_certificate == first.server.peer_certificate
    with pytest.raises(TlsError):
        refused.handshake()
        read(refused.client)


def test_private_key_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = open_descriptors()

    server()

    assert list(tmp_path.iterdir()) == []
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
