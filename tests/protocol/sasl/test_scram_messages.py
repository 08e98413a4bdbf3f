"""The SCRAM messages that are taken and refused."""

from __future__ import annotations

import time

import pytest

from protocol.sasl import scram_messages
from protocol.sasl.exchange import SaslError


def test_first_message_of_the_client_is_read() -> None:
    first = scram_messages.parse_client_first(b"n,a=al=2Cice,n=al=2Cice,r=abc,tokenauth=TRUE,other=1")

    assert first.header == "n,a=al=2Cice,"
    assert first.bare == "n=al=2Cice,r=abc,tokenauth=TRUE,other=1"
    assert (first.username, first.authorization_id, first.nonce) == ("al,ice", "al,ice", "abc")
    assert first.is_token_authentication


@pytest.mark.parametrize("extension", ["", ",tokenauth=false", ",tokenauth=yes", ",other=true"])
def test_only_tokenauth_true_asks_for_a_token(extension: str) -> None:
    assert not scram_messages.parse_client_first(f"n,,n=a,r=b{extension}".encode()).is_token_authentication


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=user,r=abc",  # the client thinks that the server has no channel binding
        b"p=tls-unique,,n=user,r=abc",
        b"p=tls-exporter,,n=user,r=abc",
        b"n,,m=mandatory,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=2Der,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=abc,1=x",
        b"n,,n=user,r=abc,x=",
        b"n,,n=user,r=abc\n",
        b"n,,n=user,r=a b",
        b"n,,n=us\xc3\xa9r,r=abc",
        b"n,,n=us\x00er,r=abc",
        b"n=user,r=abc",
        b"\xff\xfe",
    ],
)
def test_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError, match="Invalid SCRAM client first message format"):
        scram_messages.parse_client_first(message)


@pytest.mark.parametrize(
    "message", [b"c=biws,r=abc", b"c=biws,r=abc,p=a", b"c=biw,r=abc,p=AAAA", b"c=biws,p=AAAA", b"r=abc,p=AAAA", b"c=biws,r=abc,p=AAAA,x=1"]
)
def test_final_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError, match="Invalid SCRAM client final message format"):
        scram_messages.parse_client_final(message)


def test_error_does_not_repeat_the_message() -> None:
    with pytest.raises(SaslError) as caught:
        scram_messages.parse_client_first(b"n,,n=password-by-mistake")

    assert "password" not in str(caught.value)


def test_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(SaslError, match="too long"):
        scram_messages.parse_client_first(b"n,,n=" + b"a" * scram_messages.MESSAGE_SIZE_MAX + b",r=abc")


@pytest.mark.parametrize("filling", [b"=2C", b"a", b"=3D=2C", b",x=y", b","])
def test_longest_message_takes_little_time(filling: bytes) -> None:
    message = (b"n,,n=a" + filling * scram_messages.MESSAGE_SIZE_MAX)[: scram_messages.MESSAGE_SIZE_MAX]

    start = time.process_time()
    with pytest.raises(SaslError):
        scram_messages.parse_client_first(message)

    assert time.process_time() - start < 1  # a pattern that tries all ways would take years


def test_server_first_message_is_read() -> None:
    first = scram_messages.parse_server_first(b"r=abcdef,s=AAEC,i=4096,x=1")

    assert (first.nonce, first.salt, first.iterations) == ("abcdef", b"\0\1\2", 4096)


@pytest.mark.parametrize(
    "message", [b"r=abc,s=AAEC", b"r=abc,s=AAEC,i=", b"r=abc,s=AAEC,i=-1", b"r=abc,s=AAEC,i=99999999999", b"s=AAEC,i=1", b"e=no"]
)
def test_server_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        scram_messages.parse_server_first(message)


def test_error_of_the_server_is_told() -> None:
    with pytest.raises(SaslError, match="other-error"):
        scram_messages.parse_server_final(b"e=other-error")
