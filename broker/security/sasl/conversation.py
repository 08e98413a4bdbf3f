"""SaslConversation: how a client logs in on a SASL listener, and logs in again (KIP-43, KIP-152, KIP-368).

    INITIAL_REQUEST -> HANDSHAKE_OR_VERSIONS -> HANDSHAKE -> AUTHENTICATE -> COMPLETE -> AUTHENTICATE (again) -> COMPLETE
                                                                                      -> BAD_MECHANISM
    any state -> FAILED

It is given what the connection decoded and says what to do: events in, actions out, all plain data. `expects` says how the next frame is to
be decoded. Until `is_complete`, no frame may be longer than `max_receive_size` (sasl.server.max.receive.size), and the connection reads one
frame at a time: a SaslHandshake of a client that logs in again waits until all requests before it are answered.

Source: SaslServerAuthenticator; KafkaChannel.maybeBeginServerReauthentication; KafkaApis.handleSaslHandshakeRequest and
handleSaslAuthenticateRequest for a SaslHandshake that begins nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from broker.security.sasl.actions import (
    Action,
    AnswerApiVersions,
    AnswerAuthenticate,
    AnswerHandshake,
    AnswerOther,
    Authenticated,
    Close,
    SendToken,
)
from broker.security.sasl.events import (
    ApiVersionsRequested,
    AuthenticateRequested,
    Event,
    FrameTooLarge,
    HandshakeRequested,
    Now,
    OtherRequested,
    TokenReceived,
    Unreadable,
)
from protocol.errors import ErrorCode
from protocol.sasl.exchange import Identity, SaslAuthenticationError, SaslError, SaslServer

REAUTHENTICATION_INTERVAL_MIN_MS = 1_000
"""A client may log in again at most once in this time; Kafka answers an earlier SaslHandshake with an error."""

SHOWN_MECHANISM_MAX = 64
"""Characters of an unknown mechanism's name in the log: the client chose it."""

NOT_A_CLIENT = (
    "potential reasons: kafka client configured with the wrong security protocol, it does not support KIP-43 or it is not a kafka client"
)


class Mechanism(NamedTuple):
    """An enabled mechanism of a listener. `max_reauth_ms` is connections.max.reauth.ms; 0 sets no end."""

    start: Callable[[], SaslServer]
    max_reauth_ms: int = 0


class Expected(Enum):
    """What the next frame of the connection is."""

    REQUEST = 1
    TOKEN = 2
    NOTHING = 3  # the connection is about to be closed


class _State(Enum):
    INITIAL_REQUEST = 1
    HANDSHAKE_OR_VERSIONS = 2
    HANDSHAKE = 3
    AUTHENTICATE = 4
    COMPLETE = 5
    BAD_MECHANISM = 6
    FAILED = 7


class SaslConversation:
    """Of one connection. `mechanisms` are the enabled ones by name, in the order in which clients are told them; it is looked at for each
    login, and may change between them."""

    def __init__(self, mechanisms: Mapping[str, Mechanism], max_receive_size: int) -> None:
        self._mechanisms = mechanisms
        self.max_receive_size = max_receive_size
        self._state = _State.INITIAL_REQUEST
        self._server: SaslServer | None = None
        self._mechanism_name = ""
        self._max_reauth_ms = 0
        self._has_headers = False  # whether tokens come as SaslAuthenticate requests
        self._can_reauthenticate = False
        self._previous: tuple[str, Identity] | None = None  # mechanism and identity, while a client logs in again
        self._identity: Identity | None = None
        self._session_end_ms: int | None = None
        self._reauthentication_start_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client is logged in and may send any request."""
        return self._state is _State.COMPLETE

    @property
    def expects(self) -> Expected:
        if self._state is _State.FAILED:
            return Expected.NOTHING
        is_token = self._state in (_State.AUTHENTICATE, _State.BAD_MECHANISM) and not self._has_headers
        return Expected.TOKEN if is_token else Expected.REQUEST

    def is_session_expired(self, now: Now) -> bool:
        """Whether the session has ended: then any request but a SaslHandshake closes the connection, also if the client cannot log in again
        (KAFKA-9241)."""
        return self.is_complete and self._session_end_ms is not None and now.monotonic_ms >= self._session_end_ms

    def handle(self, event: Event, now: Now) -> list[Action]:
        """What to do, in this order. After Close nothing more is done, and further events do nothing."""
        if self._state is _State.FAILED:
            return []
        if isinstance(event, FrameTooLarge):
            return [self._fail(f"a frame of {event.size} bytes, of which {self.max_receive_size} are allowed", is_delayed=True)]
        if self._state is _State.BAD_MECHANISM:
            assert self._previous is not None
            why = f"SASL mechanism '{self._mechanism_name}' requested by client is not supported for re-authentication"
            return [self._fail(f"{why} of mechanism '{self._previous[0]}'", is_delayed=True)]
        if isinstance(event, Unreadable):
            hint = f", {NOT_A_CLIENT}" if self._state is _State.INITIAL_REQUEST else ""
            return [self._fail(event.reason + hint)]
        if self._state is _State.COMPLETE:
            return self._after_login(event, now)
        if self._state is _State.AUTHENTICATE:
            return self._authenticate(event, now)
        return self._before_handshake(event)

    def _before_handshake(self, event: Event) -> list[Action]:
        is_initial = self._state is _State.INITIAL_REQUEST
        if isinstance(event, HandshakeRequested):
            return self._handshake(event)
        if isinstance(event, ApiVersionsRequested):
            if self._state is _State.HANDSHAKE:
                return [self._fail("a second ApiVersions request during SASL handshake")]
            self._state = _State.HANDSHAKE if event.error is ErrorCode.NONE else _State.HANDSHAKE_OR_VERSIONS
            return [AnswerApiVersions(event.error)]
        hint = f", {NOT_A_CLIENT}" if is_initial else ""
        return [self._fail(f"Unexpected Kafka request of type {_name(event)} during SASL handshake{hint}")]

    def _handshake(self, event: HandshakeRequested) -> list[Action]:
        names = tuple(self._mechanisms)
        mechanism = self._mechanisms.get(event.mechanism)
        if mechanism is None:
            answer = AnswerHandshake(ErrorCode.UNSUPPORTED_SASL_MECHANISM, names)
            shown = event.mechanism[:SHOWN_MECHANISM_MAX]
            return [self._fail(f"Unsupported SASL mechanism {shown!r} requested by client", answer, is_delayed=True)]
        self._has_headers = event.version >= 1
        self._mechanism_name = event.mechanism
        self._max_reauth_ms = mechanism.max_reauth_ms
        if self._previous is not None and self._previous[0] != event.mechanism:
            self._state = _State.BAD_MECHANISM
        else:
            self._server = mechanism.start()
            self._state = _State.AUTHENTICATE
        return [AnswerHandshake(ErrorCode.NONE, names)]

    def _authenticate(self, event: Event, now: Now) -> list[Action]:
        if isinstance(event, TokenReceived) and not self._has_headers:
            return self._evaluate(event.token, now)
        if not isinstance(event, AuthenticateRequested):
            reason = f"Unexpected Kafka request of type {_name(event)} during SASL authentication."
            return [self._fail(reason, AnswerOther(ErrorCode.ILLEGAL_SASL_STATE), is_delayed=True)]
        self._can_reauthenticate = self._can_reauthenticate or event.version > 0
        return self._evaluate(event.token, now)

    def _evaluate(self, token: bytes, now: Now) -> list[Action]:
        assert self._server is not None
        try:
            response = self._server.evaluate(token)
            identity = self._server.identity
            if identity is not None:
                self._check_unchanged(identity)
        except SaslAuthenticationError as e:
            return [self._refuse(str(e), str(e))]
        except SaslError as e:
            kind = "re-authentication" if self._previous is not None else "authentication"
            shown = f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism_name}"
            return [self._refuse(shown, str(e))]
        if identity is None:
            return [self._answer(response, 0)]
        lifetime_ms = self._begin_session(identity, now)
        return [self._answer(response, lifetime_ms), self._authenticated(identity)]

    def _check_unchanged(self, identity: Identity) -> None:
        if self._previous is not None and self._previous[1].name != identity.name:
            names = f"User.{self._previous[1].name}: User.{identity.name}"
            raise SaslAuthenticationError(f"Cannot change principals during re-authentication from {names}")

    def _begin_session(self, identity: Identity, now: Now) -> int:
        """The session's lifetime that the client is told, 0 for one without an end."""
        limits = [self._max_reauth_ms] if self._max_reauth_ms > 0 else []
        if identity.credential_end_ms is not None:
            limits.append(identity.credential_end_ms - now.wall_ms)
        lifetime_ms = max(0, min(limits)) if limits else None
        self._session_end_ms = None if lifetime_ms is None else now.monotonic_ms + lifetime_ms
        self._identity, self._previous, self._server = identity, None, None
        self._state = _State.COMPLETE
        return lifetime_ms or 0

    def _authenticated(self, identity: Identity) -> Authenticated:
        return Authenticated(identity, self._mechanism_name, self._session_end_ms, self._can_reauthenticate)

    def _after_login(self, event: Event, now: Now) -> list[Action]:
        if isinstance(event, HandshakeRequested) and self._may_reauthenticate(now):
            assert self._identity is not None
            self._reauthentication_start_ms = now.monotonic_ms
            self._previous = (self._mechanism_name, self._identity)
            return self._handshake(event)
        if self.is_session_expired(now):
            return [self._fail("the session has expired")]
        if isinstance(event, HandshakeRequested):
            return [AnswerHandshake(ErrorCode.ILLEGAL_SASL_STATE, ())]
        assert isinstance(event, AuthenticateRequested), "other requests are none of this conversation"
        why = "SaslAuthenticate request received after successful authentication"
        return [AnswerAuthenticate(ErrorCode.ILLEGAL_SASL_STATE, why, b"", 0)]

    def _may_reauthenticate(self, now: Now) -> bool:
        """A session without an end is not begun again."""
        start_ms = self._reauthentication_start_ms
        is_early = start_ms is not None and now.monotonic_ms - start_ms < REAUTHENTICATION_INTERVAL_MIN_MS
        return self._session_end_ms is not None and not is_early

    def _answer(self, token: bytes, lifetime_ms: int) -> Action:
        return AnswerAuthenticate(ErrorCode.NONE, None, token, lifetime_ms) if self._has_headers else SendToken(token)

    def _refuse(self, shown: str, reason: str) -> Close:
        answer = AnswerAuthenticate(ErrorCode.SASL_AUTHENTICATION_FAILED, shown, b"", 0) if self._has_headers else None
        return self._fail(reason, answer, is_delayed=True)

    def _fail(
        self, reason: str, answer: AnswerHandshake | AnswerAuthenticate | AnswerOther | None = None, *, is_delayed: bool = False
    ) -> Close:
        self._state = _State.FAILED
        self._server = None
        return Close(reason, answer, is_delayed)


def _name(event: Event) -> str:
    """Kafka's name of the request."""
    names = {ApiVersionsRequested: "API_VERSIONS", HandshakeRequested: "SASL_HANDSHAKE", AuthenticateRequested: "SASL_AUTHENTICATE"}
    return event.api_name if isinstance(event, OtherRequested) else names.get(type(event), "")
