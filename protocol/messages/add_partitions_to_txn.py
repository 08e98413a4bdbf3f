"""AddPartitionsToTxn (key 24): partitions join a transaction, or a broker asks whether they are part of it.

Version notes: 2 PRODUCER_FENCED; 3 flexible; 4 many transactions in one request, and verify_only (KIP-890); 5 TRANSACTION_ABORTABLE.
Clients send 0 to 3, brokers 4 and 5.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, String, api, message, since, struct


@struct
class AddPartitionsToTxnTopic:
    name: String = ""
    partitions: Array[Int32] = []


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: String = since(4, default="")
    producer_id: Int64 = since(4, default=0)
    producer_epoch: Int16 = since(4, default=0)
    verify_only: Bool = since(4, default=False)
    topics: Array[AddPartitionsToTxnTopic] = since(4, default=[])


@api(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    """Names the partitions that a producer is about to write to."""

    transactions: Array[AddPartitionsToTxnTransaction] = since(4, default=[])
    v3_and_below_transactional_id: String = since(0, until=3, default="")
    v3_and_below_producer_id: Int64 = since(0, until=3, default=0)
    v3_and_below_producer_epoch: Int16 = since(0, until=3, default=0)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = since(0, until=3, default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    name: String = ""
    results_by_partition: Array[AddPartitionsToTxnPartitionResult] = []


@struct
class AddPartitionsToTxnResult:
    transactional_id: String = since(4, default="")
    topic_results: Array[AddPartitionsToTxnTopicResult] = since(4, default=[])


@message(versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """Tells for each partition whether it is part of the transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: Array[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = since(0, until=3, default=[])
