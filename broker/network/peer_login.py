"""How this node is let in by another: TLS, and the login by SASL on a connection that is open and whose versions are known.

A login runs before the first request and again before the session's end (KIP-368), while nothing else is under way: an answer cannot be
taken for that to another request, and nothing overtakes the login (redpanda#31152).

Source: SaslClientAuthenticator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Protocol

from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.sasl.exchange import SaslClient, SaslError

if TYPE_CHECKING:
    from broker.network.tls_transport import SecuredProtocol

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2
"""Of Apache Kafka 2.5 and later."""

RELOGIN_FACTOR = 0.85
"""The part of a session's time after which this node logs in again; Kafka draws one between 0.85 and 0.95."""

Ask = Callable[[Any, int], Awaitable[Any]]
"""Sends a message in a version. Returns the response, whose bytes stay valid; None if the connection has ended."""


class LoginError(Exception):
    """This node was not let in, or does not trust the other; `str()` is one line for the log."""


class PeerSecurity(Protocol):
    """How this node connects to one listener of the other nodes. On a PLAINTEXT listener there is none."""

    has_tls: bool
    mechanism: str | None
    """Of SASL; None without a login."""

    def secure(self, inner: SecuredProtocol, host: str) -> asyncio.BufferedProtocol:
        """Puts TLS before a connection to `host`: returns the protocol of the plain transport."""

    def start_login(self) -> SaslClient:
        """Returns the mechanism's side of this node for one login."""


async def log_in(ask: Ask, security: PeerSecurity, executor: Executor) -> int:
    """Log in; returns the session's time in ms, 0 if it has no end. Raises LoginError.

    The first proof of SCRAM takes milliseconds: it is made by `executor`. All else computes next to nothing, and does not wait for threads
    that a slow disk holds: a node that cannot log in to another in time takes it for dead (leader_probe.py, silence_watch.py)."""
    assert security.mechanism is not None, "there is a login"
    loop, client = asyncio.get_running_loop(), security.start_login()
    handshake = await ask(SaslHandshakeRequest(mechanism=security.mechanism), HANDSHAKE_VERSION)
    if handshake is None:
        raise LoginError("the connection ended")
    if handshake.error_code:
        raise LoginError(
            f"{security.mechanism} is refused, {ErrorCode(handshake.error_code).name}: {', '.join(handshake.mechanisms)} are enabled"
        )
    challenge, lifetime_ms = b"", 0
    while True:
        try:
            if client.may_block(challenge):
                token = await loop.run_in_executor(executor, client.evaluate, challenge)
            else:
                token = client.evaluate(challenge)
        except SaslError as e:
            raise LoginError(str(e)) from e
        if token is None:
            break
        response = await ask(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
        if response is None:
            raise LoginError("the connection ended")
        if response.error_code:
            raise LoginError(response.error_message or ErrorCode(response.error_code).name)
        challenge, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
    if not client.is_complete:
        raise LoginError("the other node has ended the exchange before its end")
    return int(lifetime_ms)
