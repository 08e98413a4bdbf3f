"""The keys of a JSON Web Key Set (RFC 7517), and which of them a token's header asks for.

A key checks signatures of its type's algorithms only, whatever a token says: never `none`, never one with a shared secret. Left out of a
set: keys for other uses, of other types and curves, RSA keys below 2,048 bits, and what cannot be read. Private parts are not kept.

Imported where a listener has OAUTHBEARER: PyJWT and cryptography take 0.3 s and 15 MB.

Source: jose4j's VerificationJwkSelector, JwksVerificationKeyResolver, RefreshingHttpsJwksVerificationKeyResolver.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

RSA_BITS_MIN = 2048
KEYS_MAX = 1000
KEY_ID_SIZE_MAX = 1000
"""Characters. A token with a longer one is refused without a look (RefreshingHttpsJwks.MISSING_KEY_ID_MAX_KEY_LENGTH)."""

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By type and curve."""
ALL_ALGORITHMS = tuple(dict.fromkeys(algorithm for algorithms in ALGORITHMS.values() for algorithm in algorithms))

_PUBLIC_MEMBERS = ("kty", "crv", "x", "y", "n", "e")


class JwksError(Exception):
    """A key set that cannot be used: `str()` says why."""


class VerificationKey(NamedTuple):
    """A public key; `key` is cryptography's. `key_id` is None for one without."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: Any


class KeySet:
    """The usable keys of a set. Immutable."""

    def __init__(self, keys: tuple[VerificationKey, ...] = ()) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def knows(self, key_id: str) -> bool:
        return any(key.key_id == key_id for key in self._keys)

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """Returns the only key that fits. A token without a key id fits where one key has the algorithm; jose4j takes the first of many."""
        fitting = [key for key in self._keys if algorithm in key.algorithms and key_id in (None, key.key_id)]
        return fitting[0] if len(fitting) == 1 else None


def parse_key_set(content: bytes) -> KeySet:
    """Raises JwksError if it is no key set, or has no usable key."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise JwksError("is not JSON") from e
    found = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise JwksError("has no list of keys")
    if len(found) > KEYS_MAX:
        raise JwksError(f"has more than {KEYS_MAX} keys")
    keys = tuple(key for key in map(_parse_key, found) if key is not None)
    if not keys:
        raise JwksError("has no key by which signatures can be checked")
    return KeySet(keys)


def _parse_key(found: Any) -> VerificationKey | None:
    """None for a key that cannot check signatures here."""
    if not isinstance(found, dict):
        return None
    kind, curve = found.get("kty"), found.get("crv")
    algorithms = ALGORITHMS.get((kind, None if kind == "RSA" else curve)) if isinstance(kind, str) else None
    operations = found.get("key_ops")
    is_for_signatures = found.get("use", "sig") == "sig" and (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    )
    if algorithms is None or not is_for_signatures:
        return None
    if "alg" in found:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == found["alg"])
    key_id = found.get("kid")
    if not algorithms or not (key_id is None or isinstance(key_id, str)):
        return None
    try:
        key = jwt.PyJWK({name: found[name] for name in _PUBLIC_MEMBERS if name in found}, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        return None
    return VerificationKey(key_id, algorithms, key)
