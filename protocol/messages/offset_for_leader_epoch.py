"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, for clients that must find out whether their log was truncated.

Version notes: 2 the current leader epoch (KIP-320); 3 replica_id; 4 flexible.
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, api, message, since, struct


@struct
class OffsetForLeaderPartition:
    partition: Int32 = 0
    current_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    leader_epoch: Int32 = 0


@struct
class OffsetForLeaderTopic:
    topic: String = ""
    partitions: Array[OffsetForLeaderPartition] = []


@api(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    """Asks for the end of leader epochs."""

    replica_id: Int32 = since(3, default=-2, ignorable=True)
    topics: Array[OffsetForLeaderTopic] = []


@struct
class EpochEndOffset:
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: String = ""
    partitions: Array[EpochEndOffset] = []


@message(versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """Tells the largest epoch not above the one asked for and its end offset."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[OffsetForLeaderTopicResult] = []
