"""Why the broker closes a connection: the kinds of log lines about it, and what the error of a request comes to."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from broker.network.context import CloseConnection
from protocol.errors import DecodeError
from protocol.foreign_protocols import ForeignProtocolError

# The kinds of log lines, each with its own limit, because any client can cause them.
FOREIGN_PROTOCOLS = "clients of other protocols"
REFUSED_REQUESTS = "connections closed for what they sent"
LARGE_REQUESTS = "connections closed for requests beyond a limit"
NO_MEMORY = "connections closed for want of memory"
FAILED_REQUESTS = "requests that failed outside their handler"
CLOSED_CONNECTIONS = "connections closed"
FAILED_AUTHENTICATIONS = "failed authentications"
FAILED_TLS = "failed TLS"


class Closing(NamedTuple):
    """What the log says."""

    reason: str
    kind: str
    level: int


def closing_for(error: BaseException) -> Closing | None:
    """What the peer of a request with this error is closed for; None if the error is the broker's own."""
    if isinstance(error, ForeignProtocolError):
        return Closing(str(error), FOREIGN_PROTOCOLS, logging.WARNING)
    if isinstance(error, (CloseConnection, DecodeError)):
        return Closing(str(error), REFUSED_REQUESTS, logging.INFO)
    if isinstance(error, MemoryError):
        return Closing(str(error) or "out of memory", NO_MEMORY, logging.WARNING)
    return None


def printable(text: Any) -> str:
    """`text` safe for one log line: peers choose parts of it."""
    return ascii(str(text))[1:-1][:300]
