"""Keys, key sets and JSON Web Tokens for tests of OAUTHBEARER."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ES256, RS256, EDDSA = "ES256", "RS256", "EdDSA"
_ALGORITHMS = {ES256: jwt.algorithms.ECAlgorithm, RS256: jwt.algorithms.RSAAlgorithm, EDDSA: jwt.algorithms.OKPAlgorithm}


def private_key(algorithm: str, name: str = "a") -> Any:
    """One for each algorithm and name."""
    return _private_key(algorithm, name)


@cache
def _private_key(algorithm: str, name: str) -> Any:
    if algorithm == ES256:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(65537, 2048) if algorithm == RS256 else ed25519.Ed25519PrivateKey.generate()


def jwk(algorithm: str, name: str = "a", **members: Any) -> dict[str, Any]:
    """The public key as a member of a key set; its id is its name."""
    return jwk_of(private_key(algorithm, name).public_key(), algorithm, **{"kid": name, **members})


def jwk_of(key: Any, algorithm: str, **members: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(_ALGORITHMS[algorithm].to_jwk(key))
    made.pop("key_ops", None)
    return {name: value for name, value in {**made, **members}.items() if value is not None}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def token(
    claims: dict[str, Any], algorithm: str = ES256, name: str = "a", *, headers: dict[str, Any] | None = None, key: Any = None
) -> str:
    """Signed by that key, and with its name for an id."""
    signer = private_key(algorithm, name) if key is None else key
    return jwt.encode(claims, signer, algorithm, headers={"kid": name} if headers is None else headers)


def raw_token(header: Any, payload: bytes, name: str = "a") -> str:
    """Signed by ES256, with any header and any payload."""
    signing = jwt.utils.base64url_encode(json.dumps(header).encode()) + b"." + jwt.utils.base64url_encode(payload)
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(signing, private_key(ES256, name))
    return (signing + b"." + jwt.utils.base64url_encode(signature)).decode()
