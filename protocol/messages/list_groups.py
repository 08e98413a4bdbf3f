"""ListGroups (key 16): the groups that this broker coordinates.

Version notes: 3 flexible; 4 a filter on states (KIP-518); 5 a filter on types (KIP-848).
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, api, message, since, struct


@api(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest:
    """Asks for all groups, or those in some states or of some types."""

    states_filter: Array[String] = since(4, default=[])
    types_filter: Array[String] = since(5, default=[])


@struct
class ListedGroup:
    group_id: String = ""
    protocol_type: String = ""
    group_state: String = since(4, default="", ignorable=True)
    group_type: String = since(5, default="", ignorable=True)


@message(versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """Tells id, protocol type and state of each group."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    groups: Array[ListedGroup] = []
