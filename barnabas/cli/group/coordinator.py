"""The broker that coordinates a group, also one that has no members."""

from __future__ import annotations

from barnabas.cli.connection import Connection
from barnabas.cli.errors import RefusedError
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP = 0
"""CoordinatorType's code."""


def coordinator_of(connection: Connection, group: str) -> int:
    """Its node id. Raises RefusedError."""
    wire = connection.wire()
    is_batched = wire.serves(FindCoordinatorRequest, 4)
    asked = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group]) if is_batched else FindCoordinatorRequest(key=group)
    answer = wire.request(asked)
    told = answer.coordinators[0] if is_batched else answer
    if told.error_code != ErrorCode.NONE:
        raise RefusedError(f"group {group}: {ErrorCode(told.error_code).name}")
    return int(told.node_id)
