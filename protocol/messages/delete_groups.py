"""DeleteGroups (key 42): removes groups with all their offsets.

Version notes: 1 same; 2 flexible.
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, api, message, struct


@api(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Asks to delete groups by id."""

    groups_names: Array[String] = []


@struct
class DeletableGroupResult:
    group_id: String = ""
    error_code: Int16 = 0


@message(versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """Tells what came of each group."""

    throttle_time_ms: Int32 = 0
    results: Array[DeletableGroupResult] = []
