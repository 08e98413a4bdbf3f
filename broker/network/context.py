"""The facts about a request while it is handled: its listener's, its connection's, and its own.

The request refers to its connection's facts instead of copying them; the connection refers to its listener's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.loop.cpu_time import UNMEASURED
from protocol.apis import ListenerKind

if TYPE_CHECKING:
    from broker.security.authorizer.access import Access
    from broker.security.quotas.charge import Charge


class CloseConnection(Exception):  # noqa: N818 - a decision, not a fault
    """Raised by dispatch to close the connection without an answer, as Kafka does."""


class ListenerFacts(NamedTuple):
    """The facts that the connections of one listener share. Clients get the broker's address on the same listener (KIP-103)."""

    name: str
    kind: ListenerKind = ListenerKind.CLIENT
    security_protocol: str = "PLAINTEXT"
    max_frame_size: int = 100 * 1024 * 1024
    """Bytes of one request; a connection that announces more is closed."""
    max_request_size: int = sys.maxsize
    """Bytes of one request that is not a Produce."""
    send_buffer_bytes: int = -1
    """SO_SNDBUF of a consumer's connection; -1 leaves it to the system."""
    max_connections: int = sys.maxsize
    """Of this listener; the ConnectionRegistry bounds all listeners together."""


class ConnectionFacts:
    """The facts that the requests of one connection share. The connection and dispatch write them; handlers read them, and set
    `sends_at_once`. With it, the response of a parked request is sent directly at its completion, because other requests wait for the
    peer's next action.

    `client_id_bytes` is the client id of the last request, `client_id_text` the same decoded and checked. `on_closed` is called once
    when the connection ends, for code that keeps state of the client beyond a request. `limit_send_buffer`, until it is called, bounds the
    socket's send buffer: the first Fetch of a consumer calls it. `is_forwarded` means that another broker has forwarded the request in an
    Envelope. `network_time` is what its bytes take of the loop. `principal` is `Type:name`; `is_token_authenticated` says that it logged in
    by a delegation token (KafkaPrincipal.tokenAuthenticated). `throttle` mutes the connection for some ms. `access` is that of the last
    request, which the next one of the same API uses again."""

    __slots__ = (
        "access",
        "client_host",
        "client_id_bytes",
        "client_id_text",
        "client_software_name",
        "client_software_version",
        "connection_id",
        "is_closed",
        "is_forwarded",
        "is_token_authenticated",
        "limit_send_buffer",
        "listener",
        "network_time",
        "on_closed",
        "principal",
        "sends_at_once",
        "throttle",
    )

    def __init__(self, connection_id: int, listener: ListenerFacts, client_host: str) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.client_host = client_host
        self.principal = "User:ANONYMOUS"
        self.access: Access | None = None
        self.client_id_bytes = b""
        self.client_id_text = ""
        self.client_software_name = "unknown"  # until an ApiVersions request names it, as in Kafka
        self.client_software_version = "unknown"
        self.is_closed = False
        self.is_forwarded = False
        self.is_token_authenticated = False
        self.sends_at_once = False
        self.on_closed: Callable[[], object] | None = None
        self.limit_send_buffer: Callable[[], None] | None = None
        self.throttle: Callable[[int], None] = _throttles_nothing
        self.network_time = UNMEASURED

    def close(self) -> None:
        """Called when the connection has ended."""
        self.is_closed = True
        self.limit_send_buffer = None
        self.throttle = _throttles_nothing
        if self.on_closed is not None:
            self.on_closed()
            self.on_closed = None


def _throttles_nothing(duration_ms: int) -> None:
    """Of a connection that another broker has, or that has ended."""


class RequestContext:
    """One request as its handler sees it. `client_id` is that of this request: the connection's may have changed before the answer.

    `access` is what its client may do; which rights a handler has to ask for says broker/security/authorizer/rights.py. `now_ms` is the
    wall clock at decode; re-read the clock after any wait. `charge` is what the request costs of its client's quotas; None while no client
    is limited."""

    __slots__ = ("access", "api_key", "api_version", "charge", "client_id", "connection", "correlation_id", "now_ms")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        connection: ConnectionFacts,
        now_ms: int,
        access: Access,
    ) -> None:
        self.access = access
        self.charge: Charge | None = None
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.now_ms = now_ms
