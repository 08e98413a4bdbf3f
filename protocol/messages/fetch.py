"""Fetch (key 1): record batches from partitions, for consumers and follower replicas.

Version notes: 4 isolation level; 5 log_start_offset; 7 sessions (KIP-227); 9 current_leader_epoch (KIP-320); 10 zstd; 11 rack_id
(KIP-392); 12 flexible, truncation by last_fetched_epoch (KIP-595); 13 topic ids in place of names (KIP-516); 15 replica_state in place of
replica_id (KIP-903); 16 the current leader's endpoint (KIP-951); 17 directory ids (KIP-853); 18 high watermarks of followers (KIP-1166).
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, Int64, Records, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class ReplicaState:
    replica_id: Int32 = since(15, default=-1)
    replica_epoch: Int64 = since(15, default=-1)


@struct
class FetchPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32 = 0
    replica_directory_id: Uuid = since(17, tag=0, default=ZERO_UUID, ignorable=True)
    high_watermark: Int64 = since(18, tag=1, default=9223372036854775807, ignorable=True)


@struct
class FetchTopic:
    topic: String = since(0, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[FetchPartition] = []


@struct
class ForgottenTopic:
    topic: String = since(7, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[Int32] = since(7, default=[])


@api(key=1, versions=(4, 18), flexible=12)
class FetchRequest:
    """Asks for batches from given offsets on; answered when min_bytes are there or max_wait_ms are over."""

    cluster_id: String | None = since(12, tag=0, default=None, ignorable=True)
    replica_id: Int32 = since(0, until=14, default=-1)
    replica_state: ReplicaState = since(15, tag=1, factory=ReplicaState)
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = since(3, default=2147483647, ignorable=True)
    isolation_level: Int8 = since(4, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Array[FetchTopic] = []
    forgotten_topics_data: Array[ForgottenTopic] = since(7, default=[])
    rack_id: String = since(11, default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: Int32 = since(12, default=-1)
    end_offset: Int64 = since(12, default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = since(12, default=-1)
    leader_epoch: Int32 = since(12, default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    producer_id: Int64 = since(4, default=0)
    first_offset: Int64 = since(4, default=0)


@struct
class PartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = since(4, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = since(12, tag=0, factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = since(12, tag=1, factory=LeaderIdAndEpoch)
    snapshot_id: SnapshotId = since(12, tag=2, factory=SnapshotId)
    aborted_transactions: Array[AbortedTransaction] | None = since(4, default=[], ignorable=True)
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records | None = None


@struct
class FetchableTopicResponse:
    topic: String = since(0, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    partitions: Array[PartitionData] = []


@struct
class NodeEndpoint:
    node_id: Int32 = since(16, default=0)
    host: String = since(16, default="")
    port: Int32 = since(16, default=0)
    rack: String | None = since(16, default=None)


@message(versions=(4, 18), flexible=12)
class FetchResponse:
    """Carries whole batches, the first of which may begin before the offset asked for."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchableTopicResponse] = []
    node_endpoints: Array[NodeEndpoint] = since(16, tag=0, default=[])
