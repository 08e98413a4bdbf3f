"""TLS between two TlsLayers in memory: handshakes, data both ways, and each way to end."""

from __future__ import annotations

import ssl
import time

import pytest

from broker.security.tls.layer import INBOUND_SIZE_MAX, OUTBOUND_SIZE_MAX, End, TlsError, TlsLayer
from broker.security.tls.settings import ClientAuth
from tests.broker.security.tls.pairs import Pair, read
from tests.broker.security.tls.stores import client, needs_cryptography, pem_key, pem_trust, server

PROTOCOLS = ["TLSv1.2", "TLSv1.3"]


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return server(), client()


@pytest.fixture
def pair(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Pair:
    pair = Pair(*contexts)
    pair.handshake()
    return pair


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_data_goes_both_ways(protocol: str) -> None:
    pair = Pair(server(enabled_protocols=(protocol,)), client())
    pair.handshake()
    assert pair.server.protocol == pair.client.protocol == protocol

    pair.client.write(b"question")
    pair.carry()
    assert read(pair.server) == b"question"
    pair.server.write(b"answer")
    pair.carry()
    assert read(pair.client) == b"answer"


def test_handshake_arrives_byte_by_byte(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    pair = Pair(*contexts)
    while not (pair.client.handshake() & pair.server.handshake()):
        for sender, receiver in ((pair.client, pair.server), (pair.server, pair.client)):
            for byte in sender.take():
                receiver.handshake()
                receiver.feed(bytes((byte,)))

    assert pair.server.is_established


def test_reading_fills_the_buffer_from_many_records(pair: Pair) -> None:
    """A record of librdkafka has 3 KB: one call of OpenSSL gives only that."""
    for number in range(20):
        pair.client.write(bytes((number,)) * 3000)
    while ciphertext := pair.client.take(INBOUND_SIZE_MAX):
        pair.server.feed(ciphertext)

    assert read(pair.server, 60_000) == b"".join(bytes((number,)) * 3000 for number in range(20))


def test_what_lies_unread_is_counted(pair: Pair) -> None:
    """After a pause no event announces it: plaintext of the record that was begun, and records behind it."""
    pair.client.write(b"x" * 40_000)
    pair.carry()

    assert len(read(pair.server, 8192)) == 8192
    assert pair.server.unread_size > 40_000 - 8192
    assert len(read(pair.server)) == 40_000 - 8192
    assert pair.server.unread_size == 0


def test_part_of_a_record_is_unread_and_gives_nothing(pair: Pair) -> None:
    pair.client.write(b"hello")
    ciphertext = pair.client.take()
    pair.server.feed(ciphertext[:-1])

    assert read(pair.server) == b""
    assert pair.server.end is None
    pair.server.feed(ciphertext[-1:])
    assert read(pair.server) == b"hello"


def test_ciphertext_waits_until_it_is_taken(pair: Pair) -> None:
    pair.server.write(b"x" * OUTBOUND_SIZE_MAX)
    whole = pair.server.unsent_size

    first = pair.server.take(1000)

    assert whole > OUTBOUND_SIZE_MAX
    assert (len(first), pair.server.unsent_size) == (1000, whole - 1000)
    rest = pair.server.take()
    assert pair.server.unsent_size == 0
    for start in range(0, whole, INBOUND_SIZE_MAX):
        pair.client.feed((first + rest)[start : start + INBOUND_SIZE_MAX])
    assert read(pair.client) == b"x" * OUTBOUND_SIZE_MAX


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_notify_comes_after_all_data(protocol: str) -> None:
    """librdkafka takes an end without it for an error that stays (librdkafka#4293)."""
    pair = Pair(server(enabled_protocols=(protocol,)), client())
    pair.handshake()
    pair.server.write(b"last words")
    pair.server.shut()
    pair.server.shut()
    pair.carry()

    assert read(pair.client) == b"last words"
    assert read(pair.client) == b""
    assert pair.client.end is End.CLOSED


def test_end_without_close_notify_is_told_apart(pair: Pair) -> None:
    pair.client.write(b"last words")
    pair.carry()
    pair.server.feed_end()

    assert read(pair.server, 10) == b"last words"
    assert pair.server.end is None
    assert read(pair.server) == b""
    assert pair.server.end is End.CUT


def test_data_may_be_written_after_the_peer_s_close_notify(pair: Pair) -> None:
    pair.client.shut()
    pair.carry()
    assert read(pair.server) == b""
    assert pair.server.end is End.CLOSED

    pair.server.write(b"answer")

    assert pair.server.unsent_size > 0


def test_shut_before_the_handshake_says_nothing(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    layer = TlsLayer(contexts[0], is_server=True)
    layer.shut()

    assert layer.take() == b""


@pytest.mark.parametrize("position", [0, 3, 10, -1])
def test_altered_record_is_refused_with_an_alert(pair: Pair, position: int) -> None:
    pair.client.write(b"hello")
    ciphertext = bytearray(pair.client.take())
    ciphertext[position] ^= 0x55
    pair.server.feed(ciphertext)
    if position == 3:
        pair.server.feed(bytes(INBOUND_SIZE_MAX))  # the length is another one

    with pytest.raises(TlsError, match=r"^TLS failed: "):
        read(pair.server)

    assert pair.server.take() != b""


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "TLS handshake failed: the peer speaks HTTP"),
        (b"\0\0\0\x2c\0\x12\0\4\0\0\0\0\0\7console" + bytes(30), "TLS handshake failed: the peer does not speak TLS"),  # a Kafka request
        (b"\x16\x03\x01\xff\xff" + bytes(20_000), "TLS handshake failed: "),
        (b"\x17\x03\x03\0\1\0", "TLS handshake failed: "),
        (b"\x80\x2e\1\0\2" + bytes(50), "TLS handshake failed: "),  # SSL 2
    ],
)
def test_what_is_not_tls_is_one_line(contexts: tuple[ssl.SSLContext, ssl.SSLContext], first: bytes, message: str) -> None:
    layer = TlsLayer(contexts[0], is_server=True)
    layer.feed(first)

    with pytest.raises(TlsError) as caught:
        layer.handshake()

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert "_ssl.c" not in str(caught.value)


def test_end_within_the_handshake_is_one_line(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    layer = TlsLayer(contexts[0], is_server=True)
    layer.feed_end()

    with pytest.raises(TlsError, match=r"^TLS handshake failed: the peer ended the connection$"):
        layer.handshake()


def test_client_s_certificate_is_its_name() -> None:
    pair = Pair(server(client_auth=ClientAuth.REQUIRED), client(**pem_key("client")))
    pair.handshake()
    pair.client.write(b"x")
    pair.carry()

    assert read(pair.server) == b"x"
    assert pair.server.peer_certificate is not None
    assert pair.server.cipher_suite == "TLS_AES_256_GCM_SHA384"


@pytest.mark.parametrize("auth", [ClientAuth.NONE, ClientAuth.REQUESTED])
def test_client_without_a_certificate_is_let_in_where_none_is_required(auth: ClientAuth) -> None:
    pair = Pair(server(client_auth=auth), client())
    pair.handshake()

    assert pair.server.peer_certificate is None


@pytest.mark.parametrize(
    ("auth", "key"),
    [(ClientAuth.REQUIRED, {}), (ClientAuth.REQUIRED, pem_key("stranger")), (ClientAuth.REQUESTED, pem_key("stranger"))],
)
def test_client_without_a_trusted_certificate_is_refused(auth: ClientAuth, key: dict[str, str]) -> None:
    pair = Pair(server(client_auth=auth), client(**key))

    with pytest.raises(TlsError, match=r"^TLS handshake failed: "):
        pair.handshake()

    assert pair.server.unsent_size > 0  # the alert
    assert not pair.server.is_established


DAY_MS = 86_400_000


@needs_cryptography
@pytest.mark.parametrize(
    ("age_days", "is_self_signed", "why"),
    [(1, False, None), (-10, False, "not yet valid"), (900, False, "has expired"), (1, True, "self-signed certificate")],
)
def test_client_s_certificate_has_to_hold_today(age_days: int, is_self_signed: bool, why: str | None) -> None:
    """By authorities of that age; the last client has signed his certificate himself."""
    from broker.cli.authority import Authority

    authority = Authority("CA", int(time.time() * 1000) - age_days * DAY_MS)
    pair = Authority("alice", int(time.time() * 1000)).pair if is_self_signed else authority.sign("alice", [], is_for_client=True)
    key = {"keystore_type": "PEM", "keystore_key": pair.key, "keystore_certificate_chain": pair.certificate}
    trust = {"truststore_type": "PEM", "truststore_certificates": authority.pair.certificate}
    found = Pair(server(client_auth=ClientAuth.REQUIRED, **trust), client(**key))

    if why is None:
        found.handshake()
    else:
        with pytest.raises(TlsError, match=f"^TLS handshake failed: the peer's certificate: .*{why}"):
            found.handshake()
        assert not found.server.is_established


@pytest.mark.parametrize(
    ("key", "trust", "hostname", "why"),
    [
        ("server", "ca", "another.example.org", "Hostname mismatch"),
        ("server", "ca", "127.0.0.2", "IP address mismatch"),
        ("server", "other-ca", "localhost", "unable to get (local )?issuer certificate"),
        ("expired", "ca", "localhost", "certificate has expired"),
    ],
)
def test_client_refuses_a_server_that_it_cannot_trust(key: str, trust: str, hostname: str, why: str) -> None:
    pair = Pair(server(**pem_key(key)), client(**pem_trust(trust)), hostname)

    with pytest.raises(TlsError, match=f"^TLS handshake failed: the peer's certificate: .*{why}"):
        pair.handshake()


@pytest.mark.parametrize("hostname", ["localhost", "127.0.0.1", "::1"])
def test_client_finds_names_and_addresses_in_the_certificate(contexts: tuple[ssl.SSLContext, ssl.SSLContext], hostname: str) -> None:
    pair = Pair(*contexts, hostname)
    pair.handshake()

    assert pair.client.is_established


def test_wrong_name_passes_without_identification() -> None:
    pair = Pair(server(), client(endpoint_identification_algorithm=""), "another.example.org")
    pair.handshake()

    assert pair.client.is_established
