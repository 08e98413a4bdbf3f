"""DescribeGroups (key 15): state and members of classic groups.

Version notes: 3 authorized operations; 4 static members; 5 flexible; 6 GROUP_ID_NOT_FOUND with a message (KIP-1043).
"""

from __future__ import annotations

from ..schema import Array, Bool, Bytes, Int16, Int32, String, api, message, since, struct


@api(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    """Asks for groups by id."""

    groups: Array[String] = []
    include_authorized_operations: Bool = since(3, default=False)


@struct
class DescribedGroupMember:
    member_id: String = ""
    group_instance_id: String | None = since(4, default=None, ignorable=True)
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: String | None = since(6, default=None)
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: Array[DescribedGroupMember] = []
    authorized_operations: Int32 = since(3, default=-2147483648)


@message(versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    """Tells state, protocol and members of each group."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Array[DescribedGroup] = []
