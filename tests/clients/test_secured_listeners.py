"""TLS and SASL on listeners, by stock clients: produce, consume in a group, refusals."""

from __future__ import annotations

import os
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from protocol.apis import DECLARED
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.uvarint import uvarint
from tests.support.broker import BrokerProcess
from tests.support.ports import HOST
from tests.support.secured import FILES, PASSWORD, PROTOCOLS, USER, Secured
from tests.support.wire import WireClient

RECORDS = 2_000
VALUE = b"v" * 1_000
LARGE = b"l" * 900_000
PATIENCE_S = 20.0
REAUTHENTICATION_MS = 3_600_000
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_KEY, _CHAIN = "listener.name.ssl.ssl.keystore.key", "listener.name.ssl.ssl.keystore.certificate.chain"


@pytest.fixture(scope="module")
def secured() -> Secured:
    return Secured()


@pytest.fixture(scope="module")
def broker(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    metrics = {"barnabas.metrics.listener": f"{HOST}:{secured.metrics_port}"}
    reauthentication = {"listener.name.sasl_plaintext.connections.max.reauth.ms": str(REAUTHENTICATION_MS)}
    broker = BrokerProcess(tmp_path_factory.mktemp("secured") / "broker", secured.settings() | metrics | reauthentication)
    broker.port = secured.ports["PLAINTEXT"]
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_librdkafka_produces_and_consumes(broker: BrokerProcess, secured: Secured, protocol: str) -> None:
    topic = f"librdkafka-{protocol}"
    producer = Producer({**secured.librdkafka(protocol), "linger.ms": 5, "message.max.bytes": 1_000_000})
    for number in range(RECORDS):
        producer.produce(topic, VALUE, key=b"%d" % number)
        producer.poll(0)
    producer.produce(topic, LARGE, key=b"large")  # many records of TLS in one frame, and in one answer
    assert producer.flush(30) == 0

    consumer = Consumer({**secured.librdkafka(protocol), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        read: list[Any] = []
        while len(read) < RECORDS + 1:
            messages = consumer.consume(min(500, RECORDS + 1 - len(read)), timeout=30)  # it waits for so many
            assert messages, f"{len(read)} records came"
            assert [message.error() for message in messages if message.error()] == []
            read += messages
    finally:
        consumer.close()

    assert [message.key() for message in read] == [*(b"%d" % number for number in range(RECORDS)), b"large"]
    assert {message.value() for message in read} == {VALUE, LARGE}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafka_python_produces_and_consumes(broker: BrokerProcess, secured: Secured, protocol: str) -> None:
    topic = f"kafka-python-{protocol}"
    producer = KafkaProducer(**secured.kafka_python(protocol))
    for number in range(100):
        producer.send(topic, b"%d" % number)
    producer.flush(30)
    producer.close()

    consumer = KafkaConsumer(topic, **secured.kafka_python(protocol), auto_offset_reset="earliest", consumer_timeout_ms=15_000)
    read = []
    for message in consumer:
        read.append(message.value)
        if len(read) == 100:
            break
    consumer.close()

    assert read == [b"%d" % number for number in range(100)]


def test_who_trusts_another_authority_does_not_connect(broker: BrokerProcess, secured: Secured) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        _connected(secured, "SSL", ssl.create_default_context(cafile=str(FILES / "other-ca.pem")))

    assert broker.lines_with("unknown ca")


def test_a_strangers_certificate_is_refused(broker: BrokerProcess, secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
    context.load_cert_chain(FILES / "stranger.pem", FILES / "stranger.key")
    with pytest.raises((ssl.SSLError, ConnectionError)), _connected(secured, "SSL", context) as connection:
        connection.recv(1)

    assert broker.lines_with("the peer's certificate")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken_and_the_end_is_announced(broker: BrokerProcess, secured: Secured, version: ssl.TLSVersion) -> None:
    """An end without close_notify would raise here: librdkafka takes it for a fault (librdkafka#4293)."""
    context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
    context.minimum_version = context.maximum_version = version
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF if hasattr(ssl, "OP_IGNORE_UNEXPECTED_EOF") else context.options
    with _connected(secured, "SSL", context) as connection:
        connection.sendall(b"\xff\xff\xff\xff")  # a frame of -1 bytes closes the connection

        assert connection.recv(1) == b""


def test_plain_bytes_on_a_tls_listener_are_one_line(broker: BrokerProcess, secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports["SSL"]), timeout=10) as connection:
        connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff")
        assert b"\0\x12" not in connection.recv(100)  # an alert, and no answer

    assert broker.lines_with("the peer does not speak TLS")


def test_before_the_login_nothing_else_is_served(broker: BrokerProcess, secured: Secured) -> None:
    metadata = b"\0\0\0\x0c\0\x03\0\0\0\0\0\0\xff\xff\0\0"
    with socket.create_connection(("127.0.0.1", secured.ports["SASL_PLAINTEXT"]), timeout=10) as connection:
        connection.sendall(metadata)
        assert connection.recv(100) == b""

    assert broker.lines_with("Unexpected Kafka request of type METADATA during SASL handshake")


@pytest.mark.parametrize("has_handshake", [False, True])
def test_no_api_is_served_before_the_login(broker: BrokerProcess, secured: Secured, has_handshake: bool) -> None:
    """Before the handshake the connection ends. After it one with an error for a whole request tells ILLEGAL_SASL_STATE before the end."""
    held, told_count = [], 0
    for api in DECLARED.values():
        if api.key not in (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE):
            client = WireClient("127.0.0.1", secured.ports["SASL_PLAINTEXT"], timeout_s=PATIENCE_S)
            if has_handshake:
                assert client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            client.send(api.request_class(), api.max_version)
            held.append((api.name, client))
    if has_handshake:
        client = WireClient("127.0.0.1", secured.ports["SASL_PLAINTEXT"], timeout_s=PATIENCE_S)
        client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(FindCoordinatorRequest(coordinator_keys=["k"] * 19_000), 4)  # an answer that would be made in turns
        held.append(("FindCoordinator", client))

    for name, client in held:
        received = b""
        while part := client.receive_raw(65536):
            received += part
        assert received == b"" or (has_handshake and len(received) < 100 and b"127.0.0.1" not in received), name
        told_count += ErrorCode.ILLEGAL_SASL_STATE.to_bytes(2) in received
        client.close()
    assert (told_count > 20) is has_handshake, told_count
    assert "Traceback" not in broker.log_path.read_text()


def test_tags_of_a_header_before_the_login_are_few(broker: BrokerProcess, secured: Secured) -> None:
    """CVE-2026-111115: they were parsed in the header, from whoever connects."""
    tags = uvarint(20_000) + b"".join(uvarint(1000 + number) + b"\0" for number in range(20_000))
    with WireClient("127.0.0.1", secured.ports["SASL_PLAINTEXT"], timeout_s=PATIENCE_S) as client:
        client.send_frame(b"\0\x12\0\x03\0\0\0\0\xff\xff" + tags + b"\x02a\x02b\0")

        assert client.is_closed_by_peer()


def test_a_frame_above_the_limit_closes_before_the_login(broker: BrokerProcess, secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports["SASL_PLAINTEXT"]), timeout=10) as connection:
        connection.sendall((524_289).to_bytes(4) + b"\0\x12")
        assert connection.recv(100) == b""


def test_what_the_settings_lack_is_one_line(tmp_path: Path) -> None:
    secured = Secured()
    settings = secured.settings(sasl_enabled_mechanisms="GSSAPI")
    broker = BrokerProcess(tmp_path / "broker", settings)
    broker.port = secured.ports["PLAINTEXT"]

    with pytest.raises(AssertionError):
        broker.start()

    assert "GSSAPI (Kerberos) is not supported; set sasl.enabled.mechanisms" in broker.log_path.read_text()
    assert "Traceback" not in broker.log_path.read_text()


def test_a_wrong_password_is_refused_in_kafkas_words(broker: BrokerProcess, secured: Secured) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**secured.librdkafka("SASL_SSL", password="guessed"), "error_cb": errors.append, "log_level": 0})
    _wait_until(lambda: (producer.poll(0.1), len(errors) > 1)[1])

    assert any(error.code() == KafkaError._AUTHENTICATION for error in errors)
    assert any("Authentication failed: Invalid username or password" in error.str() for error in errors)
    with pytest.raises(KafkaPythonError):
        KafkaProducer(**secured.kafka_python("SASL_PLAINTEXT", password="guessed"), bootstrap_timeout_ms=3_000)
    assert "guessed" not in broker.log_path.read_text()


def _connected(secured: Secured, protocol: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", secured.ports[protocol]), timeout=10)
    return context.wrap_socket(plain, server_hostname="localhost")


def _wait_until(is_reached: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_reached():
        assert time.monotonic() < deadline_s, "it does not come"
        time.sleep(0.02)


def test_metrics_count_who_was_let_in_and_who_was_not(broker: BrokerProcess, secured: Secured) -> None:
    def counts(protocol: str) -> list[int]:
        with urllib.request.urlopen(f"http://{HOST}:{secured.metrics_port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        names = ("successful_authentication", "failed_authentication", "successful_reauthentication", "failed_reauthentication")
        label = f'_total{{listener="{protocol}"}} '
        heads = [f"kafka_server_socketservermetrics_{name}{label}" for name in names]
        return [sum(int(float(line.removeprefix(head))) for line in lines if line.startswith(head)) for head in heads]

    before = {protocol: counts(protocol) for protocol in PROTOCOLS}
    for passwords in ([PASSWORD, PASSWORD], [PASSWORD, "wrong"], ["wrong"]):  # each list is a connection's logins
        with WireClient(HOST, secured.ports["SASL_PLAINTEXT"]) as client:
            for password in passwords:
                client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                answer = client.request(SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{password}".encode()), 2)
                assert (answer.error_code == 0) == (password == PASSWORD)
    with pytest.raises(ssl.SSLCertVerificationError):
        _connected(secured, "SSL", ssl.create_default_context(cafile=str(FILES / "other-ca.pem")))
    _connected(secured, "SSL", ssl.create_default_context(cafile=str(FILES / "ca.pem"))).close()

    wanted = {"SASL_PLAINTEXT": [2, 1, 1, 1], "SSL": [1, 1, 0, 0], "PLAINTEXT": [0, 0, 0, 0]}
    _wait_until(
        lambda: all([now - then for now, then in zip(counts(name), before[name], strict=True)] == grown for name, grown in wanted.items())
    )


def test_a_running_broker_takes_up_a_renewed_certificate_and_refuses_anothers(broker: BrokerProcess, secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka("PLAINTEXT"))
    key, certificate = renewed(x509.load_pem_x509_certificate((FILES / "server.pem").read_bytes()))
    stranger = {_KEY: (FILES / "stranger.key").read_text(), _CHAIN: (FILES / "stranger.pem").read_text()}

    with pytest.raises(KafkaException, match="Keystore DistinguishedName does not match"):
        _alter(admin, stranger)
    _alter(admin, {_KEY: key, _CHAIN: certificate})

    _wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", secured.ports["SSL"])) == certificate)


def test_a_client_needs_a_certificate_as_soon_as_it_is_required(broker: BrokerProcess, secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka("PLAINTEXT"))
    name = "listener.name.sasl_ssl.ssl.client.auth"

    _alter(admin, {name: "required"})

    def is_refused() -> bool:
        context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
        try:
            with _connected(secured, "SASL_SSL", context) as connection:
                connection.settimeout(0.2)
                connection.recv(1)  # TLS 1.3 tells a client late that it needs a certificate
        except TimeoutError:
            return False
        except (ssl.SSLError, ConnectionError):
            return True
        return False

    _wait_until(is_refused)
    _alter(admin, {name: "none"})
    _wait_until(lambda: not is_refused())


def _alter(admin: AdminClient, values: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()]
    (future,) = admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)]).values()
    future.result(30)


def renewed(old: x509.Certificate) -> tuple[str, str]:
    """A new key, and a certificate of the same names, which it has signed itself: both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    builder = x509.CertificateBuilder(old.issuer, old.subject, key.public_key(), x509.random_serial_number())
    builder = (
        builder.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc).add_extension(names, critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256())
    return (
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        certificate.public_bytes(Encoding.PEM).decode(),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plain.sasl.jaas.config", 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://pssst/x" p="pssst";'),
        ("PLAIN.sasl.jaas.config", 'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://pssst/";'),
        ("plain.sasl.jaas.config", 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="pssst"'),
        ("ssl.engine.factory.class", "com.example.Mine"),
        ("principal.builder.class", "com.example.Mine"),
        ("sasl.enabled.mechanisms", "PLAIN,GSSAPI"),
    ],
)
def test_by_the_wire_comes_no_class(broker: BrokerProcess, secured: Secured, name: str, value: str) -> None:
    """CVE-2023-25194 and CVE-2025-27819 (a login module that loads classes by JNDI or LDAP), CVE-2023-46604 of ActiveMQ. No part of a value
    comes back."""
    with pytest.raises(KafkaException) as refused:
        _alter(AdminClient(secured.librdkafka("PLAINTEXT")), {f"listener.name.sasl_ssl.{name}": value})

    assert "pssst" not in str(refused.value)
    assert "pssst" not in broker.log_path.read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "https://127.0.0.1:1/keys"),
        ("sasl.oauthbearer.token.endpoint.url", "file:///etc/passwd"),
        ("authorizer.class.name", "com.example.Mine"),
        ("ssl.principal.mapping.rules", "RULE:^.*$/admin/"),
    ],
)
def test_by_the_wire_comes_no_address_and_no_authorizer(broker: BrokerProcess, secured: Secured, name: str, value: str) -> None:
    """CVE-2025-27817 and CVE-2025-27818: an address from a config was asked, or read as a file. One with a listener's prefix is stored, as
    in Kafka, and has no effect (test_only_kafkas_dynamic_properties_of_a_listener_change)."""
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        _alter(AdminClient(secured.librdkafka("PLAINTEXT")), {name: value})


@pytest.mark.parametrize("store", ["keystore", "truststore"])
@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_a_file_that_a_config_names_is_small_and_regular_and_no_byte_of_it_returns(
    broker: BrokerProcess, secured: Secured, store: str, kind: str, tmp_path: Path
) -> None:
    secret = "cHNzc3Q="
    contents = {
        "text": secret * 10,
        "pem": "".join(f"-----BEGIN {label}-----\n{secret}\n-----END {label}-----\n" for label in ("PRIVATE KEY", "CERTIFICATE")),
        "jks": "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\1\0\x08" + secret * 10,
        "pkcs12": "\x30\x40" + secret * 8,
    }
    paths = [Path("/dev/zero"), Path("/proc/self/environ"), tmp_path, tmp_path / "nowhere", tmp_path / "pipe", tmp_path / "large"]
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    for name, content in contents.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(content, encoding="latin-1")
    inline = ("keystore.key", "keystore.certificate.chain") if store == "keystore" else ("truststore.certificates",)
    admin, prefix = AdminClient(secured.librdkafka("PLAINTEXT")), "listener.name.sasl_ssl.ssl."

    for path in paths:
        values = {**dict.fromkeys(inline, ""), f"{store}.location": str(path), f"{store}.type": kind, f"{store}.password": "pssst"}
        with pytest.raises(KafkaException) as refused:
            _alter(admin, {prefix + name: value for name, value in values.items()})
        told = str(refused.value)
        assert secret not in told and "pssst" not in told and "BEGIN" not in told, path
    log = broker.log_path.read_text()
    assert secret not in log and "pssst" not in log and "Traceback" not in log


def test_only_kafkas_dynamic_properties_of_a_listener_change(broker: BrokerProcess, secured: Secured) -> None:
    """What else has a listener's prefix is stored, as in Kafka, and never has an effect."""
    _alter(AdminClient(secured.librdkafka("PLAINTEXT")), {"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "1000"})

    with WireClient("127.0.0.1", secured.ports["SASL_PLAINTEXT"], timeout_s=PATIENCE_S) as client:
        client.request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.request(SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2)

    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, REAUTHENTICATION_MS)
