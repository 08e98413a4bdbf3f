"""What happens to a SaslConversation: the frames of its connection, decoded."""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import ErrorCode


class Now(NamedTuple):
    """Credentials end by the wall clock, sessions by the monotonic one, which is never set."""

    wall_ms: int
    monotonic_ms: int


class ApiVersionsRequested(NamedTuple):
    """`error` is what the request is answered with: NONE, UNSUPPORTED_VERSION, or INVALID_REQUEST for a bad client name."""

    error: ErrorCode


class HandshakeRequested(NamedTuple):
    version: int
    mechanism: str


class AuthenticateRequested(NamedTuple):
    version: int
    token: bytes


class OtherRequested(NamedTuple):
    """Any other request, whose body is not looked at."""

    api_name: str


class TokenReceived(NamedTuple):
    """A frame that is a token itself, after a SaslHandshake of version 0."""

    token: bytes


class Unreadable(NamedTuple):
    """A frame that is no request: bad bytes, or an API or a version that is not there. `reason` is for the log."""

    reason: str


class FrameTooLarge(NamedTuple):
    """A frame announces more than `max_receive_size` bytes, or a negative size."""

    size: int


Event = ApiVersionsRequested | HandshakeRequested | AuthenticateRequested | OtherRequested | TokenReceived | Unreadable | FrameTooLarge
