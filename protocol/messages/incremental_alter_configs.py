"""IncrementalAlterConfigs (key 44): sets, deletes, appends to and subtracts from single settings.

Version notes: 1 flexible.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, api, message, struct


@struct
class AlterableConfig:
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


@struct
class AlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Array[AlterableConfig] = []


@api(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Asks to change settings of resources."""

    resources: Array[AlterConfigsResource] = []
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """Tells what came of each resource."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse] = []
