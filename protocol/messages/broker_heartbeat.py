"""BrokerHeartbeat (key 63): a broker tells the controller that it lives, and what it wants (KIP-631)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, Uuid, api, message, since


@api(key=63, versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Array[Uuid] = since(1, tag=0, default=[])
    cordoned_log_dirs: Array[Uuid] | None = since(2, tag=1, default=None)
    silent_brokers: Array[Int32] = since(0, tag=7500, default=[])
    """Those that do not answer this one. Barnabas's own; Kafka skips tags that it does not know."""


@message(versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
