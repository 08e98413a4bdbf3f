"""One client's connection: receives frames, runs them through its pipeline, sends what comes back.

An asyncio BufferedProtocol: the kernel writes into the assembler's buffers, so a large produce is received once and written to the
log from there. All replies to the requests of one read leave together, because uvloop does not coalesce small writes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol, cast

from broker.context import CloseConnection, ConnectionFacts, ListenerFacts
from broker.deferred import Deferred
from broker.limited_log import LimitedLog
from broker.network.busy_poll import BusyPoll
from broker.network.frame_turn import FrameTurn
from broker.network.outbox import Outbox
from broker.network.request_memory import RequestMemory
from broker.network.request_pipeline import Chunks, RequestPipeline
from broker.network.sockets import Network
from protocol.errors import DecodeError
from protocol.foreign_protocols import ForeignProtocolError
from protocol.framing import BufferPool, FrameAssembler, FrameBuffer

# The kinds of log lines here, each with a limit of its own, because strangers cause them.
FOREIGN_PROTOCOLS = "clients of other protocols"
REFUSED_REQUESTS = "connections closed for what they sent"
NO_MEMORY = "connections closed for want of memory"
FAILED_REQUESTS = "requests that failed outside their handler"
CLOSED_CONNECTIONS = "connections closed"

SMALL_READ_SIZE = 4 * 1024  # bytes; the next read is waited for awake after such a one only: who sends megabytes waits for bandwidth
CORK_SIZE_MAX = 64 * 1024
"""Bytes of replies that are held back until the end of a read; past it they leave, and a peer that doesn't take them is found out."""


class Handle(Protocol):
    """Runs one request: what dispatch offers to connections."""

    def __call__(self, frame: memoryview, facts: ConnectionFacts) -> Chunks | Deferred | None:
        """The response's chunks, a Deferred of them, or None for no response."""


class Registry(Protocol):
    """What connections share, and who counts them."""

    loop: asyncio.AbstractEventLoop
    executor: Executor
    network: Network
    log: LimitedLog
    pool: BufferPool
    memory: RequestMemory
    frame_turn: FrameTurn
    busy_poll: BusyPoll | None
    monotonic_ms: Callable[[], int]

    def admit(self, connection: Connection) -> bool:
        """Count `connection` in and number it, or refuse it."""

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""


class Connection(asyncio.BufferedProtocol):
    """Created by the listener for each accepted socket; lives until `connection_lost`."""

    __slots__ = (
        "_assembler",
        "_buffer_size",
        "_busy_poll",
        "_flush_is_due",
        "_has_memory",
        "_held_size",
        "_is_others_turn",
        "_is_reading",
        "_is_receiving",
        "_loop",
        "_memory",
        "_outbox",
        "_paused_since_ms",
        "_pipeline",
        "_receiving",
        "_registry",
        "_transport",
        "facts",
        "last_active_ms",
        "partial_since_ms",
    )

    def __init__(self, registry: Registry, listener: ListenerFacts, handle: Handle) -> None:
        self._registry = registry
        self._loop = registry.loop
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self.facts = ConnectionFacts(0, listener, "")
        start = functools.partial(handle, facts=self.facts)
        self._pipeline = RequestPipeline(
            start=start, send=self._send, on_ready=self._ready, on_error=self._failed, schedule=self._loop.call_soon
        )
        self._assembler = FrameAssembler(
            self._pipeline.offer,
            max_frame_size=listener.max_frame_size,
            pool=registry.pool,
            on_kept=self._frame_kept,
            may_go_on=registry.frame_turn.may_go_on,
        )
        self._memory = registry.memory
        self._busy_poll = registry.busy_poll
        self._receiving = False  # inside buffer_updated, which flushes once at its end
        self._flush_is_due = False
        self._is_reading = True
        self._has_memory = True
        self._paused_since_ms = 0  # since when it has not
        self._buffer_size = 0  # bytes offered for the read that is under way
        self._is_others_turn = False
        self._held_size = 0  # bytes last reported to the RequestMemory
        self._is_receiving = False  # the same
        self.last_active_ms = 0
        self.partial_since_ms: int | None = None  # when the first byte of an unfinished frame came

    @property
    def is_busy(self) -> bool:
        """Whether we owe the peer something: a parked request, or a response it has not taken yet. Such a connection is not idle."""
        return self._pipeline.unanswered_count > 0 or (self._outbox is not None and self._outbox.is_behind)

    @property
    def has_memory(self) -> bool:
        """Whether it may receive more; if not, its unfinished frame is not late by its own fault."""
        return self._has_memory

    @property
    def is_deserted(self) -> bool:
        """Whether the peer reset the connection while nothing was read from it, so that its parked request and its frames are in vain."""
        return not self._is_reading and self._outbox is not None and self._outbox.is_reset

    # -- asyncio's calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports don't inherit asyncio's
        peer = transport.get_extra_info("peername")
        self.facts.client_host = peer[0] if peer else "unknown"
        if not self._registry.admit(self):
            self._transport.abort()
            return
        layer = self._registry.network.make_layer(self._transport)
        self._outbox = Outbox(layer, self._loop, self._registry.executor, on_writable=self._writable, on_broken=self.close)

    def get_buffer(self, sizehint: int) -> memoryview:
        try:
            buffer = self._assembler.get_buffer()
        except MemoryError as e:
            # To raise here, or to close, would take the descriptor away from libuv within its read. What it reads is dropped.
            self._assembler.close()
            self._loop.call_soon(self.close, str(e) or "out of memory", NO_MEMORY, logging.WARNING)
            buffer = self._registry.pool.scratch
        self._buffer_size = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_ms = self._registry.monotonic_ms()
        self._receiving = True
        try:
            self._assembler.buffer_updated(nbytes)
        except Exception as e:
            self._failed(e)
        self._receiving = False
        self._after_frames()
        if nbytes == self._buffer_size:
            self._let_others_go_first()
        elif nbytes <= SMALL_READ_SIZE and self._busy_poll is not None:
            self._busy_poll.read_answered()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause_writing()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipeline.close()
        self._assembler.close()
        self._memory.forget(self)
        if self._outbox is not None:
            self._outbox.close()
        self._registry.forget(self)

    # -- the pipeline's calls -------------------------------------------------------------------------------------

    def _send(self, chunks: Chunks) -> None:
        outbox = self._outbox
        assert outbox is not None
        for chunk in chunks:
            outbox.push(chunk)
        if outbox.pushed_size >= CORK_SIZE_MAX:
            self._flush()
        elif not self._receiving and not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _ready(self) -> None:
        """The pipeline takes frames again: first those already received, then new ones."""
        if self._receiving:
            return
        self._receiving = True
        try:
            self._assembler.resume()
        except Exception as e:
            self._failed(e)
        self._receiving = False
        self._after_frames()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, ForeignProtocolError):
            self.close(str(error), FOREIGN_PROTOCOLS, logging.WARNING)
        elif isinstance(error, (CloseConnection, DecodeError)):
            self.close(str(error), REFUSED_REQUESTS)
        elif isinstance(error, MemoryError):
            self.close(str(error) or "out of memory", NO_MEMORY, logging.WARNING)
        else:
            self._registry.log.error(
                FAILED_REQUESTS, "request failed outside its handler client=%s", self.facts.client_host, exc_info=error
            )
            self.close("internal error", REFUSED_REQUESTS)

    # -- flow -----------------------------------------------------------------------------------------------------

    def _after_frames(self) -> None:
        self._flush()
        is_partial = self._assembler.has_partial_frame
        if is_partial or self._held_size or self._pipeline.is_stopped:
            self.report_memory()
        if not is_partial:
            self.partial_since_ms = None
        elif self._assembler.is_interrupted:
            self._let_others_go_first()
        elif self.partial_since_ms is None:
            self.partial_since_ms = self.last_active_ms

    def _flush(self) -> None:
        self._flush_is_due = False
        outbox = self._outbox
        if outbox is None:
            return
        if outbox.pushed_size:
            outbox.flush()
        if outbox.is_behind:
            self._pipeline.block()
            self.report_memory()
        self._adjust_reading()

    # -- the RequestMemory's calls --------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        return self.facts.client_host

    @property
    def awaits_peer(self) -> bool:
        return self._pipeline.has_waiting_frame or (self._outbox is not None and self._outbox.awaits_peer)

    @property
    def has_unread_bytes(self) -> bool:
        return self._outbox is not None and self._outbox.has_unread_bytes

    def report_memory(self) -> None:
        held_size = self._assembler.held_size + self._pipeline.waiting_size
        if self._outbox is not None and self._outbox.is_behind:
            held_size += self._outbox.queued_size
        is_receiving = self._assembler.has_partial_frame and not self._pipeline.is_stopped
        if held_size != self._held_size or is_receiving is not self._is_receiving:
            self._held_size, self._is_receiving = held_size, is_receiving
            self._memory.hold(self, held_size, is_receiving=is_receiving)

    def pause_for_memory(self) -> None:
        self._has_memory = False
        self._paused_since_ms = self._registry.monotonic_ms()
        self._adjust_reading()

    def memory_available(self) -> None:
        self._has_memory = True
        if self.partial_since_ms is not None:  # it was not the peer who made it wait
            self.partial_since_ms += self._registry.monotonic_ms() - self._paused_since_ms
        self._adjust_reading()

    def close_for_memory(self, held_size: int) -> None:
        self.close(f"it stalls and holds {held_size} bytes, and others wait for memory", NO_MEMORY, logging.WARNING)

    def _frame_kept(self, buffer: FrameBuffer) -> None:
        self.report_memory()  # it is no unfinished frame any more
        self._memory.keep(self, buffer)

    # -- reading --------------------------------------------------------------------------------------------------

    def _let_others_go_first(self) -> None:
        """Go on with what was received, and with reading, in the next turn of the loop. libuv would call this connection up to 32 times
        before it serves another."""
        if not self._is_others_turn:
            self._is_others_turn = True
            self._adjust_reading()
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_others_turn = False
        if self._assembler.is_interrupted:
            self._ready()
        else:
            self._adjust_reading()

    def _writable(self) -> None:
        self.report_memory()
        self._pipeline.unblock()
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        """Read from the peer exactly while the pipeline takes frames and the turn is its own."""
        wants = self._has_memory and not self._is_others_turn and not self._pipeline.is_stopped
        transport = self._transport
        if wants != self._is_reading and transport is not None and not transport.is_closing():
            self._is_reading = wants
            if wants:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self, reason: str, kind: str = CLOSED_CONNECTIONS, level: int = logging.INFO) -> None:
        """Close now, dropping what is unsent; the peer sees its connection end. Safe to call twice.

        `kind` is the kind of log line, for its limit."""
        if self._transport is not None and not self._transport.is_closing():
            tell = self._registry.log.info if level == logging.INFO else self._registry.log.warning
            tell(
                kind,
                "closing connection client=%s listener=%s reason=%s",
                self.facts.client_host,
                self.facts.listener.name,
                _printable(reason),
            )
            self._pipeline.block()  # `connection_lost` comes later: until then nothing may start
            if self._outbox is not None:
                self._outbox.close()
            self._transport.abort()


def _printable(text: Any) -> str:
    """`text` safe for one log line: peers choose parts of it."""
    return ascii(str(text))[1:-1][:300]
