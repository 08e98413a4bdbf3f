"""BrokerRegistration (key 62): a broker that starts registers with the controller (KIP-631)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid, api, message, since, struct
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


@api(key=62, versions=(0, 4), flexible=0)
class BrokerRegistrationRequest:
    broker_id: Int32 = 0
    cluster_id: String = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: Array[Listener] = []
    features: Array[Feature] = []
    rack: String | None = ""
    is_migrating_zk_broker: Bool = since(1, default=False)
    log_dirs: Array[Uuid] = since(2, default=[], ignorable=True)
    previous_broker_epoch: Int64 = since(3, default=-1, ignorable=True)


@message(versions=(0, 4), flexible=0)
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
