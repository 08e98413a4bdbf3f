"""AlterReplicaLogDirs (key 34): move replicas between log directories of a broker (KIP-113)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, api, message, struct


@struct
class AlterReplicaLogDirTopic:
    name: String = ""
    partitions: Array[Int32] = []


@struct
class AlterReplicaLogDir:
    path: String = ""
    topics: Array[AlterReplicaLogDirTopic] = []


@api(key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    dirs: Array[AlterReplicaLogDir] = []


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String = ""
    partitions: Array[AlterReplicaLogDirPartitionResult] = []


@message(versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[AlterReplicaLogDirTopicResult] = []
