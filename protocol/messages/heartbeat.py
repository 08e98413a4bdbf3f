"""Heartbeat (key 12): a member of a classic group is alive.

Version notes: 3 static members (KIP-345); 4 flexible.
"""

from __future__ import annotations

from ..schema import Int16, Int32, String, api, message, since


@api(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest:
    """Says that a member is alive in its generation."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None)


@message(versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Tells whether a rebalance is going on."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
