"""Keys, proofs and credentials: the example of RFC 7677, as Kafka's ScramFormatterTest, and what stands in for an unknown user."""

from __future__ import annotations

import base64

import pytest

from protocol.sasl import scram, scram_messages
from protocol.sasl.scram import ScramMechanism

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
AUTH_MESSAGE = scram_messages.auth_message(
    "n=user,r=rOprNGfwEbeRWgbNEkqO",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
)
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
SHA_256 = ScramMechanism.SCRAM_SHA_256


def test_example_of_rfc_7677_has_its_proof_and_signature() -> None:
    salted = scram.salted_password(SHA_256, "pencil", SALT, 4096)
    credential = scram.credential_of(SHA_256, salted, SALT, 4096)

    assert scram.client_proof(SHA_256, salted, AUTH_MESSAGE) == PROOF
    assert scram.is_proof(SHA_256, credential, AUTH_MESSAGE, PROOF)
    assert scram.server_signature(SHA_256, credential.server_key, AUTH_MESSAGE) == SIGNATURE


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_proof_of_another_password_or_size_is_none(mechanism: ScramMechanism) -> None:
    right, wrong = (scram.salted_password(mechanism, password, SALT, 4096) for password in ("pencil", "pencils"))
    credential = scram.credential_of(mechanism, right, SALT, 4096)
    proof = scram.client_proof(mechanism, right, AUTH_MESSAGE)

    assert scram.is_proof(mechanism, credential, AUTH_MESSAGE, proof)
    assert not scram.is_proof(mechanism, credential, AUTH_MESSAGE, scram.client_proof(mechanism, wrong, AUTH_MESSAGE))
    assert not scram.is_proof(mechanism, credential, AUTH_MESSAGE, proof[:-1])
    assert not scram.is_proof(mechanism, credential, AUTH_MESSAGE, proof + b"\0")
    assert not scram.is_proof(mechanism, credential, AUTH_MESSAGE, b"")
    assert not scram.is_proof(mechanism, credential, AUTH_MESSAGE + b"x", proof)


@pytest.mark.parametrize("name", ["user1", "123", "1,2", "user=A", "user==B", "user,1", "user 1", ",", "=", ",=", "==", "=2C", "=3D"])
def test_escaped_name_has_no_comma_and_comes_back(name: str) -> None:
    first = scram_messages.client_first(name, "abc", is_token_authentication=False)

    assert scram_messages.escape(name).count(",") == 0
    assert scram_messages.parse_client_first(f"n,,{first}".encode()).username == name


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_unknown_user_always_has_the_same_credential(mechanism: ScramMechanism) -> None:
    """On each broker of the cluster and after a restart: a salt that changes would tell who is unknown."""
    first = scram.unknown_user_credential(mechanism, "eve", b"secret of the cluster")

    assert first == scram.unknown_user_credential(mechanism, "eve", b"secret of the cluster")
    assert first.salt != scram.unknown_user_credential(mechanism, "eva", b"secret of the cluster").salt
    assert first.salt != scram.unknown_user_credential(mechanism, "eve", b"another secret").salt
    assert first.iterations == 4096
    assert len(first.stored_key) == len(first.server_key) == mechanism.key_size


def test_salts_of_unknown_users_differ_by_mechanism() -> None:
    assert len({scram.unknown_user_credential(mechanism, "eve", b"secret").salt for mechanism in ScramMechanism}) == 2


def test_salt_looks_as_kafka_makes_it() -> None:
    """ScramFormatter.secureRandomString: a number of 130 bits by Character.MAX_RADIX."""
    assert scram.salt_text(b"\xff" * 17).decode() == _base36(2**130 - 1)
    assert scram.salt_text(bytes(17)) == b"0"
    assert scram.salt_text(b"\x00" * 16 + b"\x40") == b"1"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def test_credential_shows_no_key() -> None:
    assert "secret" not in repr(scram.ScramCredential(b"salt-secret", b"stored-secret", b"server-secret", 4096))


def test_mechanisms_are_found_by_name() -> None:
    assert scram.find_mechanism("SCRAM-SHA-256") is ScramMechanism.SCRAM_SHA_256
    assert scram.find_mechanism("SCRAM-SHA-512") is ScramMechanism.SCRAM_SHA_512
    assert scram.find_mechanism("SCRAM-SHA-1") is None
