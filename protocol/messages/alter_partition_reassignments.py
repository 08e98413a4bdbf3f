"""AlterPartitionReassignments (key 45): move replicas between brokers (KIP-455)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, String, api, message, since, struct


@struct
class ReassignablePartition:
    partition_index: Int32 = 0
    replicas: Array[Int32] | None = None


@struct
class ReassignableTopic:
    name: String = ""
    partitions: Array[ReassignablePartition] = []


@api(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: Array[ReassignableTopic] = []


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


@struct
class ReassignableTopicResponse:
    name: String = ""
    partitions: Array[ReassignablePartitionResponse] = []


@message(versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = since(1, default=True, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: Array[ReassignableTopicResponse] = []
