"""OffsetCommit (key 8): positions of a group's members, to be kept.

Version notes: 2 is the oldest served; 5 retention_time_ms is gone; 6 leader epochs (KIP-320); 7 static members (KIP-345); 8 flexible; 9
consumer groups of KIP-848; 10 topic ids in place of names.
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    committed_metadata: String | None = ""


@struct
class OffsetCommitRequestTopic:
    name: String = since(0, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitRequestPartition] = []


@api(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest:
    """Asks to keep offsets for a group."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = since(1, default="", ignorable=True)
    group_instance_id: String | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1, ignorable=True)
    topics: Array[OffsetCommitRequestTopic] = []


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic:
    name: String = since(0, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetCommitResponsePartition] = []


@message(versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    """Tells an error code for each partition."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetCommitResponseTopic] = []
