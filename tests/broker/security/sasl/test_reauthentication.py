"""How long a session lasts, and how a client logs in again (KIP-368): steps of a SaslConversation, as in test_conversation.py."""

from __future__ import annotations

import pytest

from broker.security.sasl.actions import (
    AnswerAuthenticate,
    AnswerHandshake,
    AnswerOther,
    Authenticated,
)
from broker.security.sasl.events import (
    AuthenticateRequested,
    OtherRequested,
    TokenReceived,
)
from protocol.errors import ErrorCode
from protocol.sasl.exchange import Identity
from tests.broker.security.sasl.logins import (
    ALICE,
    BOB,
    NAMES,
    PLAIN_0,
    PLAIN_1,
    SCRAM_1,
    START,
    after,
    closed,
    feed,
    log_in_by_token,
    logged_in,
    make_conversation,
)


def test_session_ends_after_max_reauth_ms() -> None:
    conversation = make_conversation(max_reauth_ms=60_000)

    answer, authenticated = feed(conversation, PLAIN_1, AuthenticateRequested(1, ALICE))[1:]

    assert answer == AnswerAuthenticate(ErrorCode.NONE, None, b"", 60_000)
    assert authenticated == Authenticated(Identity("alice"), "PLAIN", START.monotonic_ms + 60_000, True)
    assert not conversation.is_session_expired(after(59_999))
    assert conversation.is_session_expired(after(60_000))


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(0, 600_000), (60_000, 60_000), (3_600_000, 600_000)])
def test_session_ends_with_the_earlier_of_credential_and_limit(max_reauth_ms: int, lifetime_ms: int) -> None:
    """Also with the credential's end alone, where connections.max.reauth.ms is 0."""
    answer, authenticated = log_in_by_token(make_conversation(max_reauth_ms), START)

    assert isinstance(answer, AnswerAuthenticate)
    assert answer.session_lifetime_ms == lifetime_ms
    assert isinstance(authenticated, Authenticated)
    assert authenticated.session_end_ms == START.monotonic_ms + lifetime_ms
    assert authenticated.identity.is_token_authenticated


def test_credential_that_has_ended_makes_a_session_that_has_ended() -> None:
    conversation = make_conversation()

    answer, _ = log_in_by_token(conversation, after(600_001))

    assert isinstance(answer, AnswerAuthenticate)
    assert answer.session_lifetime_ms == 0
    assert conversation.is_session_expired(after(600_001))


def test_session_ends_for_a_client_that_cannot_log_in_again() -> None:
    """KAFKA-9241, and CVE-2023-31007 of Pulsar: with SaslHandshake 0 nobody is told of a lifetime, and it ends all the same."""
    conversation = make_conversation(max_reauth_ms=60_000)
    feed(conversation, PLAIN_0, TokenReceived(ALICE))
    assert conversation.is_complete

    assert conversation.is_session_expired(after(60_000))
    assert "expired" in closed(feed(conversation, AuthenticateRequested(0, ALICE), now=after(60_000))).reason


def test_client_logs_in_again_before_the_session_ends() -> None:
    conversation = logged_in(max_reauth_ms=60_000)

    assert feed(conversation, PLAIN_1, now=after(50_000)) == [AnswerHandshake(ErrorCode.NONE, NAMES)]
    assert not conversation.is_complete
    authenticated = feed(conversation, AuthenticateRequested(2, ALICE), now=after(50_100))[-1]

    assert isinstance(authenticated, Authenticated)
    assert authenticated.session_end_ms == START.monotonic_ms + 110_100
    assert not conversation.is_session_expired(after(110_099))


def test_client_may_log_in_again_after_the_session_s_end() -> None:
    """Only what is not a SaslHandshake closes."""
    conversation = logged_in(max_reauth_ms=60_000)

    assert feed(conversation, PLAIN_1, now=after(70_000)) == [AnswerHandshake(ErrorCode.NONE, NAMES)]


def test_another_principal_at_the_second_login_is_refused() -> None:
    conversation = logged_in(max_reauth_ms=60_000)
    feed(conversation, PLAIN_1, now=after(50_000))

    close = closed(feed(conversation, AuthenticateRequested(2, BOB), now=after(50_000)))

    message = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert close.answer == AnswerAuthenticate(ErrorCode.SASL_AUTHENTICATION_FAILED, message, b"", 0)
    assert not conversation.is_complete


def test_another_mechanism_at_the_second_login_is_closed_with_the_next_frame() -> None:
    conversation = logged_in(max_reauth_ms=60_000)

    assert feed(conversation, SCRAM_1, now=after(50_000)) == [AnswerHandshake(ErrorCode.NONE, NAMES)]
    close = closed(feed(conversation, AuthenticateRequested(2, b"n,,n=alice,r=abc"), now=after(50_000)))

    assert close.answer is None
    assert close.is_delayed
    assert close.reason == "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'"


def test_failed_second_login_is_told_so() -> None:
    conversation = make_conversation(max_reauth_ms=60_000)
    log_in_by_token(conversation, START)
    feed(conversation, SCRAM_1, now=after(2_000))

    close = closed(feed(conversation, AuthenticateRequested(2, b"junk"), now=after(2_000)))

    assert isinstance(close.answer, AnswerAuthenticate)
    assert close.answer.error_message is not None
    assert close.answer.error_message.startswith("Authentication failed during re-authentication due to invalid credentials")


def test_second_login_within_a_second_of_the_last_is_answered_with_an_error() -> None:
    conversation = logged_in(max_reauth_ms=60_000)
    feed(conversation, PLAIN_1, AuthenticateRequested(2, ALICE), now=after(10_000))

    assert feed(conversation, PLAIN_1, now=after(10_999)) == [AnswerHandshake(ErrorCode.ILLEGAL_SASL_STATE, ())]
    assert feed(conversation, PLAIN_1, now=after(11_000)) == [AnswerHandshake(ErrorCode.NONE, NAMES)]


def test_session_without_an_end_is_not_begun_again() -> None:
    conversation = logged_in()

    assert feed(conversation, PLAIN_1, now=after(50_000)) == [AnswerHandshake(ErrorCode.ILLEGAL_SASL_STATE, ())]
    assert conversation.is_complete
    assert not conversation.is_session_expired(after(10**9))


def test_authenticate_without_a_handshake_after_login_is_answered_with_an_error() -> None:
    conversation = logged_in(max_reauth_ms=60_000)

    message = "SaslAuthenticate request received after successful authentication"
    assert feed(conversation, AuthenticateRequested(2, ALICE)) == [AnswerAuthenticate(ErrorCode.ILLEGAL_SASL_STATE, message, b"", 0)]
    assert closed(feed(conversation, AuthenticateRequested(2, ALICE), now=after(60_000))).reason == "the session has expired"


def test_other_api_during_the_second_login_is_refused() -> None:
    conversation = logged_in(max_reauth_ms=60_000)
    feed(conversation, PLAIN_1, now=after(50_000))

    assert closed(feed(conversation, OtherRequested("PRODUCE"), now=after(50_000))).answer == AnswerOther(ErrorCode.ILLEGAL_SASL_STATE)
