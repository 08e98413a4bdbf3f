"""Vote (key 52): a candidate asks a voter of the metadata quorum for its vote (KIP-595; 2: pre-vote, KIP-996)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class VoteRequestPartitionData:
    partition_index: Int32 = 0
    replica_epoch: Int32 = 0
    replica_id: Int32 = 0
    replica_directory_id: Uuid = since(1, default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = since(1, default=ZERO_UUID, ignorable=True)
    last_offset_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: Bool = since(2, default=False)


@struct
class VoteRequestTopicData:
    topic_name: String = ""
    partitions: Array[VoteRequestPartitionData] = []


@api(key=52, versions=(0, 2), flexible=0)
class VoteRequest:
    cluster_id: String | None = None
    voter_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[VoteRequestTopicData] = []


@struct
class VoteResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    vote_granted: Bool = False


@struct
class VoteResponseTopicData:
    topic_name: String = ""
    partitions: Array[VoteResponsePartitionData] = []


@struct
class NodeEndpoint:
    node_id: Int32 = since(1, default=0)
    host: String = since(1, default="")
    port: UInt16 = since(1, default=0)


@message(versions=(0, 2), flexible=0)
class VoteResponse:
    error_code: Int16 = 0
    topics: Array[VoteResponseTopicData] = []
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0, default=[])
