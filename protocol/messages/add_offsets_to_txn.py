"""AddOffsetsToTxn (key 25): a group's partition of `__consumer_offsets` joins a transaction.

Version notes: 2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ..schema import Int16, Int32, Int64, String, api, message


@api(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    """Names the group whose offsets the producer is about to commit."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


@message(versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """Tells whether the group's partition is part of the transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
