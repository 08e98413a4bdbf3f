"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum makes itself known to the voters (KIP-595)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class BeginQuorumEpochRequestPartitionData:
    partition_index: Int32 = 0
    voter_directory_id: Uuid = since(1, default=ZERO_UUID, ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class BeginQuorumEpochRequestTopicData:
    topic_name: String = ""
    partitions: Array[BeginQuorumEpochRequestPartitionData] = []


@struct
class LeaderEndpoint:
    name: String = since(1, default="")
    host: String = since(1, default="")
    port: UInt16 = since(1, default=0)


@api(key=53, versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest:
    cluster_id: String | None = None
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[BeginQuorumEpochRequestTopicData] = []
    leader_endpoints: Array[LeaderEndpoint] = since(1, default=[], ignorable=True)


@struct
class BeginQuorumEpochResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class BeginQuorumEpochResponseTopicData:
    topic_name: String = ""
    partitions: Array[BeginQuorumEpochResponsePartitionData] = []


@struct
class NodeEndpoint:
    node_id: Int32 = since(1, default=0)
    host: String = since(1, default="")
    port: UInt16 = since(1, default=0)


@message(versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse:
    error_code: Int16 = 0
    topics: Array[BeginQuorumEpochResponseTopicData] = []
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0, default=[])
