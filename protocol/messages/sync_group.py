"""SyncGroup (key 14): the leader of a classic group hands in the assignment, every member gets its own.

Version notes: 3 static members (KIP-345); 4 flexible; 5 protocol type and name to be checked.
"""

from __future__ import annotations

from ..schema import Array, Bytes, Int16, Int32, String, api, message, since, struct


@struct
class SyncGroupRequestAssignment:
    member_id: String = ""
    assignment: Bytes = b""


@api(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    """Asks for the member's assignment; the leader brings everybody's."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)
    protocol_type: String | None = since(5, default=None, ignorable=True)
    protocol_name: String | None = since(5, default=None, ignorable=True)
    assignments: Array[SyncGroupRequestAssignment] = []


@message(versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """Carries the member's assignment as the leader wrote it."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    protocol_type: String | None = since(5, default=None, ignorable=True)
    protocol_name: String | None = since(5, default=None, ignorable=True)
    assignment: Bytes = b""
