"""ControllerResult: what an operation of the controller comes to, and the limit on it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode, KafkaError

RECORDS_PER_OPERATION_MAX = 10_000
"""Records that one user operation may append; they go into one batch (QuorumController.MAX_RECORDS_PER_USER_OP)."""

Response = TypeVar("Response")

Steps = Generator[Sequence[Any], None, Response]
"""An operation on many things, step by step: it yields the records that are to be appended next, none where it only gives others their
turn, and returns the answer. A step's records are appended together, and are in the state when the next step begins; so may be what
others did meanwhile. One topic's records are in one step: what a crash leaves is whole topics."""


class ControllerResult(NamedTuple, Generic[Response]):
    """The records to append, together or not at all, and the answer once they are committed."""

    records: list[Any]
    response: Response


def after(pending: list[Any], steps: Steps[Response]) -> Steps[Response]:
    """What `steps`, which append nothing, come to. `pending` is emptied into their first step: its records were computed on the state
    before it, and what others do at that step may contradict them."""
    while True:
        try:
            next(steps)
        except StopIteration as e:
            response: Response = e.value
            return response
        due = pending.copy()
        pending.clear()
        yield due


def check_records_count(count: int) -> None:
    """Raises KafkaError POLICY_VIOLATION when an operation would append more than the limit."""
    if count > RECORDS_PER_OPERATION_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
