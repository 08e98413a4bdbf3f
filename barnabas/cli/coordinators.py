"""The broker that coordinates a group, also one that has no members, or a transactional id."""

from __future__ import annotations

from barnabas.cli.connection import Connection
from barnabas.cli.errors import check
from protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION = 0, 1
"""CoordinatorType's codes."""
BATCHED = 4
"""The version of FindCoordinator from which on it is asked for several."""


def coordinator_of(connection: Connection, name: str, kind: int = GROUP) -> int:
    """Its node id. Raises RefusedError."""
    wire = connection.wire()
    is_batched = wire.serves(FindCoordinatorRequest, BATCHED)
    keys = {"coordinator_keys": [name]} if is_batched else {"key": name}
    answer = wire.request(FindCoordinatorRequest(key_type=kind, **keys))
    told = answer.coordinators[0] if is_batched else answer
    check(told.error_code, told.error_message, of=name)
    return int(told.node_id)
