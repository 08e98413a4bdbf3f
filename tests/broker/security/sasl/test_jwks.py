"""Key sets: which keys are taken, and what stops a start."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from broker.security.sasl.jwks import KEYS_MAX, JwksError, parse_key_set
from tests.support.jwts import EDDSA, ES256, RS256, jwk, jwk_of, key_set


def taken(**members: Any) -> bool:
    """Whether a key with these members is taken beside another."""
    return len(parse_key_set(key_set(jwk(ES256, "other"), jwk(RS256, "b", **members)))) == 2


def test_keys_are_found_by_id_and_algorithm() -> None:
    keys = parse_key_set(key_set(jwk(ES256, "a"), jwk(RS256, "b"), jwk(EDDSA, "c")))

    found = [keys.find(name, algorithm) for name, algorithm in (("a", "ES256"), ("b", "PS512"), ("c", "EdDSA"))]
    assert [key.key_id for key in found if key is not None] == ["a", "b", "c"]
    assert keys.find("a", "RS256") is None and keys.find("z", "ES256") is None
    assert keys.knows("b") and not keys.knows("z")


def test_members_that_say_what_a_key_is_for() -> None:
    assert taken() and taken(use="sig") and taken(key_ops=["verify"]) and taken(alg="PS256")
    assert not taken(use="enc") and not taken(key_ops=["sign"]) and not taken(alg="ES256") and not taken(alg="none")
    assert not taken(key_ops="verify") and not taken(kid=7) and not taken(kty="oct") and not taken(kty=["RSA"]) and not taken(n="!")


def test_a_key_s_own_algorithm_is_the_only_one() -> None:
    keys = parse_key_set(key_set(jwk(RS256, "b", alg="RS512")))

    assert keys.find("b", "RS512") is not None and keys.find("b", "RS256") is None


def test_shared_secrets_small_rsa_keys_and_other_curves_are_left_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = jwk_of(rsa.generate_private_key(65537, 1024).public_key(), RS256, kid="small")
    bitcoin = jwk_of(ec.generate_private_key(ec.SECP256K1()).public_key(), ES256, kid="k1")
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}

    for key in (small, bitcoin, secret):
        with pytest.raises(JwksError, match="no key"):
            parse_key_set(key_set(key))


def test_private_parts_are_not_kept() -> None:
    from tests.support.jwts import private_key

    keys = parse_key_set(key_set(jwk_of(private_key(ES256), ES256, kid="a")))

    found = keys.find("a", "ES256")
    assert found is not None and not hasattr(found.key, "sign")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "JSON"),
        (b"<html>", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "list of keys"),
        (b"{}", "list of keys"),
        (b'{"keys": {}}', "list of keys"),
        (b'{"keys": []}', "no key"),
        (b'{"keys": [null, 1, "x", {}]}', "no key"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "more than"),
    ],
)
def test_what_is_no_key_set(content: bytes, why: str) -> None:
    with pytest.raises(JwksError, match=why):
        parse_key_set(content)
