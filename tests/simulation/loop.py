"""An event loop in virtual time: asyncio code runs on it unchanged, and time moves only when nothing is ready.

Tasks, futures and timeouts are asyncio's own. The order of callbacks is asyncio's too (first in, first out), so that no schedule is
tried that production cannot have; what varies is drawn elsewhere: latencies of the network, durations of the disk, pauses of a node.

Each callback belongs to the node in whose context it was scheduled (`Life`). A killed node's callbacks are dropped where they stand,
those of a paused one wait: that is what SIGKILL and SIGSTOP do to a process. A callback takes no time unless it says so (`take_time`):
then the next callback of its node comes so much later.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.disk import ProcessDiedError
from tests.simulation.trace import Trace

STEPS_WITHOUT_TIME_MAX = 200_000  # callbacks at one moment; more of them is a loop that polls, which would stop virtual time
CLOCK_RESOLUTION_S = 1e-9


class DeadlockError(AssertionError):
    """Nothing is ready, no timer is armed, and the run has not ended."""


class LivelockError(AssertionError):
    """Callbacks schedule each other without end, and time stands still."""


class Life:
    """One run of a node, from its start to its end. `name` is for the trace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.is_busy = False  # with a callback that takes time
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.parked: deque[_Call] = deque()  # what would have run while the node was paused or busy
        self.context = contextvars.Context()
        """All its callbacks run in this one: the broker has no context variables, and a new context costs more than many a callback."""
        self.context.run(_life.set, self)


_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("simulated_life", default=None)


def current_life() -> Life | None:
    return _life.get()


class _Call(asyncio.TimerHandle):
    """A callback, due at once or at `when`. One of a node runs only while the node does."""

    __slots__ = ("life",)

    def __init__(
        self, life: Life | None, when: float, callback: Callable[..., Any], args: Any, loop: SimulatedLoop, context: contextvars.Context
    ) -> None:
        # Not by asyncio's constructors, whose two calls and look for debug mode cost a seed 3 % of its time.
        self.life = life
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._scheduled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module's docstring. `errors` are what asyncio's exception handler was told: a run with one has failed."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.errors: list[dict[str, Any]] = []
        self._now_s = 0.0
        self.taken_us = 0
        """By the callback that is running."""
        self._graveyard: list[asyncio.Task[Any]] = []
        self._steps_at_this_time = 0
        self._nobody = contextvars.Context()  # of what belongs to no node: clients, the network, the world
        self._timers: list[tuple[float, int, _Call]] = []  # a heap; of two that are due at one moment the older one is called first
        self._timers_count = 0
        self.set_exception_handler(self._take_error)
        self.set_task_factory(_make_task)

    # -- time ------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    @property
    def now_us(self) -> int:
        return round(self._now_s * 1_000_000)

    def take_time(self, duration_us: int) -> None:
        """The callback that is running, which is a node's, takes this long. The clock moves when it has ended."""
        if _life.get() is not None:
            self.taken_us += duration_us

    def note(self, kind: str, text: str = "") -> None:
        self.trace.note(self.now_us, kind, text)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def start_in(self, life: Life, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `coroutine` as a task of `life`; whatever it schedules belongs to that life too."""
        context = contextvars.copy_context()
        context.run(_life.set, life)
        return context.run(self.create_task, coroutine)

    def call_in(self, life: Life | None, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        """Schedule a callback that belongs to `life`: the network and the disk call their owners so."""
        return self.call_soon(callback, *args, context=self._context_of(life))

    def call_in_later(self, life: Life | None, delay_s: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay_s, callback, *args, context=self._context_of(life))

    def call_in_at(self, life: Life | None, when_s: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        return self.call_at(when_s, callback, *args, context=self._context_of(life))

    def run_in(self, life: Life | None, callback: Callable[..., Any], *args: Any) -> None:
        """Run a callback of `life` now, or when the node goes on. Only for a caller that belongs to no node itself."""
        if life is None:
            callback(*args)
        else:
            self._run(_Call(life, self._now_s, callback, args, self, life.context))

    def kill(self, life: Life) -> None:
        """The node's process is gone: nothing of it runs any more, not even the `finally` of its tasks, which are therefore kept."""
        life.is_dead = True
        life.parked.clear()
        for task in life.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self._graveyard.append(task)

    def pause(self, life: Life) -> None:
        life.is_paused = True

    def resume(self, life: Life) -> None:
        """Run what has fallen due meanwhile, in the order in which it did."""
        life.is_paused = False
        parked, life.parked = life.parked, deque()
        for handle in parked:
            if not handle.cancelled():
                self._ready.append(handle)  # type: ignore[attr-defined]

    # -- asyncio's hooks -------------------------------------------------------------------------------------------

    def _take_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), ProcessDiedError):
            self.errors.append(context)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        life = _life.get() if context is None else context.get(_life)
        call = _Call(life, self._now_s, callback, args, self, context or self._context_of(life))
        self._ready.append(call)  # type: ignore[attr-defined]
        return call

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        life = _life.get() if context is None else context.get(_life)
        call = _Call(life, when, callback, args, self, context or self._context_of(life))
        self._timers_count += 1
        heapq.heappush(self._timers, (when, self._timers_count, call))
        return call

    def _run_once(self) -> None:
        """One turn, as BaseEventLoop's. What would be a wait for sockets moves the clock to the next timer instead."""
        ready: deque[_Call] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._move_to_next_timer()
        self._steps_at_this_time += 1
        if self._steps_at_this_time > STEPS_WITHOUT_TIME_MAX:
            raise LivelockError(f"{STEPS_WITHOUT_TIME_MAX} turns of the loop at {self._now_s:.6f} s")
        end_s = self._now_s + CLOCK_RESOLUTION_S
        while timers and timers[0][0] < end_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            self._run(ready.popleft())

    def _move_to_next_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise DeadlockError("nothing is scheduled and the run has not ended")
        if timers[0][0] > self._now_s:
            self._now_s = timers[0][0]
            self._steps_at_this_time = 0

    def _run(self, call: _Call) -> None:
        if call._cancelled:
            return
        life = call.life
        if life is not None:
            if life.is_dead:
                return
            if life.is_paused or life.is_busy:
                life.parked.append(call)
                return
        try:
            call._context.run(call._callback, *call._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"Exception in callback {call._callback!r}", "exception": error, "handle": call})
        if self.taken_us:
            assert life is not None, "only a node's callback takes time"
            life.is_busy = True
            self.call_in_later(None, self.taken_us / 1_000_000, self._end_work, life)
            self.taken_us = 0

    def _end_work(self, life: Life) -> None:
        """What has fallen due meanwhile comes before what falls due now: bytes arrive in their order."""
        life.is_busy = False
        if not life.is_paused:
            self._ready.extendleft(reversed(life.parked))  # type: ignore[attr-defined]
            life.parked.clear()

    def _context_of(self, life: Life | None) -> contextvars.Context:
        return self._nobody if life is None else life.context

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """`executor` is a simulated one: a run has no threads."""
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **named)
    life = current_life() if named.get("context") is None else named["context"].get(_life)
    if life is not None:
        life.tasks.add(task)
    return task
