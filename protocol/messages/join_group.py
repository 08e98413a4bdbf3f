"""JoinGroup (key 11): a member enters a classic group, or enters it again for a rebalance.

Version notes: 1 rebalance_timeout_ms; 4 the first join is refused with a member id (KIP-394); 5 static members (KIP-345); 6 flexible; 7 the
protocol type in the response; 8 a reason for joining (KIP-800); 9 skip_assignment (KIP-814).
"""

from __future__ import annotations

from ..schema import Array, Bool, Bytes, Int16, Int32, String, api, message, since, struct


@struct
class JoinGroupRequestProtocol:
    name: String = ""
    metadata: Bytes = b""


@api(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    """Asks to be a member; answered when the group has its generation."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = ""
    group_instance_id: String | None = since(5, default=None)
    protocol_type: String = ""
    protocols: Array[JoinGroupRequestProtocol] = []
    reason: String | None = since(8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: String = ""
    group_instance_id: String | None = since(5, default=None, ignorable=True)
    metadata: Bytes = b""


@message(versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """Tells the generation, and to the leader the members."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = since(7, default=None, ignorable=True)
    protocol_name: String | None = since(0, nullable_since=7, default="")
    leader: String = ""
    skip_assignment: Bool = since(9, default=False)
    member_id: String = ""
    members: Array[JoinGroupResponseMember] = []
