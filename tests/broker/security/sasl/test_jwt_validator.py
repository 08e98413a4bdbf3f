"""Tokens that are taken and refused: BrokerJwtValidatorTest's cases, jose4j's rules, and what an attacker sends."""

from __future__ import annotations

import base64
import hmac
import json
import random
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.security.sasl.jwks import KeySet, parse_key_set
from broker.security.sasl.jwt_validator import JwtRules, JwtValidator
from broker.security.sasl.oauthbearer import TokenError, ValidToken
from tests.support.jwts import EDDSA, ES256, RS256, jwk, key_set, private_key, raw_token, token

NOW_S = 1_800_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600}
KEYS = parse_key_set(key_set(jwk(ES256)))


def claims(**changes: Any) -> dict[str, Any]:
    """The usual ones with changes; None leaves one out."""
    return {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}


class Checked:
    """A validator of a fixed time, and how often an unknown key was told."""

    def __init__(self, rules: JwtRules | None = None, keys: KeySet = KEYS) -> None:
        self.unknown_count = 0
        self.validator = JwtValidator(rules or JwtRules(), lambda: keys, lambda: NOW_S * 1000, self._count)

    def _count(self) -> None:
        self.unknown_count += 1


def validate(text: str, rules: JwtRules | None = None, keys: KeySet = KEYS) -> ValidToken:
    return Checked(rules, keys).validator.validate(text)


def refusal(text: str, rules: JwtRules | None = None, keys: KeySet = KEYS) -> str:
    with pytest.raises(TokenError) as refused:
        validate(text, rules, keys)
    return str(refused.value)


@pytest.mark.parametrize("algorithm", [ES256, RS256, EDDSA])
def test_a_token_names_its_principal_and_its_end(algorithm: str) -> None:
    keys = parse_key_set(key_set(jwk(algorithm)))

    assert validate(token(CLAIMS, algorithm), keys=keys) == ValidToken("alice", (NOW_S + 600) * 1000)


def test_an_rsa_key_takes_all_rsa_algorithms() -> None:
    keys = parse_key_set(key_set(jwk(RS256)))

    for algorithm in ("RS384", "RS512", "PS256", "PS384", "PS512"):
        signed = jwt.encode(CLAIMS, private_key(RS256), algorithm, headers={"kid": "a"})
        assert validate(signed, keys=keys).principal_name == "alice"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE"])
def test_no_algorithm_is_none(name: str) -> None:
    """CVE-2021-22160 of Pulsar."""
    header = base64.urlsafe_b64encode(json.dumps({"alg": name, "kid": "a"}).encode()).rstrip(b"=").decode()
    payload = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).rstrip(b"=").decode()

    assert "algorithm" in refusal(f"{header}.{payload}.{'A' * 86}")
    assert "three sections" in refusal(f"{header}.{payload}.")


def test_a_public_key_is_no_shared_secret() -> None:
    """The classic confusion: HS256 with the text of the RSA key."""
    keys = parse_key_set(key_set(jwk(RS256)))
    public = private_key(RS256).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, payload = (jwt.utils.base64url_encode(json.dumps(each).encode()) for each in ({"alg": "HS256", "kid": "a"}, CLAIMS))
    signature = jwt.utils.base64url_encode(hmac.digest(public, header + b"." + payload, "sha256"))

    assert "algorithm" in refusal(b".".join((header, payload, signature)).decode(), keys=keys)


def test_a_key_is_not_used_for_the_algorithm_of_another_type() -> None:
    """The header names the RSA key by its id and the algorithm of the other."""
    keys = parse_key_set(key_set(jwk(RS256, "rsa"), jwk(ES256, "ec")))

    assert "not one key" in refusal(token(CLAIMS, ES256, "ec", headers={"kid": "rsa"}), keys=keys)


def test_another_key_s_signature_is_refused() -> None:
    assert "InvalidSignatureError" in refusal(token(CLAIMS, key=private_key(ES256, "stranger")))


def test_a_changed_payload_is_refused() -> None:
    header, _, signature = token(CLAIMS).split(".")
    payload = base64.urlsafe_b64encode(json.dumps(claims(sub="admin")).encode()).rstrip(b"=").decode()

    assert "InvalidSignatureError" in refusal(f"{header}.{payload}.{signature}")


def test_an_unknown_key_id_is_refused_and_told() -> None:
    checked = Checked()

    for name in ("unknown-1", "unknown-2"):
        with pytest.raises(TokenError, match="no key has"):
            checked.validator.validate(token(CLAIMS, headers={"kid": name}))

    assert checked.unknown_count == 2


@pytest.mark.parametrize("key_id", ["k" * 1001, 7, ["a"], {"a": 1}])
def test_a_key_id_that_is_none_is_refused_and_not_told(key_id: Any) -> None:
    checked = Checked()

    with pytest.raises(TokenError):
        checked.validator.validate(raw_token({"alg": ES256, "kid": key_id}, json.dumps(CLAIMS).encode()))

    assert checked.unknown_count == 0


def test_without_a_key_id_one_key_alone_has_to_fit() -> None:
    one = parse_key_set(key_set(jwk(ES256), jwk(RS256, "b")))
    two = parse_key_set(key_set(jwk(ES256), jwk(ES256, "b")))

    assert validate(token(CLAIMS, headers={}), keys=one).principal_name == "alice"
    assert "not one key" in refusal(token(CLAIMS, headers={}), keys=two)
    assert validate(token(CLAIMS), keys=two).principal_name == "alice"


@pytest.mark.parametrize("extra", [{"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"b64": True}])
def test_a_header_with_an_extension_is_refused(extra: dict[str, Any]) -> None:
    refusal(raw_token({"alg": ES256, "kid": "a", **extra}, json.dumps(CLAIMS).encode()))


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a", "a.b", "a.b.c", "a.b.c.d", "e30.e30.e30", "!!.e30.e30", "W10.e30.e30", "bnVsbA.e30.AA", "e30.e30.e30=", "ä.b.c"],
)
def test_what_is_no_token(text: str) -> None:
    refusal(text)


def test_a_huge_token_and_a_deep_one_are_refused() -> None:
    assert "more than" in refusal("a" * 70_000)
    deep = base64.urlsafe_b64encode(b"[" * 30_000).rstrip(b"=").decode()
    refusal(f"{deep}.e30.AA")
    refusal(raw_token({"alg": ES256, "kid": "a"}, b'{"exp":' + b"[" * 30_000))


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b"1", b"{", b'{"sub":"alice","sub":"admin","iat":1,"exp":9999999999}', b"\xff"])
def test_claims_that_are_none(payload: bytes) -> None:
    refusal(raw_token({"alg": ES256, "kid": "a"}, payload))


@pytest.mark.parametrize("name", ["exp", "iat"])
@pytest.mark.parametrize("value", [None, "1900000000", True, [], -1, 1e300])
def test_both_times_are_required_and_numbers(name: str, value: Any) -> None:
    assert name in refusal(token(claims(**{name: value})))


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity", b"1" + b"0" * 400])
def test_no_time_is_no_number(text: bytes) -> None:
    payload = b'{"sub":"alice","iat":1,"exp":' + text + b"}"

    assert "exp" in refusal(raw_token({"alg": ES256, "kid": "a"}, payload))


def test_a_token_ends_when_its_time_and_the_skew_are_over() -> None:
    rules = JwtRules(clock_skew_seconds=30)

    assert validate(token(claims(exp=NOW_S - 29, iat=NOW_S - 60)), rules).end_ms == (NOW_S - 29) * 1000
    assert "expired" in refusal(token(claims(exp=NOW_S - 30, iat=NOW_S - 60)), rules)
    assert "expired" in refusal(token(claims(exp=NOW_S, iat=NOW_S - 60)), JwtRules(clock_skew_seconds=0))
    assert validate(token(claims(exp=NOW_S + 600.9))).end_ms == (NOW_S + 600) * 1000


def test_a_token_begins_with_nbf() -> None:
    rules = JwtRules(clock_skew_seconds=30)

    assert validate(token(claims(nbf=NOW_S + 30)), rules)
    assert "not come" in refusal(token(claims(nbf=NOW_S + 31)), rules)
    assert "before it begins" in refusal(token(claims(exp=NOW_S + 5, nbf=NOW_S + 20)), rules)
    assert "nbf" in refusal(token(claims(nbf=None) | {"nbf": "soon"}))


def test_a_token_may_be_issued_in_the_future_but_not_after_its_end() -> None:
    assert validate(token(claims(iat=NOW_S + 300)))
    assert "before it was issued" in refusal(token(claims(iat=NOW_S + 601)))


@pytest.mark.parametrize("audience", ["kafka", ["kafka"], ["other", "kafka"]])
def test_an_expected_audience_has_to_be_there(audience: Any) -> None:
    rules = JwtRules(expected_audiences=("kafka", "brokers"))

    assert validate(token(claims(aud=audience)), rules)


@pytest.mark.parametrize("audience", ["kafka2", "", ["other"], [], None, 7, ["kafka", 7], {"kafka": 1}])
def test_another_audience_is_refused(audience: Any) -> None:
    assert "aud" in refusal(token(claims(aud=audience)), JwtRules(expected_audiences=("kafka",)))


@pytest.mark.parametrize("audience", ["kafka", ["kafka"], [], ""])
def test_without_an_expected_audience_a_token_for_one_is_refused(audience: Any) -> None:
    assert "audience" in refusal(token(claims(aud=audience)))


def test_an_expected_issuer_has_to_be_there() -> None:
    rules = JwtRules(expected_issuer="https://idp")

    assert validate(token(claims(iss="https://idp")), rules)
    for issuer in (None, "https://idp/", "https://other", ["https://idp"]):
        with pytest.raises((TokenError, TypeError), match="iss"):
            validate(token(claims(iss=issuer)) if not isinstance(issuer, list) else raw_claims(iss=issuer), rules)
    assert validate(token(claims(iss="anybody")))


def raw_claims(**changes: Any) -> str:
    return raw_token({"alg": ES256, "kid": "a"}, json.dumps(claims(**changes)).encode())


@pytest.mark.parametrize("value", [None, "", "  ", 7, ["alice"], {"name": "alice"}])
def test_the_claim_of_the_principal_is_text(value: Any) -> None:
    refusal(raw_claims(sub=value))
    assert "email" in refusal(raw_claims(email=value), JwtRules(sub_claim_name="email"))


def test_the_principal_may_be_in_another_claim_and_is_trimmed() -> None:
    assert validate(token(claims(email=" a@b \n")), JwtRules(sub_claim_name="email")).principal_name == "a@b"


@pytest.mark.parametrize("scope", [None, "one two", ["one", "two"], [], 7, {"a": 1}])
def test_scopes_that_are_taken(scope: Any) -> None:
    assert validate(raw_claims(scope=scope))


@pytest.mark.parametrize("scope", ["", "  ", ["one", "one"], ["one", " one "], ["one", ""], ["one", None], [7]])
def test_scopes_that_are_refused(scope: Any) -> None:
    assert "scope" in refusal(raw_claims(scope=scope))


def test_no_reason_shows_a_part_of_the_token() -> None:
    for text in (token(claims(sub=None, secret="hush")), token(claims(iss="hush")), token(CLAIMS, headers={"kid": "hush"})):
        assert "hush" not in refusal(text, JwtRules(expected_issuer="https://idp"))


def test_no_mutation_of_a_token_gets_in_or_raises_anything_else() -> None:
    rng = random.Random(5)
    good = token(claims(aud="kafka"))
    checked = Checked(JwtRules(expected_audiences=("kafka",)))
    letters = "abcXYZ019-_.=\x00ä"

    for _ in range(2000):
        text = list(good)
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.choice(letters)
        mutated = "".join(text)[: rng.randrange(len(text) // 2, len(text) + 1)]
        if mutated != good:
            with pytest.raises(TokenError):
                checked.validator.validate(mutated)
