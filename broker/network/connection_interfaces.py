"""What a connection needs from others: who handles its requests, who authenticates its peer, and the registry that it belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from broker.loop.clock import Timer
from broker.loop.cpu_time import CpuMeter
from broker.loop.deferred import Deferred
from broker.network.busy_poll import BusyPoll
from broker.network.context import ConnectionFacts
from broker.network.frame_turn import FrameTurn
from broker.network.request_memory import RequestMemory
from broker.network.request_pipeline import Chunks
from broker.network.sockets import Network
from broker.observability.limited_log import LimitedLog
from protocol.errors import ErrorCode
from protocol.framing import BufferPool

ConnectionT = TypeVar("ConnectionT", contravariant=True)


class Handle(Protocol):
    """Handles one request: the interface of dispatch for connections."""

    def __call__(self, frame: memoryview, facts: ConnectionFacts) -> Chunks | Deferred | None:
        """The response's chunks, a Deferred of them, or None for no response."""


Refuse = Callable[[memoryview, ConnectionFacts, ErrorCode], Chunks]
"""Returns an API's own response to the request in a frame, with an error for all of it; empty if there is none."""


def no_answer(_frame: memoryview, _facts: ConnectionFacts, _error: ErrorCode) -> Chunks:
    """As Refuse."""
    return []


class Authenticator(Protocol[ConnectionT]):
    """How clients of a listener show who they are; there is none where nobody is asked."""

    frame_size_max: int
    """Bytes of a frame of a client who has not shown it yet."""

    def begin(self, connection: ConnectionT, handle: Handle, refuse: Refuse) -> Handle:
        """Returns what handles the requests of a new connection: `handle`, or a login until that is done."""

    def secured(self, connection: ConnectionT, certificate: bytes | None) -> None:
        """Called after the TLS handshake, with the DER of the client's certificate; None if it has sent none."""


class Registry(Protocol[ConnectionT]):
    """The part of the ConnectionRegistry that connections use."""

    loop: asyncio.AbstractEventLoop
    executor: Executor
    network: Network
    log: LimitedLog
    pool: BufferPool
    memory: RequestMemory
    frame_turn: FrameTurn
    busy_poll: BusyPoll | None
    cpu_meter: CpuMeter
    monotonic_ms: Callable[[], int]
    monotonic_ns: Callable[[], int]
    call_later: Callable[..., Timer]
    on_refused: Callable[[str, str], None]
    on_authentication: Callable[[str, str], None]

    def admit(self, connection: ConnectionT) -> int | None:
        """Count `connection` and number it. Returns None, or after how many ms it must be closed."""

    def forget(self, connection: ConnectionT) -> None:
        """Remove a closed connection."""
