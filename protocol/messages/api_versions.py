"""ApiVersions (key 18): which requests, in which versions, this broker serves.

Version notes: 3 flexible, the client's software and the broker's features; 4 features whose minimum is 0. The response's header never has
tagged fields, for a client must be able to read the answer to a version that the broker does not know.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, String, api, message, since, struct


@api(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest:
    """Names the client's software from version 3 on."""

    client_software_name: String = since(3, default="", ignorable=True)
    client_software_version: String = since(3, default="", ignorable=True)


@struct
class ApiVersion:
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class SupportedFeatureKey:
    name: String = since(3, default="")
    min_version: Int16 = since(3, default=0)
    max_version: Int16 = since(3, default=0)


@struct
class FinalizedFeatureKey:
    name: String = since(3, default="")
    max_version_level: Int16 = since(3, default=0)
    min_version_level: Int16 = since(3, default=0)


@message(versions=(0, 4), flexible=3)
class ApiVersionsResponse:
    """Tells the version range of each API."""

    error_code: Int16 = 0
    api_keys: Array[ApiVersion] = []
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: Array[SupportedFeatureKey] = since(3, tag=0, default=[], ignorable=True)
    finalized_features_epoch: Int64 = since(3, tag=1, default=-1, ignorable=True)
    finalized_features: Array[FinalizedFeatureKey] = since(3, tag=2, default=[], ignorable=True)
    zk_migration_ready: Bool = since(3, tag=3, default=False, ignorable=True)
