"""The role of a partition's replica on this broker."""

from __future__ import annotations

from enum import Enum
from typing import Final


class PartitionRole(Enum):
    """NONE → LEADER ⇄ FOLLOWER as the metadata says. Each of these can become OFFLINE, and all can become DELETED, which is final."""

    NONE = "no metadata yet"
    FOLLOWER = "another broker leads, or none does"
    LEADER = "this broker leads"
    OFFLINE = "its log directory failed"
    DELETED = "it is not hosted any more"


# Module names are faster to read than enum members; every produce and fetch reads them.
LEADER: Final = PartitionRole.LEADER
FOLLOWER: Final = PartitionRole.FOLLOWER
OFFLINE: Final = PartitionRole.OFFLINE
DELETED: Final = PartitionRole.DELETED
