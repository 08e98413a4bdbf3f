"""PLAIN: the cases of Kafka's PlainSaslServerTest, and the client."""

from __future__ import annotations

import pytest

from broker.security.sasl.plain_server import PlainServer
from protocol.sasl.exchange import Identity, SaslAuthenticationError, SaslError
from protocol.sasl.plain import PlainClient

USERS = {"userA": "passwordA", "userB": "passwordB", "empty": ""}


def make_token(authorization_id: str, username: str, password: str) -> bytes:
    return "\0".join((authorization_id, username, password)).encode()


@pytest.mark.parametrize("authorization_id", ["", "userA"])
def test_right_password_logs_in(authorization_id: str) -> None:
    server = PlainServer(USERS)

    assert server.evaluate(make_token(authorization_id, "userA", "passwordA")) == b""
    assert server.identity == Identity("userA")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (make_token("", "", ""), "Authentication failed: username not specified"),
        (make_token("", "", "p"), "Authentication failed: username not specified"),
        (make_token("a", "", "p"), "Authentication failed: username not specified"),
        (make_token("", "u", ""), "Authentication failed: password not specified"),
        (make_token("a", "u", ""), "Authentication failed: password not specified"),
        (make_token("", "empty", ""), "Authentication failed: password not specified"),
        (make_token("", "userA", "passwordB"), "Authentication failed: Invalid username or password"),
        (make_token("", "nobody", "passwordA"), "Authentication failed: Invalid username or password"),
        (make_token("userB", "userA", "wrong"), "Authentication failed: Invalid username or password"),
        (make_token("", "empty", "x"), "Authentication failed: Invalid username or password"),
        (
            make_token("userB", "userA", "passwordA"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"a\0u\0p\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"a\0u\0p\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0u", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0userA\0\xff", "Invalid SASL/PLAIN response: not UTF-8"),
    ],
)
def test_client_is_told_why_it_is_refused(token: bytes, message: str) -> None:
    """CVE-2017-12610: nobody logs in as somebody else by an authorization id."""
    server = PlainServer(USERS)

    with pytest.raises(SaslAuthenticationError) as caught:
        server.evaluate(token)

    assert str(caught.value) == message
    assert server.identity is None


def test_client_sends_one_token_and_is_complete_with_the_answer() -> None:
    client, server = PlainClient("grüße", "pass\u00df"), PlainServer({"grüße": "pass\u00df"})

    token = client.evaluate(b"")
    assert token is not None
    assert not client.is_complete

    assert client.evaluate(server.evaluate(token)) is None
    assert client.is_complete
    assert server.identity == Identity("grüße")


def test_client_takes_no_challenge() -> None:
    client = PlainClient("userA", "passwordA")

    with pytest.raises(SaslError):
        client.evaluate(b"give me more")
