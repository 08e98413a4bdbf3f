"""WorkerProcess: the broker's end of its worker, which starts for the first job, restarts when it dies, and ends after a long idle time.

The worker is sent SHORT_JOBS_MAX short jobs, and long ones up to LONG_BYTES_MAX (a single one may have more); other jobs wait here.
Callers limit how much they submit.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import Any

from broker.loop.clock import Clock, Timer
from broker.loop.deferred import Deferred
from broker.worker.channel import Channel, spawn
from broker.worker.jobs import Outcome
from broker.worker.messages import INLINE_BYTES_MAX, Message, encode_message, memory_file

logger = logging.getLogger("barnabas.worker")

SHORT_JOBS_MAX = 64
LONG_BYTES_MAX = 16 * 1024 * 1024
IDLE_MS = 60_000
"""Without a job for so long, the process goes, and its memory with it."""
START_INTERVAL_MS = 1_000
"""Between two starts at least."""


class WorkerDiedError(Exception):
    """Two processes died at this job, the second while it had nothing else to do."""


class _Submitted:
    """One job until its answer."""

    __slots__ = ("answer", "arguments", "buffers", "copying_ns", "id", "is_short", "is_suspect", "name", "size_bytes")

    def __init__(self, job_id: int, name: str, arguments: Any, buffers: Sequence[memoryview], is_short: bool) -> None:
        self.id = job_id
        self.name = name
        self.arguments = arguments
        self.buffers = buffers
        self.is_short = is_short
        self.size_bytes = sum(map(len, buffers))
        self.copying_ns = 0  # of a thread
        self.is_suspect = False
        self.answer = Deferred()


class WorkerProcess:
    """Satisfies Worker. `run_blocking` runs a function in a thread and returns its future."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, run_blocking: Callable[..., asyncio.Future[Any]], niceness: int
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._run_blocking = run_blocking
        self._niceness = niceness
        self._waiting_short: deque[_Submitted] = deque()
        self._waiting_long: deque[_Submitted] = deque()
        self._suspects: deque[_Submitted] = deque()  # the process died at one of them: they run one by one, before all others
        self._in_flight: dict[int, _Submitted] = {}
        self._short_in_flight = 0
        self._long_bytes_in_flight = 0
        self._next_id = 0
        self._channel: Channel | None = None
        self._is_starting = False
        self._is_closed = False
        self._next_start_ms = clock.monotonic_ms()
        self._timer: Timer | None = None
        self._last_used_ms = 0
        self._background: set[asyncio.Future[Any]] = set()

    @property
    def process_id(self) -> int | None:
        """Of the process that runs now."""
        return None if self._channel is None else self._channel.process_id

    def submit(self, job: str, arguments: Any, buffers: Sequence[memoryview], *, is_short: bool) -> Deferred:
        submitted = _Submitted(self._next_id, job, arguments, buffers, is_short)
        self._next_id += 1
        submitted.answer.on_abandon = lambda: self._withdraw(submitted)
        (self._waiting_short if is_short else self._waiting_long).append(submitted)
        self._hand_over()
        return submitted.answer

    async def close(self) -> None:
        """End the process; what waits is not answered any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._end_process()
        while self._background:
            await asyncio.wait(self._background)

    # -- handing over ----------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """Give the process what it may have; start it first where there is none."""
        if self._is_closed or not (self._suspects or self._waiting_short or self._waiting_long):
            return
        if self._channel is None:
            self._start()
            return
        if self._suspects:
            if not self._in_flight:
                self._give(self._suspects.popleft(), self._channel)
            return
        while self._waiting_short and self._short_in_flight < SHORT_JOBS_MAX:
            self._give(self._waiting_short.popleft(), self._channel)
        while self._waiting_long and (
            not self._long_bytes_in_flight or self._long_bytes_in_flight + self._waiting_long[0].size_bytes <= LONG_BYTES_MAX
        ):
            self._give(self._waiting_long.popleft(), self._channel)

    def _give(self, submitted: _Submitted, channel: Channel) -> None:
        self._count(submitted, 1)
        if submitted.size_bytes <= INLINE_BYTES_MAX:
            self._send(submitted, channel, None)
            return
        copying = self._run_blocking(_copy_buffers, submitted)
        self._watch(copying, functools.partial(self._copied, submitted, channel))

    def _copied(self, submitted: _Submitted, channel: Channel, copying: asyncio.Future[int]) -> None:
        if copying.cancelled():
            return
        error = copying.exception()
        if error is not None:
            if self._in_flight.get(submitted.id) is submitted:
                self._finish(submitted, error)
                self._hand_over()  # nothing else may be on its way whose answer would
        elif channel is self._channel and self._in_flight.get(submitted.id) is submitted:
            self._send(submitted, channel, copying.result())
        else:
            os.close(copying.result())

    def _send(self, submitted: _Submitted, channel: Channel, descriptor: int | None) -> None:
        request = (submitted.id, (submitted.name, submitted.arguments, submitted.is_short))
        channel.send(encode_message(request, submitted.buffers, has_file=descriptor is not None), descriptor)

    def _withdraw(self, submitted: _Submitted) -> None:
        if self._in_flight.get(submitted.id) is not submitted:
            line = self._suspects if submitted.is_suspect else self._waiting_short if submitted.is_short else self._waiting_long
            line.remove(submitted)
            return
        self._count(submitted, -1)
        if self._channel is not None:
            self._channel.send(encode_message((submitted.id, None), (), has_file=False), None)
        self._hand_over()

    def _count(self, submitted: _Submitted, change: int) -> None:
        if change > 0:
            self._in_flight[submitted.id] = submitted
        else:
            del self._in_flight[submitted.id]
        if submitted.is_short:
            self._short_in_flight += change
        else:
            self._long_bytes_in_flight += change * submitted.size_bytes

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, message: Message) -> None:
        job_id, value, taken_ns = message.value
        submitted = self._in_flight.get(job_id)
        if submitted is not None:  # else it was withdrawn
            self._finish(
                submitted, value if isinstance(value, Exception) else Outcome(value, message.buffers, submitted.copying_ns + taken_ns)
            )
            self._hand_over()

    def _finish(self, submitted: _Submitted, outcome: Any) -> None:
        self._count(submitted, -1)
        self._last_used_ms = self._clock.monotonic_ms()
        submitted.answer.complete(outcome)

    # -- the process -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._is_starting or self._is_closed:
            return
        self._is_starting = True
        delay_ms = self._next_start_ms - self._clock.monotonic_ms()
        if delay_ms > 0:
            self._timer = self._clock.call_later(delay_ms, self._spawn)
        else:
            self._spawn()

    def _spawn(self) -> None:
        self._next_start_ms = self._clock.monotonic_ms() + START_INTERVAL_MS
        self._watch(self._run_blocking(spawn, self._niceness), self._spawned)

    def _spawned(self, spawning: asyncio.Future[Any]) -> None:
        self._is_starting = False
        error = spawning.exception()
        if error is not None:
            logger.error("the worker process could not be started: %s", error)
            self._refuse_all(error)
            return
        process, stream = spawning.result()
        self._channel = Channel(self._loop, process, stream, self._answered, self._lost)
        if self._is_closed:
            self._end_process()
            return
        logger.debug("worker process started pid=%d", process.pid)
        self._last_used_ms = self._clock.monotonic_ms()
        self._timer = self._clock.call_later(IDLE_MS, self._end_if_idle)
        self._hand_over()

    def _refuse_all(self, error: BaseException) -> None:
        """Fail all waiting jobs; the next job tries to start a process again."""
        refused = [*self._suspects, *self._waiting_short, *self._waiting_long]
        self._suspects.clear()
        self._waiting_short.clear()
        self._waiting_long.clear()
        for submitted in refused:
            submitted.answer.complete(error)

    def _lost(self) -> None:
        """The process has died at one of its jobs; one that was alone with it fails."""
        logger.error("the worker process died; jobs in flight: %d", len(self._in_flight))
        self._end_process()
        died, self._in_flight = list(self._in_flight.values()), {}
        self._short_in_flight = self._long_bytes_in_flight = 0
        for submitted in died:
            if submitted.is_suspect:
                submitted.answer.complete(WorkerDiedError("the worker process died at it twice"))
            else:
                submitted.is_suspect = True
                self._suspects.append(submitted)
        self._hand_over()

    def _end_if_idle(self) -> None:
        idle_ms = self._clock.monotonic_ms() - self._last_used_ms
        if self._in_flight or idle_ms < IDLE_MS:
            self._timer = self._clock.call_later(IDLE_MS if self._in_flight else IDLE_MS - idle_ms, self._end_if_idle)
        else:
            self._end_process()

    def _end_process(self) -> None:
        channel, self._channel = self._channel, None
        if channel is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        channel.close()
        self._watch(self._run_blocking(channel.wait_for_process), _ignore)

    def _watch(self, future: asyncio.Future[Any], on_done: Callable[[asyncio.Future[Any]], None]) -> None:
        self._background.add(future)
        future.add_done_callback(self._background.discard)
        future.add_done_callback(on_done)


def _copy_buffers(submitted: _Submitted) -> int:
    """Runs in a thread."""
    start_ns = thread_time_ns()
    descriptor = memory_file(submitted.buffers)
    submitted.copying_ns += thread_time_ns() - start_ns
    return descriptor


def _ignore(future: asyncio.Future[Any]) -> None:
    """The process is gone, and that was all that was asked for."""
