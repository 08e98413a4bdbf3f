"""The options of TLS and SASL: what is refused, in which words, and that nothing shows a secret."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from barnabas.spark.client.security import Security, read_security
from barnabas.spark.errors import OptionError
from barnabas.spark.sink import options as sink_options
from barnabas.spark.source import options as source_options
from broker.cli.authority import Authority, KeyPair
from tests.broker.security.tls.stores import FILES, STORE_PASSWORD

SECRET = "Pssst"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'{SCRAM} required username="copier" password="{SECRET}";'
SASL = {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": LOGIN}
TLS = {"kafka.security.protocol": "SSL"}


def store(kind: str, file: str, *, password: str = STORE_PASSWORD) -> dict[str, str]:
    """The options of a file that keytool or openssl has made."""
    return {f"kafka.ssl.{kind}.location": str(FILES / file), f"kafka.ssl.{kind}.password": password}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("tests", int(time.time() * 1000))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> KeyPair:
    return authority.sign("client", ["localhost"], is_for_client=True)


def test_options_are_kept_by_source_and_sink_and_pickled_without_being_shown() -> None:
    texts = {"kafka.bootstrap.servers": "localhost:9092", **SASL}
    source = source_options.read_options({**texts, "subscribe": "orders"})
    sink = sink_options.read_options({key.upper(): text for key, text in texts.items()} | {"id": "copies"})

    assert source.security == sink.security == pickle.loads(pickle.dumps(source)).security
    assert SECRET not in f"{source} {source!r} {sink} {sink!r}"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is 'TLS': it is one of PLAINTEXT, SSL"),
        (SASL | {"kafka.sasl.mechanism": ""}, "kafka.sasl.mechanism: is 'GSSAPI': a login is by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
        (SASL | {"kafka.sasl.jaas.config": ""}, "kafka.sasl.jaas.config: must name the user"),
        (SASL | {"kafka.sasl.jaas.config": f"{SCRAM} required {SECRET}"}, "kafka.sasl.jaas.config: Value not specified"),
        (SASL | {"kafka.sasl.jaas.config": LOGIN.replace(SCRAM, PLAIN)}, f"the login module has to be {SCRAM}"),
        (TLS | {"kafka.ssl.truststore.type": "BCFKS", "kafka.ssl.truststore.location": "s"}, "is 'BCFKS': it is PEM, JKS or PKCS12"),
        (TLS | {"kafka.ssl.truststore.certificates": "-----BEGIN"}, "is a text in PEM: set kafka.ssl.truststore.type to PEM"),
        (TLS | {"kafka.ssl.truststore.location": str(FILES / "trust.jks")}, "trust.jks is in Java's old format JKS: `keytool -import"),
        (TLS | store("truststore", "trust.p12", password=SECRET), "trust.p12 is no PKCS12, its .*, or the password does not fit"),
        (TLS | store("keystore", "trust.p12"), "keystore.location .*trust.p12 has no private key with its certificate"),
        (TLS | store("keystore", "ca.pem"), "keystore.location .*ca.pem is no PKCS12"),
        (TLS | {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/no/file"}, "/no/file cannot be read: No such file"),
        (TLS | {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": SECRET}, "has no certificates in PEM"),
        (TLS | {"kafka.ssl.endpoint.identification.algorithm": "http"}, "it is https, or empty"),
        (TLS | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": "ENCRYPTED"}, "needs the certificates of the key in"),
        (TLS | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": SECRET}, "is not encrypted, and Spark shows it in plans"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_without_a_secret(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why) as caught:
        read_security(options)

    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_certificates_and_keys_are_texts_or_files(authority: Authority, pair: KeyPair, tmp_path: Path) -> None:
    trusted, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    trusted.write_text(authority.pair.certificate)
    own.write_text(pair.key + pair.certificate)
    types = TLS | {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.keystore.type": "PEM"}
    files = types | {"kafka.ssl.truststore.location": str(trusted), "kafka.ssl.keystore.location": str(own)}
    texts = types | {
        "kafka.ssl.truststore.certificates": authority.pair.certificate,
        "kafka.ssl.keystore.key": encrypted(pair.key),
        "kafka.ssl.keystore.certificate.chain": pair.certificate,
        "kafka.ssl.key.password": SECRET,
    }

    assert isinstance(read_security(files), Security)
    assert isinstance(read_security(texts), Security)
    with pytest.raises(OptionError, match="set one of"):
        read_security(files | texts)


def test_an_encrypted_key_needs_its_password_and_its_own_certificate(authority: Authority, pair: KeyPair) -> None:
    options = TLS | {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": encrypted(pair.key),
        "kafka.ssl.keystore.certificate.chain": pair.certificate,
    }

    assert isinstance(read_security(options | {"kafka.ssl.key.password": SECRET}), Security)
    for password in ("", "wrong"):
        with pytest.raises(OptionError, match=r"cannot be opened \(kafka.ssl.key.password\)"):
            read_security(options | {"kafka.ssl.key.password": password})
    with pytest.raises(OptionError, match="does not belong to the first certificate"):
        read_security(options | {"kafka.ssl.keystore.key": encrypted(authority.pair.key), "kafka.ssl.key.password": SECRET})


@pytest.mark.parametrize("store_type", ["PKCS12", "JKS", None])
def test_stores_of_keytool_are_read_by_either_name(store_type: str | None) -> None:
    types = {} if store_type is None else {f"kafka.ssl.{kind}.type": store_type for kind in ("truststore", "keystore")}

    security = read_security(TLS | types | store("truststore", "trust.p12") | store("keystore", "server.p12"))

    context = security.door()._context
    assert context is not None
    subjects = [dict(part[0] for part in each["subject"]) for each in context.get_ca_certs()]
    assert [subject["commonName"] for subject in subjects] == ["CA", "Another CA"]


def encrypted(key: str) -> str:
    """The private key in PEM, opened by SECRET."""
    encryption = BestAvailableEncryption(SECRET.encode())
    return load_pem_private_key(key.encode(), None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()
