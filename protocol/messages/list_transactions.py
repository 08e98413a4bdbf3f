"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Version notes: 1 a filter on the duration (KIP-994); 2 a pattern for the ids (KIP-1152).
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, api, message, since, struct


@api(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    """Asks for all ids, or those that every filter lets through."""

    state_filters: Array[String] = []
    producer_id_filters: Array[Int64] = []
    duration_filter: Int64 = since(1, default=-1)
    transactional_id_pattern: String | None = since(2, nullable_since=2, default=None)


@struct
class TransactionState:
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


@message(versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    """Tells id, producer and state of each, and which states of the filter are unknown."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Array[String] = []
    transaction_states: Array[TransactionState] = []
