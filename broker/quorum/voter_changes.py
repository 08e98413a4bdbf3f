"""Changes of the voter set that a leader is asked for (KIP-853): one at a time, and only once the one before is committed.

Adding a voter takes a look at the newcomer's kraft.version range first (ApiVersions, over its controller listener); it must have
caught up as an observer. Removing the leader makes it resign once that is committed.

Source: org.apache.kafka.raft.internals.AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from broker.quorum.voters import Endpoints, ReplicaKey


class ChangeKind(Enum):
    ADD = "add"
    REMOVE = "remove"


class VoterChange:
    """The change under way. `token` is who waits for the answer; `offset` that of the record, None while the newcomer is asked."""

    __slots__ = ("deadline_ms", "endpoints", "is_answered_when_appended", "key", "kind", "offset", "token")

    def __init__(
        self,
        kind: ChangeKind,
        token: Any,
        key: ReplicaKey,
        endpoints: Endpoints,
        deadline_ms: int,
        is_answered_when_appended: bool = False,
    ) -> None:
        self.kind = kind
        self.token = token
        self.key = key
        self.endpoints = endpoints
        self.deadline_ms = deadline_ms
        self.is_answered_when_appended = is_answered_when_appended
        self.offset: int | None = None
