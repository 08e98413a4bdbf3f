"""ControllerResult: the result of a controller operation; also its steps, and the limit on its records."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from protocol.errors import ErrorCode, KafkaError

RECORDS_PER_OPERATION_MAX = 10_000
"""Records that one user operation may append; they go into one batch (QuorumController.MAX_RECORDS_PER_USER_OP)."""

STEP_ELEMENTS = 50
"""Records, or results, of an operation's step: 5 to 20 µs each to compute, append and replay."""

Response = TypeVar("Response")

Steps = Generator[Sequence[Any], None, Response]
"""An operation on many things, step by step: it yields the records that are to be appended next, none where it only gives others their
turn, and returns the answer. A step's records are appended together, and are in the state when the next step begins; so may be what
others did meanwhile. One topic's records are in one step: what a crash leaves is whole topics."""


class ControllerResult(NamedTuple, Generic[Response]):
    """The records to append, atomically, and the answer to send when they are committed."""

    records: list[Any]
    response: Response


class Pace:
    """Tells an operation on many elements when to yield: after every STEP_ELEMENTS."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEP_ELEMENTS

    def is_due(self, count: int = 1) -> bool:
        """Whether `count` more elements complete a step."""
        self._left -= count
        if self._left > 0:
            return False
        self._left = STEP_ELEMENTS
        return True


def check_records_count(count: int) -> None:
    """Raises KafkaError POLICY_VIOLATION when an operation would append more than the limit."""
    if count > RECORDS_PER_OPERATION_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
