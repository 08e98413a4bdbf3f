"""UnregisterBroker (key 64): forget a broker (KIP-631)."""

from __future__ import annotations

from ..schema import Int16, Int32, String, api, message


@api(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest:
    broker_id: Int32 = 0


@message(versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
