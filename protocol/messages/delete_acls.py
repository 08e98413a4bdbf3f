"""DeleteAcls (key 31): removes rules of who may do what.

Version notes: 1 is the oldest; 2 flexible; 3 users as resources.
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, since, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@api(key=31, versions=(1, 3), flexible=2)
class DeleteAclsRequest:
    """Asks to remove the rules that match a filter."""

    filters: Array[DeleteAclsFilter] = []


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = since(1, default=3)
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@struct
class DeleteAclsFilterResult:
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: Array[DeleteAclsMatchingAcl] = []


@message(versions=(1, 3), flexible=2)
class DeleteAclsResponse:
    """Tells which rules each filter has removed."""

    throttle_time_ms: Int32 = 0
    filter_results: Array[DeleteAclsFilterResult] = []
