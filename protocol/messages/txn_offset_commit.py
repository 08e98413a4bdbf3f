"""TxnOffsetCommit (key 28): offsets that count when the producer's transaction is committed.

Version notes: 2 the committed leader epoch; 3 flexible, and member, instance and generation (KIP-447); 4 TRANSACTION_ABORTABLE (KIP-890);
5 adds the group's partition to the transaction, so that no AddOffsetsToTxn has to come before (KIP-890).
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, api, message, since, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    committed_metadata: String | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    name: String = ""
    partitions: Array[TxnOffsetCommitRequestPartition] = []


@api(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    """Commits a group's offsets as part of a transaction."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, nullable_since=3, default=None)
    topics: Array[TxnOffsetCommitRequestTopic] = []


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: String = ""
    partitions: Array[TxnOffsetCommitResponsePartition] = []


@message(versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    """Tells for each partition whether its offset is part of the transaction."""

    throttle_time_ms: Int32 = 0
    topics: Array[TxnOffsetCommitResponseTopic] = []
