"""Changes of the voter set that a leader is asked for (KIP-853): one at a time, and only once the one before is committed.

Adding a voter takes a look at the newcomer's kraft.version range first (ApiVersions, over its controller listener); it must have
caught up as an observer. Removing the leader makes it resign once that is committed.

Source: org.apache.kafka.raft.internals.AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from broker.quorum.voters import Endpoints, ReplicaKey


class ChangeKind(Enum):
    ADD = "add"
    REMOVE = "remove"


@dataclass(slots=True, eq=False)
class VoterChange:
    """The change under way. `token` is who waits for the answer; `offset` that of the record, None while the newcomer is asked."""

    kind: ChangeKind
    token: Any
    key: ReplicaKey
    endpoints: Endpoints
    deadline_ms: int
    is_answered_when_appended: bool = False
    offset: int | None = None
