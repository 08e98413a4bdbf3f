"""InitProducerId (key 22): a producer id for an idempotent or transactional producer.

Version notes: 2 flexible; 3 the producer's present id and epoch (KIP-360); 4 PRODUCER_FENCED; 5 new transactions (KIP-890); 6 two-phase
commit (KIP-939), which Kafka 4.3 does not enable.
"""

from __future__ import annotations

from ..schema import Bool, Int16, Int32, Int64, String, api, message, since


@api(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest:
    """Asks for a producer id; without transactional id always a new one."""

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6, default=False)
    keep_prepared_txn: Bool = since(6, default=False)


@message(versions=(0, 6), flexible=2)
class InitProducerIdResponse:
    """Carries the producer id and its epoch."""

    throttle_time_ms: Int32 = since(0, default=0, ignorable=True)
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
