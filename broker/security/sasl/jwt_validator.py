"""JwtValidator: whether a JSON Web Token is taken, and whose it is.

In this order: the form, the algorithm and the key (jwks.py), the signature, then the claims. exp and iat are required; nbf, iss, aud, sub
and jti are checked where they are there. A token that a claim makes ambiguous is refused: a name twice, a number that is none.

Source: BrokerJwtValidator, ClaimValidationUtils, SerializedJwt; jose4j's JwtConsumer, NumericDateValidator and AudValidator, whose rules it
has: without an expected audience a token that has one is refused, and a token may be issued in the future.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jwt

from broker.security.sasl.jwks import ALL_ALGORITHMS, KEY_ID_SIZE_MAX, KeySet, VerificationKey
from broker.security.sasl.oauthbearer import TokenError, ValidToken

TOKEN_SIZE_MAX = 65_536
"""Characters. Kafka bounds a token by the frame alone, which may have eight times as many bytes."""
JAVA_WHITESPACE = "".join(map(chr, range(33)))
"""What String.trim removes."""

_SECTIONS = 3
_JWS = jwt.PyJWS(algorithms=list(ALL_ALGORITHMS))


class JwtRules(NamedTuple):
    """The properties sasl.oauthbearer.*. No expected audience, or issuer: none is required."""

    expected_audiences: tuple[str, ...] = ()
    expected_issuer: str | None = None
    clock_skew_seconds: int = 30
    sub_claim_name: str = "sub"
    scope_claim_name: str = "scope"


class JwtValidator:
    """`find_keys` returns the current keys, `now_ms` the wall clock. `on_unknown_key` is called for a token whose key is not there."""

    def __init__(
        self, rules: JwtRules, find_keys: Callable[[], KeySet], now_ms: Callable[[], int], on_unknown_key: Callable[[], object]
    ) -> None:
        self._rules = rules
        self._find_keys = find_keys
        self._now_ms = now_ms
        self._on_unknown_key = on_unknown_key

    def validate(self, token: str) -> ValidToken:
        """Raises TokenError. Takes 0.1 to 0.2 ms, most of it for the signature."""
        sections = token.split(".")
        if len(token) > TOKEN_SIZE_MAX:
            raise TokenError(f"the token has more than {TOKEN_SIZE_MAX} characters")
        if len(sections) != _SECTIONS or not all(sections):
            raise TokenError("the token has not the three sections of a signed JWT")
        claims = _claims(self._verified_payload(token))
        self._check_times(claims)
        self._check_issuer_and_audience(claims)
        _check_scope(claims.get(self._rules.scope_claim_name))
        for name in ("sub", "jti"):
            if not isinstance(claims.get(name, ""), str):
                raise TokenError(f"the claim {name} is no text")
        subject = claims.get(self._rules.sub_claim_name)
        if not isinstance(subject, str) or not subject.strip(JAVA_WHITESPACE):
            raise TokenError(f"the token has no text in the claim {self._rules.sub_claim_name}")
        return ValidToken(subject.strip(JAVA_WHITESPACE), _milliseconds(claims, "exp"))

    def _verified_payload(self, token: str) -> bytes:
        try:
            header = _JWS.get_unverified_header(token)
            key = self._find_key(header)
            verified = _JWS.decode_complete(token, key=key.key, algorithms=list(key.algorithms))
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as e:
            raise TokenError(f"the token cannot be verified: {type(e).__name__}") from e
        payload = verified["payload"]
        assert isinstance(payload, bytes), "no token with a detached payload comes here"
        return payload

    def _find_key(self, header: dict[str, Any]) -> VerificationKey:
        algorithm, key_id = header.get("alg"), header.get("kid")
        if "crit" in header or "b64" in header:
            raise TokenError("the token's header asks for an extension")
        if algorithm not in ALL_ALGORITHMS:
            raise TokenError("the token's algorithm is not taken here")
        if key_id is not None and (not isinstance(key_id, str) or len(key_id) > KEY_ID_SIZE_MAX):
            raise TokenError("the token's key id is none")
        keys = self._find_keys()
        key = keys.find(key_id, algorithm)
        if key is not None:
            return key
        if key_id is not None and not keys.knows(key_id):
            self._on_unknown_key()
            raise TokenError("no key has the token's key id")
        raise TokenError("not one key fits the token")

    def _check_times(self, claims: dict[str, Any]) -> None:
        now_ms, skew_ms = self._now_ms(), self._rules.clock_skew_seconds * 1000
        end_ms, issued_ms = _milliseconds(claims, "exp"), _milliseconds(claims, "iat")
        if now_ms - skew_ms >= end_ms:
            raise TokenError("the token has expired")
        if end_ms < issued_ms:
            raise TokenError("the token ends before it was issued")
        if "nbf" in claims:
            begin_ms = _milliseconds(claims, "nbf")
            if now_ms + skew_ms < begin_ms:
                raise TokenError("the token's time has not come")
            if end_ms < begin_ms:
                raise TokenError("the token ends before it begins")

    def _check_issuer_and_audience(self, claims: dict[str, Any]) -> None:
        issuer, audience = claims.get("iss"), claims.get("aud")
        if self._rules.expected_issuer is not None and issuer != self._rules.expected_issuer:
            raise TokenError("the token's issuer is not the expected one")
        if not isinstance(issuer, str | None):
            raise TokenError("the claim iss is no text")
        audiences = [audience] if isinstance(audience, str) else audience
        if audiences is not None and not (isinstance(audiences, list) and all(isinstance(each, str) for each in audiences)):
            raise TokenError("the claim aud is neither text nor texts")
        if not self._rules.expected_audiences:
            if audiences is not None:
                raise TokenError("the token is for an audience, and sasl.oauthbearer.expected.audience is not set")
        elif not set(audiences or ()).intersection(self._rules.expected_audiences):
            raise TokenError("the token is not for an expected audience")


def _claims(payload: bytes) -> dict[str, Any]:
    """Raises TokenError, also for a claim that is there twice, which readers understand differently."""
    try:
        claims = json.loads(payload, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as e:
        raise TokenError("the token's claims cannot be read") from e
    if not isinstance(claims, dict):
        raise TokenError("the token's claims are no object")
    return claims


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is there twice")
    return members


def _milliseconds(claims: dict[str, Any], name: str) -> int:
    """A time in seconds; a fraction of a second is dropped, as by jose4j. Raises TokenError where there is none."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:  # nor NaN
        raise TokenError(f"the token has no time in the claim {name}")
    return int(value) * 1000


def _check_scope(scope: Any) -> None:
    """One text, or a list of different ones; anything else counts as none. Raises TokenError."""
    scopes = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    if not all(isinstance(each, str) and each.strip(JAVA_WHITESPACE) for each in scopes):
        raise TokenError("a scope of the token is empty, or no text")
    if len({each.strip(JAVA_WHITESPACE) for each in scopes}) < len(scopes):
        raise TokenError("a scope of the token is there twice")
