"""DeleteRecords (key 21): remove the records before an offset.

Version notes: 2 flexible.
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, String, api, message, struct

INVALID_LOW_WATERMARK = -1


@struct
class DeleteRecordsPartition:
    """The offset -1 stands for the high watermark."""

    partition_index: Int32 = 0
    offset: Int64 = 0


@struct
class DeleteRecordsTopic:
    name: String = ""
    partitions: Array[DeleteRecordsPartition] = []


@api(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Asks to remove the records before an offset of each partition, and to wait until all replicas have done so."""

    topics: Array[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: String = ""
    partitions: Array[DeleteRecordsPartitionResult] = []


@message(versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """Tells each partition's low watermark, the lowest offset at which a replica that is alive begins."""

    throttle_time_ms: Int32 = 0
    topics: Array[DeleteRecordsTopicResult] = []
