"""LeaveGroup (key 13): members leave a classic group.

Version notes: 3 several members at once, static ones by instance id (KIP-345); 4 flexible; 5 a reason (KIP-800).
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, api, message, since, struct


@struct
class MemberIdentity:
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, default=None)
    reason: String | None = since(5, default=None, ignorable=True)


@api(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    """Asks to remove one member (up to version 2) or several."""

    group_id: String = ""
    member_id: String = since(0, until=2, default="")
    members: Array[MemberIdentity] = since(3, default=[])


@struct
class MemberResponse:
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, default="")
    error_code: Int16 = since(3, default=0)


@message(versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """Tells an error code, from version 3 also for each member."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    members: Array[MemberResponse] = since(3, default=[])
