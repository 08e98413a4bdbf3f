"""DescribeTopicPartitions (key 75): partitions of topics in pages (KIP-966)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class TopicRequest:
    name: String = ""


@struct
class Cursor:
    topic_name: String = ""
    partition_index: Int32 = 0


@api(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest:
    """Asks for the partitions of topics, from a cursor on."""

    topics: Array[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = since(0, default=-1, ignorable=True)
    replica_nodes: Array[Int32] = []
    isr_nodes: Array[Int32] = []
    eligible_leader_replicas: Array[Int32] | None = None
    last_known_elr: Array[Int32] | None = None
    offline_replicas: Array[Int32] = since(0, default=[], ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = since(0, default=ZERO_UUID, ignorable=True)
    is_internal: Bool = since(0, default=False, ignorable=True)
    partitions: Array[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


@message(versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    """Tells partitions, and the cursor of the next page."""

    throttle_time_ms: Int32 = since(0, default=0, ignorable=True)
    topics: Array[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
