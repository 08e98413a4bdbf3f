"""DescribeProducers (key 61): the producers that a partition's leader remembers (KIP-664)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, api, message, struct


@struct
class TopicRequest:
    name: String = ""
    partition_indexes: Array[Int32] = []


@api(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    """Asks for the producers of partitions."""

    topics: Array[TopicRequest] = []


@struct
class ProducerState:
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


@struct
class PartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: Array[ProducerState] = []


@struct
class TopicResponse:
    name: String = ""
    partitions: Array[PartitionResponse] = []


@message(versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """Tells the producers of each partition."""

    throttle_time_ms: Int32 = 0
    topics: Array[TopicResponse] = []
