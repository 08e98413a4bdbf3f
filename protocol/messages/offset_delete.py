"""OffsetDelete (key 47): removes committed offsets of a group (KIP-496)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, api, message, since, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = 0


@struct
class OffsetDeleteRequestTopic:
    name: String = ""
    partitions: Array[OffsetDeleteRequestPartition] = []


@api(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest:
    """Asks to delete the offsets of partitions."""

    group_id: String = ""
    topics: Array[OffsetDeleteRequestTopic] = []


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    name: String = ""
    partitions: Array[OffsetDeleteResponsePartition] = []


@message(versions=(0, 0), flexible=None)
class OffsetDeleteResponse:
    """Tells an error code for the group or for each partition."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = since(0, default=0, ignorable=True)
    topics: Array[OffsetDeleteResponseTopic] = []
