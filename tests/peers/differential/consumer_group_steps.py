"""What members of KIP-848 groups, and tools, do in the differential fuzzer. Topics are named without the namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Epoch(Enum):
    """The epoch, or generation, that a member says."""

    JOIN = "join"
    LEAVE = "leave"
    LEAVE_FOR_A_WHILE = "leave for a while"
    PRESENT = "present"
    """That of the last answer."""
    PREVIOUS = "previous"
    """The one before the last that was another."""
    AHEAD = "ahead"
    BELOW_ALL = "below all"


class Owned(Enum):
    """The partitions that a member says it owns."""

    UNSAID = "unsaid"
    NOTHING = "nothing"
    ASSIGNED = "assigned"
    """What the last answer with an assignment told."""
    BEFORE = "before"
    """What the one before it told: it has not given anything up yet."""
    FOREIGN = "foreign"
    """Partitions of topic "c", whoever has them, and one of a topic that does not exist."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A ConsumerGroupHeartbeat. `fields` are those of the request."""

    member: str
    epoch: Epoch
    owned: Owned = Owned.UNSAID
    version: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """An OffsetCommit by a member of either kind, or by a tool without member id."""

    member: str
    epoch: Epoch
    topic: str
    partition: int
    offset: int
    version: int = 9
    metadata: str | None = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """An OffsetFetch; all offsets without `topics`."""

    member: str | None
    epoch: Epoch
    version: int = 9
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """An OffsetDelete."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A DeleteGroups."""


@dataclass(frozen=True, slots=True)
class AlterGroup:
    """An IncrementalAlterConfigs of the group: SET, or DELETE without `value`. Answered once the coordinator has taken it over."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Done once the group coordinator knows it, as are the two below."""

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    name: str


@dataclass(frozen=True, slots=True)
class GrowTopic:
    name: str
    partitions: int


class MemberId(Enum):
    """The member id that a classic member says."""

    KNOWN = "known"
    """That of the last answer; none before the first."""
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClassicJoin:
    """A JoinGroup with the consumer's protocol; without `owned` as an eager member, else as a cooperative one."""

    member: str
    member_id: MemberId
    topics: tuple[str, ...]
    version: int = 9
    instance_id: str | None = None
    owned: Owned = Owned.UNSAID
    protocols: tuple[str, ...] = ("range",)


@dataclass(frozen=True, slots=True)
class ClassicSync:
    """A SyncGroup."""

    member: str
    epoch: Epoch = Epoch.PRESENT
    version: int = 5


@dataclass(frozen=True, slots=True)
class ClassicBeat:
    """A Heartbeat."""

    member: str
    epoch: Epoch = Epoch.PRESENT
    version: int = 4
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClassicLeave:
    """A LeaveGroup, by member id or by instance id alone."""

    member: str
    version: int = 5
    instance_id: str | None = None
