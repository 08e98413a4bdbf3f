"""Produce (key 0): record batches for partitions, one batch each.

Version notes: 3 is the first with batches of magic 2; 5 log_start_offset; 7 zstd; 8 record_errors and error_message; 9 flexible;
10 the current leader with NOT_LEADER_OR_FOLLOWER (KIP-951); 11 and 12 transactions without AddPartitionsToTxn (KIP-890); 13 topic ids
in place of names (KIP-516).
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, Records, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class PartitionProduceData:
    index: Int32 = 0
    records: Records | None = None


@struct
class TopicProduceData:
    name: String = since(0, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_data: Array[PartitionProduceData] = []


@api(key=0, versions=(3, 13), flexible=9)
class ProduceRequest:
    """Asks to append batches; with acks=0 no response follows."""

    transactional_id: String | None = since(3, default=None)
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: Array[TopicProduceData] = []


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = since(8, default=0)
    batch_index_error_message: String | None = since(8, default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since(10, default=-1)
    leader_epoch: Int32 = since(10, default=-1)


@struct
class PartitionProduceResponse:
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = since(2, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: Array[BatchIndexAndErrorMessage] = since(8, default=[], ignorable=True)
    error_message: String | None = since(8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = since(10, tag=0, factory=LeaderIdAndEpoch)


@struct
class TopicProduceResponse:
    name: String = since(0, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partition_responses: Array[PartitionProduceResponse] = []


@struct
class NodeEndpoint:
    node_id: Int32 = since(10, default=0)
    host: String = since(10, default="")
    port: Int32 = since(10, default=0)
    rack: String | None = since(10, default=None)


@message(versions=(3, 13), flexible=9)
class ProduceResponse:
    """Tells where each partition's batch went."""

    responses: Array[TopicProduceResponse] = []
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    node_endpoints: Array[NodeEndpoint] = since(10, tag=0, default=[])
