"""UpdateFeatures (key 57): finalise or drop feature levels (KIP-584, KIP-778)."""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, api, message, since, struct


@struct
class FeatureUpdateKey:
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Bool = since(0, until=0, default=False)
    upgrade_type: Int8 = since(1, default=1)


@api(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    timeout_ms: Int32 = 60000
    feature_updates: Array[FeatureUpdateKey] = []
    validate_only: Bool = since(1, default=False)


@struct
class UpdatableFeatureResult:
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


@message(versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: Array[UpdatableFeatureResult] = since(0, until=1, default=[], ignorable=True)
