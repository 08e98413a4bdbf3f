"""One client's connection: receives frames, passes them to its pipeline, and sends the responses.

An asyncio BufferedProtocol: the kernel writes into the assembler's buffers, so a large produce is received once and written to the log from
there. All responses to the requests of one read are sent together, because uvloop does not coalesce small writes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from enum import Enum
from typing import cast

from broker.loop.clock import NS_PER_MS, Timer
from broker.loop.cpu_time import NetworkTime
from broker.network.closing import (
    CLOSED_CONNECTIONS,
    FAILED_AUTHENTICATIONS,
    FAILED_REQUESTS,
    FAILED_TLS,
    LARGE_REQUESTS,
    NO_MEMORY,
    REFUSED_REQUESTS,
    closing_for,
    printable,
)
from broker.network.connection_interfaces import Authenticator, Handle, Refuse, Registry, no_answer
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.network.outbox import Outbox
from broker.network.reading import Mute, Reading
from broker.network.request_pipeline import Chunks, RequestPipeline
from broker.network.sockets import SYSTEM_DEFAULT, layer_of, set_send_buffer
from protocol.apis import DECLARED
from protocol.errors import RequestLimitError
from protocol.framing import SCRATCH_SIZE, FrameAssembler, FrameBuffer
from storage.file_slice import FileSlice

SMALL_READ_SIZE = 4 * 1024
"""Bytes. Poll for the next read only after one this small: after a large one the client waits for bandwidth, and polling gains nothing."""
CORK_SIZE_MAX = 64 * 1024
"""Bytes of replies that are held back until the end of a read; more are sent at once, which shows whether the peer takes them."""


class State(Enum):
    """The states of a connection."""

    NEW = "new"
    """Not made yet, or refused by the limits."""
    OPEN = "open"
    CLOSING = "closing"
    """Aborted by us: nothing starts and nothing is sent any more, and `connection_lost` is to come."""
    CLOSED = "closed"


_OPEN = State.OPEN  # read several times a request


class _Flush(Enum):
    """When queued responses will be sent."""

    NOT_DUE = 1
    AT_END_OF_READ = 2
    """Frames are being handled, and all their answers leave together."""
    SCHEDULED = 3


_NOT_DUE, _AT_END_OF_READ, _SCHEDULED = _Flush


class Connection(asyncio.BufferedProtocol):
    """Created by the listener for each accepted socket; lives until `connection_lost`."""

    __slots__ = (
        "_assembler",
        "_authenticator",
        "_buffer_size",
        "_busy_poll",
        "_end_timer",
        "_flushing",
        "_held_size",
        "_is_receiving",
        "_loop",
        "_memory",
        "_monotonic_ns",
        "_outbox",
        "_pipeline",
        "_quota_timer",
        "_reading",
        "_registry",
        "_throttled_until_ms",
        "_transport",
        "authenticating_since_ms",
        "facts",
        "last_active_ms",
        "state",
    )

    def __init__(
        self,
        registry: Registry[Connection],
        listener: ListenerFacts,
        handle: Handle,
        authenticator: Authenticator[Connection] | None = None,
        refuse: Refuse = no_answer,
    ) -> None:
        self._registry = registry
        self._loop = registry.loop
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None
        self.facts = ConnectionFacts(0, listener, "")
        self._authenticator = authenticator
        self.authenticating_since_ms: int | None = None
        """When an unauthenticated peer connected (monotonic); None once it is authenticated, or if nobody asks."""
        start = functools.partial(handle if authenticator is None else authenticator.begin(self, handle, refuse), facts=self.facts)
        self._pipeline = RequestPipeline(
            start=start, send=self._send, on_ready=self._ready, on_error=self._failed, schedule=self._loop.call_soon
        )
        self._assembler = FrameAssembler(
            self._pipeline.offer,
            max_frame_size=listener.max_frame_size if authenticator is None else authenticator.frame_size_max,
            max_request_size=listener.max_request_size,
            pool=registry.pool,
            on_kept=self._frame_kept,
            has_time_left=registry.frame_turn.has_time_left,
        )
        self._memory = registry.memory
        self._monotonic_ns = registry.monotonic_ns
        self._busy_poll = registry.busy_poll
        self.state = State.NEW
        self._flushing = _NOT_DUE
        self._reading = Reading(self._pipeline, registry.monotonic_ms)
        self._quota_timer: Timer | None = None
        self._end_timer: Timer | None = None
        self._throttled_until_ms = 0
        self._buffer_size = 0  # bytes offered for the present read
        self._held_size = 0  # bytes last reported to the RequestMemory
        self._is_receiving = False  # whether a frame was unfinished at that report
        self.last_active_ms = 0

    @property
    def is_busy(self) -> bool:
        """Whether the peer waits for us: it has a parked request, or a response that is not sent yet. Such a connection is not idle."""
        return bool(self._pipeline.unanswered) or (self._outbox is not None and self._outbox.is_behind)

    @property
    def is_muted(self) -> bool:
        """Whether we do not read from it: an unfinished frame is then not the peer's delay."""
        return self._reading.is_muted

    @property
    def partial_since_ms(self) -> int | None:
        """As Reading's."""
        return self._reading.partial_since_ms

    @property
    def is_deserted(self) -> bool:
        """Whether the peer has reset the connection while reading was paused: the responses have no reader."""
        return not self._reading.is_on and self._outbox is not None and self._outbox.is_reset

    # -- asyncio's calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports don't inherit asyncio's
        peer = transport.get_extra_info("peername")
        self.facts.client_host = peer[0] if peer else "unknown"
        delay_ms = self._registry.admit(self)
        if delay_ms is not None:
            self.turn_away(delay_ms)
            return
        self.state = _OPEN
        self._reading.begin(self._transport)
        if self._authenticator is not None:
            self.authenticating_since_ms = self.last_active_ms
        layer = layer_of(self._transport, self._registry.network)
        self.facts.network_time = time = NetworkTime(self._registry.cpu_meter)
        self._outbox = Outbox(layer, self._loop, self._registry.executor, on_writable=self._writable, on_broken=self.close, time=time)
        self.facts.throttle = self.throttle
        if self.facts.listener.send_buffer_bytes != SYSTEM_DEFAULT:
            self.facts.limit_send_buffer = self._limit_send_buffer

    def turn_away(self, delay_ms: int) -> None:
        """Close a connection that the limits did not let in, after `delay_ms`; until then it is not read."""
        transport = self._transport
        assert transport is not None and self.state is State.NEW
        if delay_ms:
            transport.pause_reading()
            self._end_timer = self._registry.call_later(delay_ms, transport.abort)
        else:
            transport.abort()

    def _limit_send_buffer(self) -> None:
        """Bound what waits in the socket, so that a consumer reads it while it is still in a cache. The bound is permanent: the system
        no longer tunes the buffer. A follower gains nothing from it and costs its leader 7 % more CPU with it."""
        self.facts.limit_send_buffer = None
        if self._transport is not None:
            set_send_buffer(self._transport, self.facts.listener.send_buffer_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        try:
            buffer = self._assembler.get_buffer()
        except MemoryError as e:
            # Raising here, or closing, would close the descriptor during libuv's read. The bytes that it reads are dropped.
            self._assembler.close()
            self._loop.call_soon(self.close, str(e) or "out of memory", NO_MEMORY, logging.WARNING)
            buffer = self._registry.pool.scratch
        self._buffer_size = len(buffer)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_ms = self._monotonic_ns() // NS_PER_MS
        self._flushing = _AT_END_OF_READ
        try:
            self._assembler.buffer_updated(nbytes)
        except Exception as e:
            self._failed(e)
        self._after_frames()
        if nbytes == self._buffer_size and not (nbytes <= SCRATCH_SIZE and self._assembler.has_short_rest):
            self._let_others_go_first(self._loop.call_soon)  # but a frame that has just begun is read on: a turn costs more than its rest
        elif nbytes <= SMALL_READ_SIZE and self._busy_poll is not None and not self._pipeline.unanswered:
            self._busy_poll.read_answered(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause_writing()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = State.CLOSED
        self._reading.end()
        self.facts.close()
        for timer in (self._quota_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        self._quota_timer = self._end_timer = None
        self._authenticator = None
        self._pipeline.close()
        self._assembler.close()
        self._memory.forget(self)
        if self._outbox is not None:
            self._outbox.close()
        self._registry.forget(self)

    # -- authentication -------------------------------------------------------------------------------------------

    def secured(self, certificate: bytes | None) -> None:
        """Called after the TLS handshake."""
        if self._authenticator is not None and self.state is _OPEN:
            self._authenticator.secured(self, certificate)

    def security_failed(self, reason: str) -> None:
        """Called when TLS has failed."""
        self._count_failure()
        self.close(reason, FAILED_TLS)

    def authentication_failed(self, reason: str) -> None:
        """The peer is nobody who is known here, or has not said in time who it is."""
        self._count_failure()
        self.close(reason, FAILED_AUTHENTICATIONS)

    def _count_failure(self) -> None:
        if self.state is _OPEN:
            is_first = self.authenticating_since_ms is not None
            self._registry.on_authentication(self.facts.listener.name, "failed_authentication" if is_first else "failed_reauthentication")

    def authenticated(self, principal: str, *, is_by_token: bool = False) -> None:
        """Serve the peer from now on as `principal` (`Type:name`)."""
        is_first = self.authenticating_since_ms is not None
        self._registry.on_authentication(
            self.facts.listener.name, "successful_authentication" if is_first else "successful_reauthentication"
        )
        self.authenticating_since_ms = None
        self.facts.principal = principal
        self.facts.is_token_authenticated = is_by_token
        self._assembler.max_frame_size = self.facts.listener.max_frame_size

    def close_later(self, answer: Chunks, reason: str, delay_ms: int) -> None:
        """Read nothing more, and send `answer` and close after `delay_ms`: who guesses passwords has to wait."""
        if self.state is not _OPEN or self._end_timer is not None:
            return
        self._pipeline.block()
        self._reading.mute(Mute.END)
        self._end_timer = self._registry.call_later(delay_ms, self._end, answer, reason)

    def _end(self, answer: Chunks, reason: str) -> None:
        self._end_timer = None
        if answer:
            self._send(answer)
            self._flush()
        self.authentication_failed(reason)

    # -- the pipeline's calls -------------------------------------------------------------------------------------

    def _send(self, chunks: Chunks) -> None:
        outbox = self._outbox
        assert outbox is not None
        if self.state is not _OPEN:
            _release(chunks)
            return
        for chunk in chunks:
            outbox.push(chunk)
        if outbox.pushed_size >= CORK_SIZE_MAX:
            flushing = self._flushing
            self._flush()
            self._flushing = flushing  # the end of the read sends them
        elif self._flushing is _NOT_DUE:
            if self.facts.sends_at_once and not self._pipeline.unanswered:  # else the next responses may be sent with this one
                self._flush()
                return
            self._flushing = _SCHEDULED
            self._loop.call_soon(self._flush)

    def _ready(self) -> None:
        """Called when the pipeline takes frames again: pass the received ones, then read new ones."""
        if self._flushing is _AT_END_OF_READ:
            return
        self._flushing = _AT_END_OF_READ
        try:
            self._assembler.resume()
        except Exception as e:
            self._failed(e)
        self._after_frames()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, RequestLimitError):
            self._refuse(error)
        elif (closing := closing_for(error)) is not None:
            self.close(*closing)
        else:
            self._registry.log.error(
                FAILED_REQUESTS, "request failed outside its handler client=%s", self.facts.client_host, exc_info=error
            )
            self.close("internal error", REFUSED_REQUESTS)

    def _refuse(self, error: RequestLimitError) -> None:
        api = DECLARED.get(error.api_key)
        api_name = api.name if api is not None else f"API {error.api_key}"
        self._registry.on_refused(api_name, error.limit.value)
        client_id = self.facts.client_id_text
        self.close(f"{api_name} of client id {client_id!r} is beyond {error.limit.value}: {error}", LARGE_REQUESTS, logging.WARNING)

    # -- flow -----------------------------------------------------------------------------------------------------

    def _after_frames(self) -> None:
        self._flush()
        is_partial = self._assembler.has_partial_frame
        if is_partial or self._held_size or self._pipeline.is_stopped:
            self.report_memory()
        if not is_partial:
            self._reading.partial_since_ms = None
        elif self._assembler.is_interrupted:
            self._let_others_go_first(self._registry.frame_turn.wait)
        elif self._reading.partial_since_ms is None:
            self._reading.partial_since_ms = self.last_active_ms

    def _flush(self) -> None:
        self._flushing = _NOT_DUE
        outbox = self._outbox
        if outbox is None:
            return
        if outbox.pushed_size:
            outbox.flush()
        if outbox.is_behind:
            self._pipeline.block()
            self.report_memory()
        if self._pipeline.is_stopped or not self._reading.is_on:
            self._reading.adjust()

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
        self._reading.mute(Mute.MEMORY)

    def memory_available(self) -> None:
        self._reading.unmute(Mute.MEMORY)
        self._reading.adjust()

    def close_for_memory(self, held_size: int) -> None:
        self.close(f"it stalls and holds {held_size} bytes, and others wait for memory", NO_MEMORY, logging.WARNING)

    def _frame_kept(self, buffer: FrameBuffer) -> None:
        self.report_memory()  # the frame is finished
        self._memory.keep(self, buffer)

    # -- reading --------------------------------------------------------------------------------------------------

    def throttle(self, duration_ms: int) -> None:
        """Read and start no requests for `duration_ms` because the client is over a quota; a throttling that ends later stays. Started
        requests are answered, as in Kafka (KIP-219)."""
        if self.state is not _OPEN:
            return
        until_ms = self._registry.monotonic_ms() + duration_ms
        if self._quota_timer is not None:
            if self._throttled_until_ms >= until_ms:
                return
            self._quota_timer.cancel()
        self._throttled_until_ms = until_ms
        self._quota_timer = self._registry.call_later(duration_ms, self._throttling_over)
        self._pipeline.block()
        self._reading.mute(Mute.QUOTA)

    def _throttling_over(self) -> None:
        self._quota_timer = None
        self._reading.unmute(Mute.QUOTA)
        self._unblock()
        self._reading.adjust()

    def _unblock(self) -> None:
        """Unblock the pipeline, unless there is still a reason to block it."""
        reading = self._reading
        if reading.is_muted_for(Mute.QUOTA) or reading.is_muted_for(Mute.END) or self._outbox is None or self._outbox.is_behind:
            return
        self._pipeline.unblock()

    def _let_others_go_first(self, wait: Callable[..., object]) -> None:
        """Resume handling and reading in a later turn of the loop, when `wait` calls. libuv would call this connection up to 32 times
        before it serves another."""
        if not self._reading.is_muted_for(Mute.TURN):
            self._reading.mute(Mute.TURN)
            wait(self._take_turn)

    def _take_turn(self) -> None:
        self._reading.unmute(Mute.TURN)
        if self._assembler.is_interrupted:
            self._ready()
        else:
            self._reading.adjust()

    def _writable(self) -> None:
        self.report_memory()
        self._unblock()
        self._reading.adjust()

    def close(self, reason: str, kind: str = CLOSED_CONNECTIONS, level: int = logging.INFO) -> None:
        """Close now, dropping what is unsent; the peer sees its connection end. Safe to call twice.

        `kind` is the kind of log line, for its limit."""
        transport = self._transport
        if self.state is not _OPEN or transport is None:
            return
        self.state = State.CLOSING
        self._reading.end()
        if not transport.is_closing():
            log_line = self._registry.log.info if level == logging.INFO else self._registry.log.warning
            log_line(
                kind,
                "closing connection client=%s listener=%s reason=%s",
                self.facts.client_host,
                self.facts.listener.name,
                printable(reason),
            )
        self._pipeline.block()  # `connection_lost` comes later; no request may start until then
        if self._outbox is not None:
            self._outbox.close()
        transport.abort()


def _release(chunks: Chunks) -> None:
    """Release the files of a response that is not sent."""
    for chunk in chunks:
        if isinstance(chunk, FileSlice):
            chunk.release()
