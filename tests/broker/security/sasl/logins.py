"""A SASL listener with PLAIN and SCRAM, and what its clients send."""

from __future__ import annotations

from broker.security.sasl.actions import (
    Action,
    AnswerAuthenticate,
    Close,
)
from broker.security.sasl.conversation import Mechanism, SaslConversation
from broker.security.sasl.events import (
    ApiVersionsRequested,
    AuthenticateRequested,
    Event,
    HandshakeRequested,
    Now,
)
from broker.security.sasl.plain_server import PlainServer
from broker.security.sasl.scram_server import ScramServer, TokenCredential
from protocol.errors import ErrorCode
from protocol.sasl.scram import ScramCredential, ScramMechanism, credential_of, salted_password
from protocol.sasl.scram_client import ScramClient

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
START = Now(wall_ms=1_700_000_000_000, monotonic_ms=50_000)
TOKEN_END_MS = START.wall_ms + 600_000

ALICE = b"\0alice\0alice-secret"
BOB = b"\0bob\0bob-secret"
WRONG = b"\0alice\0wrong"
VERSIONS = ApiVersionsRequested(ErrorCode.NONE)
PLAIN_1, PLAIN_0 = HandshakeRequested(1, "PLAIN"), HandshakeRequested(0, "PLAIN")
SCRAM_1 = HandshakeRequested(1, "SCRAM-SHA-256")
NAMES = ("PLAIN", "SCRAM-SHA-256")


class Tokens:
    """One delegation token, no users."""

    def find_user(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None:
        return None

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        salted = salted_password(mechanism, "hmac", b"salt", 4096)
        return TokenCredential("alice", credential_of(mechanism, salted, b"salt", 4096), TOKEN_END_MS) if token_id == "token" else None


def make_conversation(max_reauth_ms: int = 0) -> SaslConversation:
    mechanisms = {
        "PLAIN": Mechanism(lambda: PlainServer(USERS), max_reauth_ms),
        "SCRAM-SHA-256": Mechanism(lambda: ScramServer(ScramMechanism.SCRAM_SHA_256, Tokens(), "server", b"secret"), max_reauth_ms),
    }
    return SaslConversation(mechanisms, 524_288)


def feed(conversation: SaslConversation, *events: Event, now: Now = START) -> list[Action]:
    return [action for event in events for action in conversation.handle(event, now)]


def after(milliseconds: int) -> Now:
    return Now(START.wall_ms + milliseconds, START.monotonic_ms + milliseconds)


def logged_in(max_reauth_ms: int = 0) -> SaslConversation:
    conversation = make_conversation(max_reauth_ms)
    feed(conversation, PLAIN_1, AuthenticateRequested(2, ALICE))
    assert conversation.is_complete
    return conversation


def closed(actions: list[Action]) -> Close:
    """The end of what was asked for; nothing else was."""
    (close,) = actions
    assert isinstance(close, Close)
    return close


def log_in_by_token(conversation: SaslConversation, now: Now) -> list[Action]:
    client = ScramClient(ScramMechanism.SCRAM_SHA_256, "token", "hmac", "nonce", is_token=True)
    (challenge,) = feed(conversation, SCRAM_1, AuthenticateRequested(2, client.evaluate(b"") or b""), now=now)[1:]
    assert isinstance(challenge, AnswerAuthenticate)
    return feed(conversation, AuthenticateRequested(2, client.evaluate(challenge.token) or b""), now=now)
