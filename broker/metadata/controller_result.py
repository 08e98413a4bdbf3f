"""ControllerResult: what an operation of the controller comes to, and the limit on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from protocol.errors import ErrorCode, KafkaError

RECORDS_PER_OPERATION_MAX = 10_000
"""Records that one user operation may append; they go into one batch (QuorumController.MAX_RECORDS_PER_USER_OP)."""

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[Response]):
    """The records to append, together or not at all, and the answer once they are committed."""

    records: list[Any]
    response: Response


def check_records_count(count: int) -> None:
    """Raises KafkaError POLICY_VIOLATION when an operation would append more than the limit."""
    if count > RECORDS_PER_OPERATION_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
