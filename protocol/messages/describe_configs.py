"""DescribeConfigs (key 32): settings of topics, brokers and other resources.

Version notes: 1 synonyms and where a value comes from; 3 types and documentation; 4 flexible.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, api, message, since, struct


@struct
class DescribeConfigsResource:
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Array[String] | None = []


@api(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    """Asks for some or all settings of resources."""

    resources: Array[DescribeConfigsResource] = []
    include_synonyms: Bool = since(1, default=False)
    include_documentation: Bool = since(3, default=False)


@struct
class DescribeConfigsSynonym:
    name: String = since(1, default="")
    value: String | None = since(1, default="")
    source: Int8 = since(1, default=0)


@struct
class DescribeConfigsResourceResult:
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = since(1, default=-1, ignorable=True)
    is_sensitive: Bool = False
    synonyms: Array[DescribeConfigsSynonym] = since(1, default=[], ignorable=True)
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: String | None = since(3, default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Array[DescribeConfigsResourceResult] = []


@message(versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """Tells each setting's value, source and type."""

    throttle_time_ms: Int32 = 0
    results: Array[DescribeConfigsResult] = []
