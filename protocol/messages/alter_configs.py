"""AlterConfigs (key 33): replaces all settings of resources (IncrementalAlterConfigs changes single ones).

Version notes: 1 same; 2 flexible.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, api, message, struct


@struct
class AlterableConfig:
    name: String = ""
    value: String | None = ""


@struct
class AlterConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Array[AlterableConfig] = []


@api(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """Asks to give resources these settings and no others."""

    resources: Array[AlterConfigsResource] = []
    validate_only: Bool = False


@struct
class AlterConfigsResourceResponse:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


@message(versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """Tells what came of each resource."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse] = []
