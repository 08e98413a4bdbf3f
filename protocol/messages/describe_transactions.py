"""DescribeTransactions (key 65): the state of transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, api, message, struct


@api(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    """Asks for transactional ids by name."""

    transactional_ids: Array[String] = []


@struct
class TopicData:
    topic: String = ""
    partitions: Array[Int32] = []


@struct
class TransactionState:
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Array[TopicData] = []


@message(versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """Tells state, producer and partitions of each id."""

    throttle_time_ms: Int32 = 0
    transaction_states: Array[TransactionState] = []
