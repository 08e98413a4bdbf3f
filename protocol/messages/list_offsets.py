"""ListOffsets (key 2): offsets by timestamp, or at either end of a partition.

Version notes: 1 one offset per partition; 2 isolation level; 4 leader epochs (KIP-320); 6 flexible; 7 the offset of the largest timestamp
(-3); 8 and 9 local and tiered log (-4, -5); 10 timeout_ms (KIP-1075); 11 the earliest offset not yet tiered (-6).
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, Int64, String, api, message, since, struct


@struct
class ListOffsetsPartition:
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64 = 0


@struct
class ListOffsetsTopic:
    name: String = ""
    partitions: Array[ListOffsetsPartition] = []


@api(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest:
    """Asks for the first offset at or after a timestamp; -1 is the end, -2 the start."""

    replica_id: Int32 = 0
    isolation_level: Int8 = since(2, default=0)
    topics: Array[ListOffsetsTopic] = []
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = since(1, default=-1)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: String = ""
    partitions: Array[ListOffsetsPartitionResponse] = []


@message(versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    """Tells an offset and the timestamp found there."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[ListOffsetsTopicResponse] = []
