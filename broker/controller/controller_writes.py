"""ControllerWrites: appends the records of an active controller's operations to the metadata log.

The records of an operation are appended at once and replayed into the controller's state; the operation is answered when they are
committed. There is no await between computing and appending. Long operations are computed and appended step by step, and other operations
run between two steps. An operation without records waits for the earlier ones, so that no answer is ahead of the metadata cache.

Source: QuorumController.appendWriteEvent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, ControllerResult, Steps
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.decision_log import DecisionLog
    from broker.quorum.quorum import Quorum

logger = logging.getLogger("barnabas.controller")

Response = TypeVar("Response")

OnCommitted = Callable[[KafkaError | None], None]
"""Called once: with None when a proposal and everything before it is committed and in the cache, or with why it never will be."""

STEPS_AT_ONCE = 2
"""Steps of an operation that are done before others have their turn, 1 to 2 ms each; an operation on few topics has one."""


class _Waiting(NamedTuple):
    offset: int
    on_committed: OnCommitted


class Leadership:
    """One epoch of this node's leadership: its controller, and the callbacks that wait for a commit, in the order of the log."""

    def __init__(self, epoch: int, controller: Controller, last_offset: int) -> None:
        self.epoch = epoch
        self.controller = controller
        self.last_offset = self.committed_offset = last_offset
        self.waiting: deque[_Waiting] = deque()

    def end(self, why: KafkaError) -> None:
        waiting, self.waiting = self.waiting, deque()
        for each in waiting:
            each.on_committed(why)


class ControllerWrites:
    """See the module's docstring. Has a Leadership while this node leads."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._turn = asyncio.Lock()
        self._leadership: Leadership | None = None
        self._own_work: set[asyncio.Task[None]] = set()
        self.decisions: DecisionLog | None = None
        """Is told of each batch before it is replayed, once this node has led with others."""

    # -- leadership ------------------------------------------------------------------------------------------------

    def begin(self, epoch: int, controller: Controller) -> None:
        """Called when this node becomes leader, with a controller that has replayed the whole log."""
        self._leadership = Leadership(epoch, controller, self._quorum.end_offset - 1)

    def end(self, why: KafkaError) -> int | None:
        """Called when the leadership ends: waiting operations are answered with `why`. Returns the epoch that ended; None if there was
        none."""
        leadership, self._leadership = self._leadership, None
        if leadership is None:
            return None
        leadership.end(why)
        return leadership.epoch

    @property
    def is_active(self) -> bool:
        """Whether this node leads the metadata quorum."""
        return self._leadership is not None

    @property
    def leadership(self) -> Leadership:
        """Raises KafkaError NOT_CONTROLLER while this node does not lead."""
        self.check_active()
        assert self._leadership is not None
        return self._leadership

    def check_active(self) -> None:
        """Raises KafkaError NOT_CONTROLLER while this node does not lead."""
        if self._leadership is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum.")

    def handle_commit(self, offset: int) -> None:
        """Called when all records up to and including `offset` are committed."""
        leadership = self._leadership
        if leadership is None:
            return
        leadership.committed_offset = offset
        while leadership.waiting and leadership.waiting[0].offset <= offset:
            leadership.waiting.popleft().on_committed(None)

    async def close(self) -> None:
        """Stop the controller's own jobs. The operations of clients end with the quorum."""
        for task in self._own_work:
            task.cancel()
        await asyncio.gather(*self._own_work, return_exceptions=True)

    # -- operations ------------------------------------------------------------------------------------------------

    def run(self, steps: Steps[Any]) -> None:
        """Append the records of a job of the controller itself, step by step, without waiting for the commit."""
        task = asyncio.get_running_loop().create_task(self._run_own(steps, self._leadership))
        self._own_work.add(task)
        task.add_done_callback(self._own_work.discard)

    async def _run_own(self, steps: Steps[Any], leadership: Leadership | None) -> None:
        try:
            if self._leadership is leadership:
                await self.append_own(steps)
        except KafkaError as error:
            logger.info("this controller's own work ends: %s", error)

    def append_all(self, records: Sequence[Any]) -> None:
        """Append more records than one operation may have. They need not be atomic."""
        for start in range(0, len(records), RECORDS_PER_OPERATION_MAX):
            self.append(records[start : start + RECORDS_PER_OPERATION_MAX], ignore_outcome)

    def append(self, records: Sequence[Any], on_committed: OnCommitted) -> None:
        """Append to the log, then replay into the controller's state. Without records, `on_committed` waits for the records appended
        before.

        Raises KafkaError NOT_CONTROLLER while this node does not lead, and then nothing was appended."""
        leadership = self.leadership
        if records:
            leadership.last_offset = self._quorum.propose(leadership.epoch, records)
            if self.decisions is not None:
                self.decisions.note(records, leadership.controller.state, leadership.controller.elections)
            try:
                leadership.controller.replay(records)
            except Exception:
                # This controller's state has diverged from the log. The next controller begins with the committed state.
                self._quorum.resign(leadership.epoch)
                raise
        if leadership.last_offset <= leadership.committed_offset:
            on_committed(None)
        else:
            leadership.waiting.append(_Waiting(leadership.last_offset, on_committed))

    async def append_steps(self, steps: Steps[Response], log_outcome: Callable[[Response], None] = lambda response: None) -> Response:
        """Append each step's records. Returns the answer when all are committed and replayed, after a call of `log_outcome`, which is made
        even if the waiting request was cancelled.

        An operation of a few steps runs at once. Longer ones run one after the other, a step in each turn of the loop."""
        response = await self._step_by_step(steps)
        await self.submitted(ControllerResult([], None), lambda: log_outcome(response))
        log_outcome(response)
        return response

    async def append_own(self, steps: Steps[Response]) -> Response:
        """As `append_steps`, for brokers' own requests and the controller's own jobs: they do not wait for clients' operations."""
        return await self.submitted(ControllerResult([], await self._step_by_step(steps, takes_turn=False)))

    async def _step_by_step(self, steps: Steps[Response], *, takes_turn: bool = True) -> Response:
        # Not a LoopJob: a short operation runs at once even while long ones wait for their turn, and one whose caller is cancelled ends.
        leadership = self._leadership
        has_turn = False
        steps_count = 0
        try:
            while True:
                if self._leadership is not leadership:
                    # Appended records may be lost, and records computed on the old state are invalid.
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum any more.")
                try:
                    records = next(steps)
                except StopIteration as e:
                    response: Response = e.value
                    return response
                if records:
                    self.append(records, ignore_outcome)
                steps_count += 1
                if steps_count >= STEPS_AT_ONCE:
                    if takes_turn and not has_turn:
                        await self._turn.acquire()
                        has_turn = True
                    await asyncio.sleep(0)
        finally:
            if has_turn:
                self._turn.release()

    async def submitted(self, result: ControllerResult[Response], on_unwatched: Callable[[], object] | None = None) -> Response:
        """Returns the response when its records are committed. If the caller was cancelled meanwhile, `on_unwatched` is called instead."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_committed(error: KafkaError | None) -> None:
            # The waiting request may have been cancelled with its connection. The change is made all the same.
            if committed.done():
                if error is None and on_unwatched is not None:
                    on_unwatched()
                return
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)

        if len(result.records) > RECORDS_PER_OPERATION_MAX:
            self.append_all(result.records)
            self.append([], on_committed)
        else:
            self.append(result.records, on_committed)
        await committed
        return result.response


def ignore_outcome(error: KafkaError | None) -> None:
    """The callback of all proposals of a series but the last. They are committed in order and fail together, so the last outcome is
    enough."""
