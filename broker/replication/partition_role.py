"""What a replica of a partition is on this broker."""

from __future__ import annotations

from enum import Enum
from typing import Final


class PartitionRole(Enum):
    """NONE → LEADER ⇄ FOLLOWER as the metadata says; from each of them to OFFLINE, and from all to DELETED, for good."""

    NONE = "no metadata yet"
    FOLLOWER = "another broker leads, or none does"
    LEADER = "this broker leads"
    OFFLINE = "its log directory failed"
    DELETED = "it is not hosted any more"


# Names of their own for the path of every produce and fetch.
LEADER: Final = PartitionRole.LEADER
FOLLOWER: Final = PartitionRole.FOLLOWER
OFFLINE: Final = PartitionRole.OFFLINE
DELETED: Final = PartitionRole.DELETED
