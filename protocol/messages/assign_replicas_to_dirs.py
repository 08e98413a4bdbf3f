"""AssignReplicasToDirs (key 73): in which log directories a broker has its replicas (KIP-858)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, Int64, Uuid, api, message, struct
from ..uuids import ZERO_UUID


@struct
class AssignReplicasToDirsRequestPartitionData:
    partition_index: Int32 = 0


@struct
class AssignReplicasToDirsRequestTopicData:
    topic_id: Uuid = ZERO_UUID
    partitions: Array[AssignReplicasToDirsRequestPartitionData] = []


@struct
class AssignReplicasToDirsRequestDirectoryData:
    id: Uuid = ZERO_UUID
    topics: Array[AssignReplicasToDirsRequestTopicData] = []


@api(key=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    directories: Array[AssignReplicasToDirsRequestDirectoryData] = []


@struct
class AssignReplicasToDirsResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AssignReplicasToDirsResponseTopicData:
    topic_id: Uuid = ZERO_UUID
    partitions: Array[AssignReplicasToDirsResponsePartitionData] = []


@struct
class AssignReplicasToDirsResponseDirectoryData:
    id: Uuid = ZERO_UUID
    topics: Array[AssignReplicasToDirsResponseTopicData] = []


@message(versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: Array[AssignReplicasToDirsResponseDirectoryData] = []
