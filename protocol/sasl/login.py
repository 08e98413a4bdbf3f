"""The login on a connection that is open and whose versions are known: the mechanism, then its tokens, by blocking requests.

Source: SaslClientAuthenticator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ErrorCode
from ..messages.sasl_authenticate import SaslAuthenticateRequest
from ..messages.sasl_handshake import SaslHandshakeRequest
from .exchange import SaslClient, SaslError

Ask = Callable[[Any], Any]
"""Sends a request and returns its answer."""


class LoginError(Exception):
    """The broker did not let us in, or could not prove that it knows the credential; `str()` is one line without a secret."""


def log_in(ask: Ask, mechanism: str, client: SaslClient) -> int:
    """Returns the session's time in ms, 0 if it has no end (KIP-368). Raises LoginError, and what `ask` raises."""
    handshake = ask(SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginError("this listener has no login by SASL")
    if handshake.error_code:
        raise LoginError(f"{mechanism} is not enabled: {', '.join(handshake.mechanisms)} are")
    challenge, lifetime_ms = b"", 0
    try:
        while (token := client.evaluate(challenge)) is not None:
            answer = ask(SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                raise LoginError(answer.error_message or ErrorCode(answer.error_code).name)
            challenge, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
    except SaslError as e:
        raise LoginError(str(e)) from e
    if not client.is_complete:
        raise LoginError("the broker has ended the exchange before its end")
    return int(lifetime_ms)
