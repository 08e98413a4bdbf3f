"""DescribeAcls (key 29): the rules of who may do what.

Version notes: 1 is the oldest; 2 flexible; 3 users as resources.
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, since, struct


@api(key=29, versions=(1, 3), flexible=2)
class DescribeAclsRequest:
    """Asks for the rules that match."""

    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class AclDescription:
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DescribeAclsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = since(1, default=3)
    acls: Array[AclDescription] = []


@message(versions=(1, 3), flexible=2)
class DescribeAclsResponse:
    """Tells the rules of each resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: Array[DescribeAclsResource] = []
