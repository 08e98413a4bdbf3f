"""AllocateProducerIds (key 67): a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from ..schema import Int16, Int32, Int64, api, message


@api(key=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


@message(versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
