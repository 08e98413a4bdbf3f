"""How a client logs in, step by step: each test gives a SaslConversation what the connection decoded, and checks what it asks for.

The cases are those of Kafka's SaslServerAuthenticatorTest and SaslAuthenticatorTest that need no socket.
"""

from __future__ import annotations

import pytest

from broker.security.sasl.actions import (
    AnswerApiVersions,
    AnswerAuthenticate,
    AnswerHandshake,
    AnswerOther,
    Authenticated,
    SendToken,
)
from broker.security.sasl.conversation import NOT_A_CLIENT, Expected
from broker.security.sasl.events import (
    ApiVersionsRequested,
    AuthenticateRequested,
    Event,
    FrameTooLarge,
    HandshakeRequested,
    OtherRequested,
    TokenReceived,
    Unreadable,
)
from protocol.errors import ErrorCode
from protocol.sasl.exchange import Identity
from protocol.sasl.scram import ScramMechanism
from protocol.sasl.scram_client import ScramClient
from tests.broker.security.sasl.logins import (
    ALICE,
    NAMES,
    PLAIN_0,
    PLAIN_1,
    SCRAM_1,
    VERSIONS,
    WRONG,
    closed,
    feed,
    make_conversation,
)


def test_plain_with_requests_of_authentication() -> None:
    conversation = make_conversation()
    assert conversation.expects is Expected.REQUEST

    assert feed(conversation, VERSIONS) == [AnswerApiVersions(ErrorCode.NONE)]
    assert feed(conversation, PLAIN_1) == [AnswerHandshake(ErrorCode.NONE, NAMES)]
    assert conversation.expects is Expected.REQUEST
    assert not conversation.is_complete
    assert feed(conversation, AuthenticateRequested(2, ALICE)) == [
        AnswerAuthenticate(ErrorCode.NONE, None, b"", 0),
        Authenticated(Identity("alice"), "PLAIN", None, True),
    ]
    assert conversation.is_complete


def test_handshake_of_version_0_makes_the_tokens_bare() -> None:
    conversation = make_conversation()

    assert feed(conversation, PLAIN_0) == [AnswerHandshake(ErrorCode.NONE, NAMES)]
    assert conversation.expects is Expected.TOKEN
    assert feed(conversation, TokenReceived(ALICE)) == [SendToken(b""), Authenticated(Identity("alice"), "PLAIN", None, False)]
    assert conversation.expects is Expected.REQUEST


def test_authenticate_of_version_0_cannot_log_in_again() -> None:
    conversation = make_conversation()

    assert feed(conversation, PLAIN_1, AuthenticateRequested(0, ALICE))[-1] == Authenticated(Identity("alice"), "PLAIN", None, False)


def test_wrong_password_is_answered_late_and_closed() -> None:
    conversation = make_conversation()
    feed(conversation, PLAIN_1)

    close = closed(feed(conversation, AuthenticateRequested(2, WRONG)))

    message = "Authentication failed: Invalid username or password"
    assert close.answer == AnswerAuthenticate(ErrorCode.SASL_AUTHENTICATION_FAILED, message, b"", 0)
    assert close.is_delayed
    assert conversation.expects is Expected.NOTHING
    assert feed(conversation, AuthenticateRequested(2, ALICE), PLAIN_1, VERSIONS) == []
    assert not conversation.is_complete


def test_wrong_bare_token_is_closed_without_an_answer() -> None:
    conversation = make_conversation()
    feed(conversation, PLAIN_0)

    close = closed(feed(conversation, TokenReceived(WRONG)))

    assert close.answer is None
    assert close.is_delayed


def test_client_is_not_told_why_scram_failed() -> None:
    conversation = make_conversation()
    client = ScramClient(ScramMechanism.SCRAM_SHA_256, "eve", "secret", "nonce")
    feed(conversation, SCRAM_1)
    (challenge,) = feed(conversation, AuthenticateRequested(2, client.evaluate(b"") or b""))
    assert isinstance(challenge, AnswerAuthenticate)
    assert challenge.error is ErrorCode.NONE

    close = closed(feed(conversation, AuthenticateRequested(2, client.evaluate(challenge.token) or b"")))

    assert isinstance(close.answer, AnswerAuthenticate)
    assert close.answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert "the user has none" in close.reason  # the log says more


def test_unsupported_mechanism_is_answered_with_the_enabled_ones() -> None:
    conversation = make_conversation()

    close = closed(feed(conversation, HandshakeRequested(1, "GSSAPI")))

    assert close.answer == AnswerHandshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, NAMES)
    assert close.is_delayed
    assert close.reason == "Unsupported SASL mechanism 'GSSAPI' requested by client"


def test_mechanism_s_name_is_one_short_line_in_the_log() -> None:
    close = closed(feed(make_conversation(), HandshakeRequested(1, "X\nINFO all is well" * 1000)))

    assert "\n" not in close.reason
    assert len(close.reason) < 200


def test_second_api_versions_closes_at_once() -> None:
    conversation = make_conversation()
    feed(conversation, VERSIONS)

    close = closed(feed(conversation, VERSIONS))

    assert close.answer is None
    assert not close.is_delayed


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST])
def test_api_versions_that_failed_may_be_tried_again(error: ErrorCode) -> None:
    """A newer client asks with its version first, and then with one that the error named (KIP-511)."""
    conversation = make_conversation()

    assert feed(conversation, ApiVersionsRequested(error), VERSIONS) == [AnswerApiVersions(error), AnswerApiVersions(ErrorCode.NONE)]


@pytest.mark.parametrize("request_before", [OtherRequested("METADATA"), AuthenticateRequested(2, ALICE), Unreadable("unknown api key 999")])
@pytest.mark.parametrize("has_versions", [False, True])
def test_other_request_before_the_handshake_closes_at_once(request_before: Event, has_versions: bool) -> None:
    conversation = make_conversation()
    if has_versions:
        feed(conversation, VERSIONS)

    close = closed(feed(conversation, request_before))

    assert close.answer is None
    assert not close.is_delayed
    assert (NOT_A_CLIENT in close.reason) is not has_versions


@pytest.mark.parametrize("event", [OtherRequested("METADATA"), VERSIONS, PLAIN_1])
def test_other_request_after_the_handshake_is_answered_and_closed(event: Event) -> None:
    conversation = make_conversation()
    feed(conversation, PLAIN_1)

    close = closed(feed(conversation, event))

    assert close.answer == AnswerOther(ErrorCode.ILLEGAL_SASL_STATE)
    assert close.is_delayed


def test_unreadable_request_after_the_handshake_closes_at_once() -> None:
    """There is no answer in a version that is not there."""
    conversation = make_conversation()
    feed(conversation, PLAIN_1)

    assert closed(feed(conversation, Unreadable("SaslAuthenticate has no version 99"))).answer is None


@pytest.mark.parametrize("events", [(), (VERSIONS,), (PLAIN_1,), (PLAIN_0,)])
def test_frame_that_is_too_large_closes(events: tuple[Event, ...]) -> None:
    conversation = make_conversation()
    feed(conversation, *events)

    close = closed(feed(conversation, FrameTooLarge(524_289)))

    assert "524289 bytes" in close.reason
    assert close.answer is None
