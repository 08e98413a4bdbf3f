"""EndTxn (key 26): a producer commits or aborts its transaction.

Version notes: 2 PRODUCER_FENCED; 3 flexible; 4 TRANSACTION_ABORTABLE (KIP-890); 5 each transaction bumps the epoch, and the answer has the
producer id and epoch of the next one (KIP-890).
"""

from __future__ import annotations

from ..schema import Bool, Int16, Int32, Int64, String, api, message, since


@api(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest:
    """Asks to commit, or else to abort."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


@message(versions=(0, 5), flexible=3)
class EndTxnResponse:
    """Tells whether the outcome is decided."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
