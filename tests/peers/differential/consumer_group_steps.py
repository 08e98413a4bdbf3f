"""What members of KIP-848 groups do in the differential fuzzer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Epoch(Enum):
    """The epoch that a member says."""

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
    """A partition that it was never given, or that does not exist."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A ConsumerGroupHeartbeat. `fields` are those of the request; the topics in them are without the namespace."""

    member: str
    epoch: Epoch
    owned: Owned = Owned.UNSAID
    version: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)
