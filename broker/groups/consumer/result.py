"""GroupResult: the records and the response of an operation on a KIP-848 group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from protocol.errors import ErrorCode


class RecordWriter(Protocol):
    """Writes the results of jobs: the shard."""

    def run(self, result: CoordinatorResult | None) -> None:
        """Write an operation's result, if there is one."""


class GroupResult(NamedTuple):
    """The `records` are appended, and the `response` is sent when they are committed. A timer's operation has no response. `on_replayed` is
    that of CoordinatorResult. `on_committed` is called before the response is sent, and never if the records may be lost."""

    records: list[CoordinatorRecord]
    response: Any = None
    on_replayed: Callable[[], None] | None = None
    on_committed: Callable[[], None] | None = None

    def answered_by(self, answer: Callable[[Any], None], error_response: Callable[[ErrorCode], Any]) -> CoordinatorResult:
        """The CoordinatorResult that calls `answer` with the response, or with `error_response(error)`."""

        def on_committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                answer(error_response(error))
                return
            if self.on_committed is not None:
                self.on_committed()
            answer(self.response)

        return CoordinatorResult(self.records, on_committed, self.on_replayed)
