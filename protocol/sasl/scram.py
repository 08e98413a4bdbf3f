"""SCRAM's mechanisms, keys and credentials (RFC 5802, RFC 7677).

Only `salted_password` is expensive: 1 ms for 4,096 rounds of SHA-256, 9 ms for 16,384 of SHA-512. It is called by the side that knows the
password, outside the loop. A server that checks a proof computes two HMACs and a hash.

Source: ScramMechanism, ScramFormatter, ScramCredential.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import Enum
from typing import NamedTuple

ITERATIONS_MIN = 4_096
ITERATIONS_MAX = 16_384
"""Of a credential that is made or altered; ScramMechanism has the same bounds for both mechanisms."""

SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(Enum):
    """The value is the type by which records and requests name the mechanism."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        return "SCRAM-SHA-256" if self is ScramMechanism.SCRAM_SHA_256 else "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """As hashlib names it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_size(self) -> int:
        """Bytes of a StoredKey, a ServerKey, a proof and a signature."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


def find_mechanism(name: str) -> ScramMechanism | None:
    return next((mechanism for mechanism in ScramMechanism if mechanism.mechanism_name == name), None)


class ScramCredential(NamedTuple):
    """What the metadata log has of a user and a mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # the keys are secrets: they may be in no log and no traceback


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hi(password, salt, iterations). The password is not normalized, as in Kafka."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    stored = stored_key(mechanism, client_key(mechanism, salted))
    return ScramCredential(salt, stored, server_key(mechanism, salted), iterations)


def unknown_user_credential(mechanism: ScramMechanism, username: str, cluster_secret: bytes) -> ScramCredential:
    """A credential that no password fits, for a user who has none: always the same one, on every broker that has the secret.

    So an unknown user is refused with the proof, at the same step as a wrong password, and asking twice shows no difference. The salt looks
    as those that Kafka's tools make. Kafka refuses an unknown user one step earlier.
    """
    digest = hmac.digest(cluster_secret, f"{mechanism.mechanism_name} {username}".encode(), "sha512")
    salt = salt_text(digest[:32])
    return ScramCredential(salt, digest[: mechanism.key_size], digest[-mechanism.key_size :], ITERATIONS_MIN)


def salt_text(random: bytes) -> bytes:
    """A salt as Kafka makes it: a number of 130 bits with the digits 0-9a-z. `random` has at least 17 bytes."""
    number = int.from_bytes(random[:17], "big") >> (17 * 8 - SALT_BITS)
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode() or b"0"


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def stored_key(mechanism: ScramMechanism, client: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, client).digest()


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    client = client_key(mechanism, salted)
    signature = hmac.digest(stored_key(mechanism, client), auth_message, mechanism.hash_name)
    return _xor(client, signature)


def is_proof(mechanism: ScramMechanism, credential: ScramCredential, auth_message: bytes, proof: bytes) -> bool:
    """Whether the proof was made with the credential's password. The comparison takes the same time for all proofs of the right size."""
    if len(proof) != mechanism.key_size:
        return False
    signature = hmac.digest(credential.stored_key, auth_message, mechanism.hash_name)
    return hmac.compare_digest(stored_key(mechanism, _xor(signature, proof)), credential.stored_key)


def server_signature(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    return hmac.digest(key, auth_message, mechanism.hash_name)


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))
