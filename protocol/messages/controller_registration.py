"""ControllerRegistration (key 70): a controller tells its endpoints and features (KIP-919)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, String, UInt16, Uuid, api, message, struct
from ..uuids import ZERO_UUID


@struct
class Listener:
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class Feature:
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@api(key=70, versions=(0, 0), flexible=0)
class ControllerRegistrationRequest:
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    listeners: Array[Listener] = []
    features: Array[Feature] = []


@message(versions=(0, 0), flexible=0)
class ControllerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
