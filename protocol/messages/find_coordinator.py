"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Version notes: 1 key types; 3 flexible; 4 several keys at once (KIP-699); 5 a new error for transactions (KIP-890); 6 share groups.
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, since, struct


@api(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    """Asks by key and key type: 0 a group, 1 a transactional id, 2 a share group."""

    key: String = since(0, until=3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Array[String] = since(4, default=[])


@struct
class Coordinator:
    key: String = since(4, default="")
    node_id: Int32 = since(4, default=0)
    host: String = since(4, default="")
    port: Int32 = since(4, default=0)
    error_code: Int16 = since(4, default=0)
    error_message: String | None = since(4, default="", ignorable=True)


@message(versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """Tells the coordinator of each key."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = since(0, until=3, default=0)
    error_message: String | None = since(1, until=3, default="", ignorable=True)
    node_id: Int32 = since(0, until=3, default=0)
    host: String = since(0, until=3, default="")
    port: Int32 = since(0, until=3, default=0)
    coordinators: Array[Coordinator] = since(4, default=[])
