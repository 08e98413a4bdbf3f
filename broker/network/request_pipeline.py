"""The order of one connection's requests and responses, without I/O.

Kafka keeps one request in flight for each connection: it mutes the socket until the response is written (SocketServer). This pipeline
behaves the same for clients and is faster for producers: a Produce may start if all unanswered requests before it are parked Produces, up
to PARKED_PRODUCES_MAX. A Produce that has not appended its records yet holds the order: nothing starts behind it. Any other request waits
until all before it are answered: a Fetch that overtakes a parked one would break its session. Responses are sent in request order.

A completion only sends. It is called inside some other operation (a LeaveGroup that answers the joins of others, an append that wakes
fetches), whose state may be half changed. A request that started there would see and change that state. So a request that an answer allows
to start is started by `schedule`, in a later turn of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from broker.loop.deferred import Deferred
from protocol.framing import keep

PARKED_PRODUCES_MAX = 64
PRODUCE_KEY_BYTES = b"\x00\x00"  # the first two bytes of a frame are the API key

Chunks = Sequence[Any]
"""One encoded response: bytes and FileSlices, in order."""


class _Intake(Enum):
    """Whether frames are taken, and which event calls `on_ready` if not."""

    OPEN = 1
    STOPPED = 2
    """The last offer returned False: an answer or `unblock` has to come."""
    RESUMING = 3
    """That has come, and the call that resumes the intake is scheduled."""
    CLOSED = 4


_OPEN, _STOPPED, _RESUMING, _CLOSED = _Intake


class _Slot:
    """The place of one unanswered request. `chunks` is None until it is answered."""

    __slots__ = ("chunks", "deferred", "is_produce")

    def __init__(self, deferred: Deferred, is_produce: bool) -> None:
        self.deferred = deferred
        self.is_produce = is_produce
        self.chunks: Chunks | None = None


class RequestPipeline:
    """Starts requests when their turn comes and sends responses in their order.

    `start(frame)` runs one request and returns its chunks, None for "no response", or a Deferred of chunks; it is called by `offer` and by
    scheduled calls, never by a completion. `send(chunks)` gets each response in order. `on_ready()` is called when, after `offer` returned
    False, frames may be offered again. `schedule(callback)` calls back once, in a later turn of the loop. An exception of `start` is raised
    by `offer`; for a request that waited, `on_error(exception)` gets it.
    """

    __slots__ = (
        "_intake",
        "_is_blocked",
        "_on_error",
        "_on_ready",
        "_schedule",
        "_send",
        "_start",
        "_waiting",
        "is_stopped",
        "unanswered",
        "waiting_size",
    )

    def __init__(
        self,
        *,
        start: Callable[[memoryview], Chunks | Deferred | None],
        send: Callable[[Chunks], None],
        on_ready: Callable[[], None],
        on_error: Callable[[BaseException], None],
        schedule: Callable[[Callable[[], None]], object],
    ) -> None:
        self._start = start
        self._send = send
        self._on_ready = on_ready
        self._on_error = on_error
        self._schedule = schedule
        self.unanswered: deque[_Slot] = deque()
        """The requests that were started and are not yet answered, oldest first."""
        self._waiting: memoryview | None = None
        self.waiting_size = 0  # bytes copied of the frame that waits; one that was handed over counts as long as anyone refers to it
        self._intake = _OPEN
        self._is_blocked = False
        self.is_stopped = False
        """Whether frames are turned away until `on_ready`, or would be: reading more of them makes no sense."""

    @property
    def has_waiting_frame(self) -> bool:
        """Whether a frame waits until requests before it are answered, or their answers taken."""
        return self._waiting is not None

    def offer(self, frame: memoryview) -> bool:
        """Take one frame; a frame without its own buffer is valid only during this call. Returns False if no more may be offered until
        `on_ready`."""
        assert self._waiting is None, "offered a frame while one waits"
        if not self.unanswered and not self._is_blocked:
            self._run(frame, False)
        elif self._may_start(frame):
            self._run(frame, True)
        else:
            self._waiting = keep(frame)
            self.waiting_size = 0 if self._waiting is frame else len(frame)
        if self._is_blocked or self._waiting is not None:
            self._intake = _STOPPED
            self.is_stopped = True
            return False
        return True

    def block(self) -> None:
        """Start no requests until `unblock`: the peer does not take its responses."""
        self._is_blocked = self.is_stopped = True

    def unblock(self) -> None:
        """Start requests again: the peer takes its responses."""
        self._is_blocked = False
        self.is_stopped = self._intake is not _OPEN
        self._resume_intake_later()

    def close(self) -> None:
        """Called when the connection has ended: parked requests leave their purgatories, answers are dropped, and no request starts any
        more."""
        self._intake = _CLOSED
        self.is_stopped = True
        self._waiting = None
        self.waiting_size = 0
        # These callbacks refer to the connection: break the cycle.
        self._start, self._send, self._on_ready, self._on_error = _no_answer, _nothing, _nothing, _nothing
        slots, self.unanswered = self.unanswered, deque()
        for slot in slots:
            slot.deferred.abandon()
            for chunk in slot.chunks or ():
                if hasattr(chunk, "release") and not isinstance(chunk, memoryview):
                    chunk.release()

    def _may_start(self, frame: memoryview) -> bool:
        if self._is_blocked or len(self.unanswered) >= PARKED_PRODUCES_MAX or frame[:2] != PRODUCE_KEY_BYTES:
            return False
        # If the first is a Produce, all are: any other request is alone. Nothing is behind one that holds the order.
        return self.unanswered[0].is_produce and not self.unanswered[-1].deferred.holds_order

    def _run(self, frame: memoryview, is_produce: bool) -> None:
        response = self._start(frame)
        if type(response) is Deferred and response.is_done:
            response = response.take()
        if response is None:
            return
        if type(response) is Deferred:
            slot = _Slot(response, is_produce or frame[:2] == PRODUCE_KEY_BYTES)
            self.unanswered.append(slot)
            response.when_done(lambda chunks: self._answered(slot, chunks))
            response.on_order_released = self._resume_intake_later
        elif self.unanswered:
            slot = _Slot(Deferred(), True)
            slot.chunks = response
            self.unanswered.append(slot)
        else:
            self._send(response)

    def _answered(self, slot: _Slot, chunks: Any) -> None:
        if isinstance(chunks, BaseException):
            self._on_error(chunks)
            return
        slot.chunks = chunks
        slots = self.unanswered
        while slots and slots[0].chunks is not None:
            self._send(slots.popleft().chunks)  # type: ignore[arg-type]
        self._resume_intake_later()

    def _resume_intake_later(self) -> None:
        if self._intake is _STOPPED:
            self._intake = _RESUMING
            self._schedule(self._resume_intake)

    def _resume_intake(self) -> None:
        """Start the waiting frame if its turn has come, then ask for more."""
        if self._intake is not _RESUMING:
            return  # closed meanwhile
        self._intake = _STOPPED
        if self._is_blocked:
            return
        if self._waiting is not None:
            if self.unanswered and not self._may_start(self._waiting):
                return
            frame, self._waiting = self._waiting, None
            self.waiting_size = 0
            try:
                self._run(frame, bool(self.unanswered))
            except Exception as e:
                self._on_error(e)
                return
            if self._is_blocked:
                return
        self._intake = _OPEN
        self.is_stopped = False
        self._on_ready()


def _no_answer(_frame: memoryview) -> None:
    return None


def _nothing(*_arguments: object) -> None:
    pass
