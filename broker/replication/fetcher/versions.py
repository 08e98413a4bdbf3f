"""The versions of the requests that a follower sends to its leader. metadata.version decides; nothing is negotiated.

Source: org.apache.kafka.server.common.MetadataVersion.fetchRequestVersion, listOffsetRequestVersion.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

FETCH_VERSION_MIN = 13
LIST_OFFSETS_VERSION_MIN = 7


class LeaderVersions(NamedTuple):
    """The versions of Fetch and ListOffsets between brokers."""

    fetch: int
    list_offsets: int


# Lowest level of metadata.version → version, highest first. Levels by release: 29 is 4.2-IV1, 27 is 4.1-IV1, 25 is 4.0-IV3, 21 is
# 3.9-IV0, 19 is 3.7-IV4, 10 is 3.5-IV1, 9 is 3.5-IV0.
_FETCH = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
_LIST_OFFSETS = ((29, 11), (25, 10), (21, 9), (9, 8))


@cache  # asked for each Fetch; the levels are few
def leader_versions(metadata_version_level: int) -> LeaderVersions:
    """The versions at this level of metadata.version."""
    return LeaderVersions(
        next((version for level, version in _FETCH if metadata_version_level >= level), FETCH_VERSION_MIN),
        next((version for level, version in _LIST_OFFSETS if metadata_version_level >= level), LIST_OFFSETS_VERSION_MIN),
    )
