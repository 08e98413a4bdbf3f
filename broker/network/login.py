"""Login: handles the requests of a connection of a SASL listener, until it is logged in and when it logs in again.

It decodes frames into the events of the SaslConversation and does what that says: answers, names the principal, closes. Before the login no
other API than ApiVersions, SaslHandshake and SaslAuthenticate is looked at, and no frame is larger than sasl.server.max.receive.size.

Source: SaslServerAuthenticator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from broker.network.connection import Connection
from broker.network.connection_interfaces import Handle, Refuse
from broker.network.context import CloseConnection, ConnectionFacts
from broker.network.request_pipeline import Chunks
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
from broker.security.sasl.conversation import Expected, SaslConversation
from broker.security.sasl.events import (
    ApiVersionsRequested,
    AuthenticateRequested,
    Event,
    HandshakeRequested,
    Now,
    OtherRequested,
    TokenReceived,
    Unreadable,
)
from protocol import codec
from protocol.apis import API_VERSIONS_KEY, DECLARED, Api
from protocol.errors import DecodeError, ErrorCode
from protocol.framing import HEADER_SIZE_MIN, REQUEST_HEADER, decode_client_id, skip_tags

HANDSHAKE_KEY = 17
AUTHENTICATE_KEY = 36
_LOGIN_KEYS = (HANDSHAKE_KEY.to_bytes(2), AUTHENTICATE_KEY.to_bytes(2))
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
ERROR_CODE_POSITION = 8
"""Where each ApiVersions response has its error code: behind the size and the correlation id."""
MECHANISM_ENTRIES_MAX = 100
"""What a login's request may have of structs, strings and tagged fields."""


class Login:
    """Of one connection. `handle` serves requests once it is logged in; `refuse` is as Refuse.

    `failure_delay_ms` is connection.failed.authentication.delay.ms. `now` is both clocks' time."""

    def __init__(
        self,
        connection: Connection,
        conversation: SaslConversation,
        handle: Handle,
        *,
        now: Callable[[], Now],
        monotonic_ms: Callable[[], int],
        failure_delay_ms: int,
        refuse: Refuse,
    ) -> None:
        self._connection = connection
        self._conversation = conversation
        self._handle = handle
        self._now = now
        self._monotonic_ms = monotonic_ms
        self._failure_delay_ms = failure_delay_ms
        self._refuse = refuse
        self._is_logged_in = False
        self._session_end_ms: int | None = None  # monotonic
        self._correlation_id = 0  # of the request that is answered
        self._version = 0

    def __call__(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        """As Handle."""
        if self._is_logged_in and (self._session_end_ms is None or frame[:2] not in _LOGIN_KEYS):
            if self._session_end_ms is not None and self._monotonic_ms() >= self._session_end_ms:
                raise CloseConnection("the session has expired")  # also if the client cannot log in again (KAFKA-9241)
            return self._handle(frame, facts)
        api_versions: Chunks = []
        event = self._event_of(frame)
        if event is None:
            api_versions = self._api_versions(frame, facts)
            event = ApiVersionsRequested(_error_of(api_versions))
        chunks: Chunks = []
        for action in self._conversation.handle(event, self._now()):
            if isinstance(action, AnswerApiVersions):
                chunks = api_versions
            elif isinstance(action, Authenticated):
                self._begin_session(action)
            elif isinstance(action, Close):
                self._end(action, frame, facts)
                return None
            else:
                chunks = self._answer(action)
        self._is_logged_in = self._conversation.is_complete  # not while it logs in again
        return chunks

    def _event_of(self, frame: memoryview) -> Event | None:
        """What the frame says; None for an ApiVersions request."""
        if self._conversation.expects is Expected.TOKEN:
            return TokenReceived(bytes(frame))
        try:
            return self._decode(frame)
        except DecodeError as e:
            return Unreadable(str(e))

    def _decode(self, frame: memoryview) -> Event | None:
        try:
            key, version, self._correlation_id, client_id_size = REQUEST_HEADER.unpack_from(frame)
        except struct.error as e:
            raise DecodeError(f"request header cut after {len(frame)} bytes") from e
        if key == API_VERSIONS_KEY:
            return None
        api = DECLARED.get(key)
        if api is None or not api.serves(version):
            raise DecodeError(f"API {key} version {version} is not served")
        self._version = version
        if key not in (HANDSHAKE_KEY, AUTHENTICATE_KEY):
            return OtherRequested(_kafka_name(api))
        position = HEADER_SIZE_MIN + max(client_id_size, 0)
        decode_client_id(frame[HEADER_SIZE_MIN:position], client_id_size)
        if api.request_header_version(version) >= 2:
            position = skip_tags(frame, position)
        request, _ = codec.decoder(api.request_class, version)(frame, position, MECHANISM_ENTRIES_MAX)
        if key == HANDSHAKE_KEY:
            return HandshakeRequested(version, request.mechanism)
        return AuthenticateRequested(version, bytes(request.auth_bytes))

    def _api_versions(self, frame: memoryview, facts: ConnectionFacts) -> Chunks:
        chunks = self._handle(frame, facts)
        assert isinstance(chunks, list), "ApiVersions is answered at once"
        return chunks

    def _answer(self, action: Action) -> Chunks:
        if isinstance(action, SendToken):
            return [_SIZE.pack(len(action.token)) + action.token]
        if isinstance(action, AnswerHandshake):
            api = DECLARED[HANDSHAKE_KEY]
            return self._framed(api, api.response_class(error_code=action.error, mechanisms=list(action.mechanisms)))
        assert isinstance(action, AnswerAuthenticate)
        api = DECLARED[AUTHENTICATE_KEY]
        response = api.response_class(
            error_code=action.error,
            error_message=action.error_message,
            auth_bytes=action.token,
            session_lifetime_ms=action.session_lifetime_ms,
        )
        return self._framed(api, response)

    def _framed(self, api: Api, response: Any) -> Chunks:
        tags = b"\0" if api.response_header_version(self._version) >= 1 else b""
        body = tags + codec.encode(response, self._version)
        return [_SIZE_AND_CORRELATION_ID.pack(4 + len(body), self._correlation_id) + body]

    def _begin_session(self, action: Authenticated) -> None:
        self._session_end_ms = action.session_end_ms
        self._connection.authenticated(f"User:{action.identity.name}", is_by_token=action.identity.is_token_authenticated)

    def _end(self, action: Close, frame: memoryview, facts: ConnectionFacts) -> None:
        answer: Chunks = []
        if isinstance(action.answer, AnswerOther):
            answer = self._refuse(frame, facts, action.answer.error)
        elif action.answer is not None:
            answer = self._answer(action.answer)
        if not action.is_delayed:
            raise CloseConnection(action.reason)
        self._connection.close_later(answer, action.reason, self._failure_delay_ms)


def _error_of(chunks: Chunks) -> ErrorCode:
    return ErrorCode(int.from_bytes(b"".join(chunks)[ERROR_CODE_POSITION : ERROR_CODE_POSITION + 2], signed=True))


def _kafka_name(api: Api) -> str:
    """As ApiKeys names it: METADATA."""
    return api.stem.upper()
