"""Conversions: operations on a group that changes its protocol, or may, one after another, with the long ones prepared in pieces.

An operation that converts a large group raises UnpreparedError before it has changed anything. It is tried again when Migration has
prepared the conversion, and again if the group has changed meanwhile, which only timers and commits can do: the group's other requests
queue up behind it. The operation that finds all prepared writes one batch, like that of a small group: a log has the group of one
protocol or of the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.groups.consumer.migration import UnpreparedError
from broker.loop.deferred import Deferred
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.coordination.records import CoordinatorResult
    from broker.groups.consumer.jobs import GroupJobs
    from broker.groups.consumer.migration import Migration
    from broker.groups.consumer.outcome import RecordWriter

ATTEMPTS_MAX = 10
"""As often a conversion is prepared. A client whose group changes each time is to come again."""


class _Operation(NamedTuple):
    """`answer` is given what `run` returns or raises."""

    run: Callable[[], Any]
    answer: Callable[[Any], None]


class Conversions:
    """Of the groups of one shard."""

    def __init__(self, migration: Migration, jobs: GroupJobs, writer: RecordWriter) -> None:
        self._migration = migration
        self._jobs = jobs
        self._writer = writer
        self._waiting: dict[str, deque[_Operation]] = {}

    def carry_out(self, group_id: str, run: Callable[[], Any], error_response: Callable[[KafkaError], Any]) -> Any:
        """What `run` returns, a response or a Deferred; a Deferred of it, or of the response to its KafkaError, if that takes long."""
        if group_id not in self._waiting:
            try:
                return run()
            except UnpreparedError:
                pass
        reply = Deferred()
        reply.holds_order = True

        def answer(outcome: Any) -> None:
            reply.follow(error_response(outcome) if isinstance(outcome, KafkaError) else outcome)

        self._enqueue(group_id, _Operation(run, answer))
        return reply

    def later(self, group_id: str, run: Callable[[], CoordinatorResult | None], retry: Callable[[], None]) -> None:
        """The same for an operation that has been tried, and that nobody waits for. What it comes to is written, or `retry` is called."""

        def write() -> None:
            result = run()
            if result is not None:
                self._writer.run(self._writer.retried(result, retry))

        def note(outcome: Any) -> None:
            if isinstance(outcome, Exception) and self._writer.is_active:
                retry()

        self._enqueue(group_id, _Operation(write, note))

    def on_unloaded(self) -> None:
        """Another broker has the shard now."""
        self._jobs.cancel(self)
        waiting, self._waiting = self._waiting, {}
        for operations in waiting.values():
            for operation in operations:
                operation.answer(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _enqueue(self, group_id: str, operation: _Operation) -> None:
        if group_id in self._waiting:
            self._waiting[group_id].append(operation)
        else:
            self._waiting[group_id] = deque([operation])
            self._jobs.start((self, "conversion", group_id), self._work(group_id), _ignore)

    def _work(self, group_id: str) -> Generator[None, None, None]:
        waiting = self._waiting[group_id]
        while waiting:
            operation = waiting.popleft()
            yield from self._carry_out(operation, waiting)
            if not self._writer.is_active:
                return  # the operation cost the shard its life, and the others have been answered
            yield
        del self._waiting[group_id]
        self._migration.forget(group_id)

    def _carry_out(self, operation: _Operation, waiting: deque[_Operation]) -> Generator[None, None, None]:
        attempts_left = ATTEMPTS_MAX
        while True:
            try:
                outcome = operation.run()
            except UnpreparedError as e:
                work = e.work
            except Exception as e:
                outcome = e
                break
            else:
                break
            if not attempts_left:
                outcome = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                break
            attempts_left -= 1
            waiting.appendleft(operation)  # it is answered with the others if the shard is lost
            yield from work
            waiting.popleft()
        operation.answer(outcome)
        outcome = None  # an exception's traceback holds this frame
        yield from self._migration.finish()


def _ignore(_outcome: object) -> None:
    pass
