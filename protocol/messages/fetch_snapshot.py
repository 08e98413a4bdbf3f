"""FetchSnapshot (key 59): a piece of a snapshot of the metadata log (KIP-630)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, Records, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class SnapshotId:
    end_offset: Int64 = 0
    epoch: Int32 = 0


@struct
class FetchSnapshotRequestPartitionSnapshot:
    partition: Int32 = 0
    current_leader_epoch: Int32 = 0
    snapshot_id: SnapshotId = since(0, factory=SnapshotId)
    position: Int64 = 0
    replica_directory_id: Uuid = since(1, tag=0, default=ZERO_UUID, ignorable=True)


@struct
class FetchSnapshotRequestTopicSnapshot:
    name: String = ""
    partitions: Array[FetchSnapshotRequestPartitionSnapshot] = []


@api(key=59, versions=(0, 1), flexible=0)
class FetchSnapshotRequest:
    cluster_id: String | None = since(0, tag=0, default=None)
    replica_id: Int32 = -1
    max_bytes: Int32 = 2147483647
    topics: Array[FetchSnapshotRequestTopicSnapshot] = []


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class FetchSnapshotResponsePartitionSnapshot:
    index: Int32 = 0
    error_code: Int16 = 0
    snapshot_id: SnapshotId = since(0, factory=SnapshotId)
    current_leader: LeaderIdAndEpoch = since(0, tag=0, factory=LeaderIdAndEpoch)
    size: Int64 = 0
    position: Int64 = 0
    unaligned_records: Records = None


@struct
class FetchSnapshotResponseTopicSnapshot:
    name: String = ""
    partitions: Array[FetchSnapshotResponsePartitionSnapshot] = []


@struct
class NodeEndpoint:
    node_id: Int32 = since(1, default=0)
    host: String = since(1, default="")
    port: UInt16 = since(1, default=0)


@message(versions=(0, 1), flexible=0)
class FetchSnapshotResponse:
    throttle_time_ms: Int32 = since(0, default=0, ignorable=True)
    error_code: Int16 = 0
    topics: Array[FetchSnapshotResponseTopicSnapshot] = []
    node_endpoints: Array[NodeEndpoint] = since(1, tag=0, default=[])
