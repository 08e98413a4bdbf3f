"""DescribeQuorum (key 55): who leads the metadata quorum, and how far its voters and observers are (KIP-595, KIP-836)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class DescribeQuorumRequestPartitionData:
    partition_index: Int32 = 0


@struct
class DescribeQuorumRequestTopicData:
    topic_name: String = ""
    partitions: Array[DescribeQuorumRequestPartitionData] = []


@api(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    topics: Array[DescribeQuorumRequestTopicData] = []


@struct
class ReplicaState:
    replica_id: Int32 = 0
    replica_directory_id: Uuid = since(2, default=ZERO_UUID)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)


@struct
class DescribeQuorumResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = since(2, default="", ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: Array[ReplicaState] = []
    observers: Array[ReplicaState] = []


@struct
class DescribeQuorumResponseTopicData:
    topic_name: String = ""
    partitions: Array[DescribeQuorumResponsePartitionData] = []


@struct
class Listener:
    name: String = since(2, default="")
    host: String = since(2, default="")
    port: UInt16 = since(2, default=0)


@struct
class Node:
    node_id: Int32 = since(2, default=0)
    listeners: Array[Listener] = since(2, default=[])


@message(versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    error_code: Int16 = 0
    error_message: String | None = since(2, default="", ignorable=True)
    topics: Array[DescribeQuorumResponseTopicData] = []
    nodes: Array[Node] = since(2, default=[])
