"""EndQuorumEpoch (key 54): a leader of the metadata quorum resigns and names its preferred successors (KIP-595)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class ReplicaInfo:
    candidate_id: Int32 = since(1, default=0)
    candidate_directory_id: Uuid = since(1, default=ZERO_UUID)


@struct
class EndQuorumEpochRequestPartitionData:
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    preferred_successors: Array[Int32] = since(0, until=0, default=[], ignorable=True)
    preferred_candidates: Array[ReplicaInfo] = since(1, default=[], ignorable=True)


@struct
class EndQuorumEpochRequestTopicData:
    topic_name: String = ""
    partitions: Array[EndQuorumEpochRequestPartitionData] = []


@struct
class LeaderEndpoint:
    name: String = since(1, default="")
    host: String = since(1, default="")
    port: UInt16 = since(1, default=0)


@api(key=54, versions=(0, 1), flexible=1)
class EndQuorumEpochRequest:
    cluster_id: String | None = None
    topics: Array[EndQuorumEpochRequestTopicData] = []
    leader_endpoints: Array[LeaderEndpoint] = since(1, default=[], ignorable=True)


@struct
class EndQuorumEpochResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class EndQuorumEpochResponseTopicData:
    topic_name: String = ""
    partitions: Array[EndQuorumEpochResponsePartitionData] = []


@struct
class NodeEndpoint:
    node_id: Int32 = since(1, default=0)
    host: String = since(1, default="")
    port: UInt16 = since(1, default=0)


@message(versions=(0, 1), flexible=1)
class EndQuorumEpochResponse:
    error_code: Int16 = 0
    topics: Array[EndQuorumEpochResponseTopicData] = []
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0, default=[])
