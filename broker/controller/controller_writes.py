"""ControllerWrites: how the operations of an active controller get into the metadata log.

What an operation computes is appended at once, replayed into the controller's state, and answered when it is committed. Between
computing and appending there is no await; long operations are computed and appended step by step, and others have their turn between
two steps. An operation without records waits for those before it, so that no answer is ahead of the metadata cache.

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
    """One epoch of this node's: its controller, and the callbacks that wait for a commit, in the order of the log."""

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
    """While this node leads, its leadership and what is appended under it."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._turn = asyncio.Lock()
        self._leadership: Leadership | None = None
        self._own_work: set[asyncio.Task[None]] = set()
        self.decisions: DecisionLog | None = None
        """Is told of each batch before it is replayed, once this node has led with others."""

    # -- leadership ------------------------------------------------------------------------------------------------

    def begin(self, epoch: int, controller: Controller) -> None:
        """This node leads with this controller, whose state is everything in the log."""
        self._leadership = Leadership(epoch, controller, self._quorum.end_offset - 1)

    def end(self, why: KafkaError) -> int | None:
        """It leads no more: what waits is answered with `why`. Returns the epoch that ended, None when there was none."""
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
        """What is appended up to and with `offset` is committed."""
        leadership = self._leadership
        if leadership is None:
            return
        leadership.committed_offset = offset
        while leadership.waiting and leadership.waiting[0].offset <= offset:
            leadership.waiting.popleft().on_committed(None)

    async def close(self) -> None:
        """Stop the controller's own work. Operations end with the quorum."""
        for task in self._own_work:
            task.cancel()
        await asyncio.gather(*self._own_work, return_exceptions=True)

    # -- operations ------------------------------------------------------------------------------------------------

    def run(self, steps: Steps[Any]) -> None:
        """Append the records of the controller's own work, step by step, without waiting for them."""
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
        """More records than one operation may have, each standing for itself."""
        for start in range(0, len(records), RECORDS_PER_OPERATION_MAX):
            self.append(records[start : start + RECORDS_PER_OPERATION_MAX], ignore_outcome)

    def append(self, records: Sequence[Any], on_committed: OnCommitted) -> None:
        """Append to the log and, that done, replay into the controller's state. Without records: wait for what was appended before.

        Raises KafkaError NOT_CONTROLLER while this node does not lead, and then nothing was appended."""
        leadership = self.leadership
        if records:
            leadership.last_offset = self._quorum.propose(leadership.epoch, records)
            if self.decisions is not None:
                self.decisions.note(records, leadership.controller.state, leadership.controller.elections)
            try:
                leadership.controller.replay(records)
            except Exception:
                # This controller's state is no longer what the log tells; the next begins with the committed one.
                self._quorum.resign(leadership.epoch)
                raise
        if leadership.last_offset <= leadership.committed_offset:
            on_committed(None)
        else:
            leadership.waiting.append(_Waiting(leadership.last_offset, on_committed))

    async def append_steps(self, steps: Steps[Response], log_outcome: Callable[[Response], None] = lambda response: None) -> Response:
        """Append each step's records; the answer when all of them are durable and replayed. Then `log_outcome` is called, whether
        somebody waits for the answer still or not.

        What has a few steps is done at once. Of longer operations one has a step each turn of the loop, the others wait for it."""
        response = await self._step_by_step(steps)
        await self.submitted(ControllerResult([], None), lambda: log_outcome(response))
        log_outcome(response)
        return response

    async def append_own(self, steps: Steps[Response]) -> Response:
        """The same for what a broker asks for itself, and for the controller's own work: it does not wait for clients' operations."""
        return await self.submitted(ControllerResult([], await self._step_by_step(steps, takes_turn=False)))

    async def _step_by_step(self, steps: Steps[Response], *, takes_turn: bool = True) -> Response:
        leadership = self._leadership
        has_turn = False
        steps_count = 0
        try:
            while True:
                if self._leadership is not leadership:
                    # What was appended may be lost, and what is computed on the old state is of no use.
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
        """The response, once its records are committed; `on_unwatched` is called then if nobody waits for it any more."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_committed(error: KafkaError | None) -> None:
            # The waiting request may have been cancelled with its connection; the change stands all the same.
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
    """For proposals that are followed by another: they are committed in order and fail together, so the last one's outcome is enough."""
