"""What a SaslConversation asks of its connection."""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.sasl.exchange import Identity


class AnswerApiVersions(NamedTuple):
    """NONE: the listener's usual answer."""

    error: ErrorCode


class AnswerHandshake(NamedTuple):
    """A SaslHandshake response in the request's version."""

    error: ErrorCode
    mechanisms: tuple[str, ...]


class AnswerAuthenticate(NamedTuple):
    """A SaslAuthenticate response in the request's version; the lifetime is in version 1 and later."""

    error: ErrorCode
    error_message: str | None
    token: bytes
    session_lifetime_ms: int


class AnswerOther(NamedTuple):
    """The API's own response with this error for the whole request."""

    error: ErrorCode


class SendToken(NamedTuple):
    """A frame that is the token itself."""

    token: bytes


class Authenticated(NamedTuple):
    """The client is logged in, for the first time or again. `session_end_ms` is monotonic time; None for a session without an end.
    `can_reauthenticate` says that a request of the login had SaslAuthenticate 1 or later (Kafka counts the others in a metric)."""

    identity: Identity
    mechanism: str
    session_end_ms: int | None
    can_reauthenticate: bool


class Close(NamedTuple):
    """Read no more, send the answer, and close the connection. `is_delayed`: answer and end come
    connection.failed.authentication.delay.ms later. `reason` is one line for the log."""

    reason: str
    answer: AnswerHandshake | AnswerAuthenticate | AnswerOther | None
    is_delayed: bool


Action = AnswerApiVersions | AnswerHandshake | AnswerAuthenticate | AnswerOther | SendToken | Authenticated | Close
