"""The connecting side of OAUTHBEARER, against the broker's."""

from __future__ import annotations

import pytest

from broker.security.sasl.oauthbearer import OAuthBearerServer, TokenError, ValidToken, parse_initial_response
from protocol.sasl.exchange import SaslError, SaslPropertyError
from protocol.sasl.oauthbearer_client import OAuthBearerClient, check_extensions


def test_a_token_that_is_taken_completes_both_sides() -> None:
    server = OAuthBearerServer(lambda text: ValidToken(text.upper(), 5), lambda reason: None)
    client = OAuthBearerClient(lambda: "a.b.c", {"traceId": "7"})

    first = client.evaluate(b"")
    assert first == b"n,,\x01auth=Bearer a.b.c\x01traceId=7\x01\x01", "Kafka's client sends so (OAuthBearerClientInitialResponse.toBytes)"
    assert parse_initial_response(first).token == "a.b.c"
    last = client.evaluate(server.evaluate(first))

    assert (last, client.is_complete) == (None, True)
    assert server.identity is not None and server.identity.name == "A.B.C"


def test_a_token_that_is_refused_ends_as_rfc_7628_says() -> None:
    def refuse(text: str) -> ValidToken:
        raise TokenError("not that one")

    server, client = OAuthBearerServer(refuse, lambda reason: None), OAuthBearerClient(lambda: "a.b.c")
    first = client.evaluate(b"")
    assert first is not None

    answer = client.evaluate(server.evaluate(first))

    assert (answer, client.is_complete) == (b"\x01", False)
    with pytest.raises(SaslError, match="was refused"):
        client.evaluate(b"")


def test_without_a_token_nothing_is_sent() -> None:
    def find() -> str:
        raise SaslError("there is no token: the provider is away")

    with pytest.raises(SaslError, match="the provider is away"):
        OAuthBearerClient(find).evaluate(b"")
    for text in ("", "a\x01b", "Bearer a", "é"):
        with pytest.raises(SaslError, match="no bearer token"):
            OAuthBearerClient(lambda text=text: text).evaluate(b"")  # type: ignore[misc]


@pytest.mark.parametrize(("name", "value"), [("auth", "a"), ("a1", "a"), ("", "a"), ("a", ""), ("a", "\x01")])
def test_extensions_that_would_be_another_message_are_refused(name: str, value: str) -> None:
    check_extensions({"fine": "too"}, "the key")

    with pytest.raises(SaslPropertyError, match=r"^the key: "):
        check_extensions({name: value}, "the key")
