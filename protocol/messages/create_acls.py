"""CreateAcls (key 30): adds rules of who may do what.

Version notes: 1 is the oldest; 2 flexible; 3 users as resources.
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, since, struct


@struct
class AclCreation:
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = since(1, default=3)
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@api(key=30, versions=(1, 3), flexible=2)
class CreateAclsRequest:
    """Asks to add rules."""

    creations: Array[AclCreation] = []


@struct
class AclCreationResult:
    error_code: Int16 = 0
    error_message: String | None = ""


@message(versions=(1, 3), flexible=2)
class CreateAclsResponse:
    """Tells what came of each rule."""

    throttle_time_ms: Int32 = 0
    results: Array[AclCreationResult] = []
