"""Changes of the voter set at the leader (KIP-853): one at a time, each after the previous one is committed.

Before a voter is added, the leader checks its kraft.version range (ApiVersions at its controller listener), and it must have caught up as
an observer. A removed leader resigns when its removal is committed.

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
    """The pending change. `token` identifies the request to answer. `offset` is that of the record; None while the new voter's
    ApiVersions answer is awaited."""

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
