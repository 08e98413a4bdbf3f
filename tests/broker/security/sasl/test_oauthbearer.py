"""OAUTHBEARER's exchange: the cases of OAuthBearerSaslServerTest and OAuthBearerClientInitialResponseTest."""

from __future__ import annotations

import pytest

from broker.security.sasl.oauthbearer import INVALID_TOKEN, OAuthBearerServer, TokenError, ValidToken, parse_initial_response
from protocol.sasl.exchange import Identity, SaslAuthenticationError, SaslError

TOKEN = ValidToken("alice", 5000)


class Validator:
    """Takes one token, and keeps the reasons of refusals."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def validate(self, token: str) -> ValidToken:
        if token != "good":
            raise TokenError("the token has expired")
        return TOKEN

    def start(self) -> OAuthBearerServer:
        return OAuthBearerServer(self.validate, self.reasons.append)


def initial(token: str = "good", authorization_id: str = "", *extensions: str) -> bytes:
    name = f"a={authorization_id}" if authorization_id else ""
    return "\x01".join((f"n,{name},", f"auth=Bearer {token}", *extensions, "", "")).encode()


@pytest.mark.parametrize("extensions", [(), ("traceId=123", "logicalCluster=lkc-1 x")])
@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_a_token_that_is_taken_logs_its_principal_in_until_it_ends(authorization_id: str, extensions: tuple[str, ...]) -> None:
    server = Validator().start()

    assert server.identity is None
    assert server.evaluate(initial("good", authorization_id, *extensions)) == b""
    assert server.identity == Identity("alice", credential_end_ms=5000)


def test_another_authorization_id_is_refused() -> None:
    server = Validator().start()

    with pytest.raises(SaslAuthenticationError, match="different from the token's principal name"):
        server.evaluate(initial("good", "bob"))

    assert server.identity is None


def test_a_refusal_has_two_steps_and_its_reason_is_for_the_log_alone() -> None:
    validator = Validator()
    server = validator.start()

    assert server.evaluate(initial("bad")) == b'{"status":"invalid_token"}'
    assert server.identity is None
    with pytest.raises(SaslAuthenticationError) as refused:
        server.evaluate(b"\x01")

    assert str(refused.value) == INVALID_TOKEN
    assert validator.reasons == ["the token has expired"]


@pytest.mark.parametrize("second", [initial(), b"", b"\x01\x01"])
def test_there_is_no_second_try_after_a_refusal(second: bytes) -> None:
    server = Validator().start()
    server.evaluate(initial("bad"))

    with pytest.raises(SaslError):
        server.evaluate(second)
    with pytest.raises(SaslError):
        server.evaluate(initial())

    assert server.identity is None


def test_the_byte_1_means_nothing_without_a_refusal() -> None:
    with pytest.raises(SaslError):
        Validator().start().evaluate(b"\x01")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",  # no auth
        b"n,,\x01auth=Bearer good\x01",  # not ended
        b"n,,\x01auth=Bearer good\x01\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good!\x01\x01",
        b"n,,\x01auth=Bearer good\x01key1=value\x01\x01",  # a digit in a name
        b"n,,\x01auth=Bearer good\x01key=\x01\x01",
        b"n,,\x01auth=Bearer good\x01=value\x01\x01",
        b"n,,\x01auth=Bearer good\x01key=\x7f\x01\x01",
        "n,a=ä,\x01auth=Bearer good\x01\x01".encode(),
        b"\xff\xff",
    ],
)
def test_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(SaslError):
        parse_initial_response(message)


@pytest.mark.parametrize(
    ("message", "token", "name"),
    [
        (b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer vF9d\x01\x01", "vF9d", "user@example.com"),
        (b"n,,\x01auth=bEARER   a-_~+/.9==\x01\x01", "a-_~+/.9==", ""),
        (b"n,a=a=2Cb,\x01auth=Bearer x\x01other=a=b\tc\x01\x01", "x", "a=2Cb"),
        (b"n,,\x01auth=Bearer first\x01auth=Bearer last\x01\x01", "last", ""),
    ],
)
def test_messages_as_kafka_reads_them(message: bytes, token: str, name: str) -> None:
    assert parse_initial_response(message) == (token, name)
