"""Metadata (key 3): brokers, topics, partitions and their leaders.

Version notes: 1 null means all topics; 2 cluster id; 4 auto-creation by choice; 5 offline replicas; 7 leader epochs; 8 authorized
operations; 9 flexible; 10 topic ids in responses; 12 requests by topic id; 13 a top-level error (KIP-1102).
"""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class MetadataRequestTopic:
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    name: String | None = since(0, nullable_since=10, default="")


@api(key=3, versions=(0, 13), flexible=9)
class MetadataRequest:
    """Asks for the cluster and for some or all topics."""

    topics: Array[MetadataRequestTopic] | None = since(0, nullable_since=1, default=[])
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = since(1, default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: Array[Int32] = []
    isr_nodes: Array[Int32] = []
    offline_replicas: Array[Int32] = since(5, default=[], ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16 = 0
    name: String | None = since(0, nullable_since=12, default="")
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    is_internal: Bool = since(1, default=False, ignorable=True)
    partitions: Array[MetadataResponsePartition] = []
    topic_authorized_operations: Int32 = since(8, default=-2147483648)


@message(versions=(0, 13), flexible=9)
class MetadataResponse:
    """Tells the brokers, and the partitions of each topic."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Array[MetadataResponseBroker] = []
    cluster_id: String | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[MetadataResponseTopic] = []
    cluster_authorized_operations: Int32 = since(8, until=10, default=-2147483648)
    error_code: Int16 = since(13, default=0, ignorable=True)
