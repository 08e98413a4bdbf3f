"""OffsetFetch (key 9): a group's kept positions.

Version notes: 2 null topics means all; 5 leader epochs; 6 flexible; 7 require_stable (KIP-447); 8 several groups at once; 9 members of
KIP-848 groups; 10 topic ids in place of names.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class OffsetFetchRequestTopic:
    name: String = since(0, until=7, default="")
    partition_indexes: Array[Int32] = since(0, until=7, default=[])


@struct
class OffsetFetchRequestTopics:
    name: String = since(8, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partition_indexes: Array[Int32] = since(8, default=[])


@struct
class OffsetFetchRequestGroup:
    group_id: String = since(8, default="")
    member_id: String | None = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: Array[OffsetFetchRequestTopics] | None = since(8, default=[])


@api(key=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest:
    """Asks for committed offsets; up to version 7 of one group, then of several."""

    group_id: String = since(0, until=7, default="")
    topics: Array[OffsetFetchRequestTopic] | None = since(0, until=7, nullable_since=2, default=[])
    groups: Array[OffsetFetchRequestGroup] = since(8, default=[])
    require_stable: Bool = since(7, default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = since(0, until=7, default=0)
    committed_offset: Int64 = since(0, until=7, default=0)
    committed_leader_epoch: Int32 = since(5, until=7, default=-1, ignorable=True)
    metadata: String | None = since(0, until=7, default="")
    error_code: Int16 = since(0, until=7, default=0)


@struct
class OffsetFetchResponseTopic:
    name: String = since(0, until=7, default="")
    partitions: Array[OffsetFetchResponsePartition] = since(0, until=7, default=[])


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = since(8, default=0)
    committed_offset: Int64 = since(8, default=0)
    committed_leader_epoch: Int32 = since(8, default=-1, ignorable=True)
    metadata: String | None = since(8, default="")
    error_code: Int16 = since(8, default=0)


@struct
class OffsetFetchResponseTopics:
    name: String = since(8, until=9, default="", ignorable=True)
    topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)
    partitions: Array[OffsetFetchResponsePartitions] = since(8, default=[])


@struct
class OffsetFetchResponseGroup:
    group_id: String = since(8, default="")
    topics: Array[OffsetFetchResponseTopics] = since(8, default=[])
    error_code: Int16 = since(8, default=0)


@message(versions=(1, 10), flexible=6)
class OffsetFetchResponse:
    """Tells committed offsets; -1 where there is none."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetFetchResponseTopic] = since(0, until=7, default=[])
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
    groups: Array[OffsetFetchResponseGroup] = since(8, default=[])
