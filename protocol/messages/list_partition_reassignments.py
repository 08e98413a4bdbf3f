"""ListPartitionReassignments (key 46): reassignments in progress (KIP-455)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, api, message, struct


@struct
class ListPartitionReassignmentsTopics:
    name: String = ""
    partition_indexes: Array[Int32] = []


@api(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    topics: Array[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = 0
    replicas: Array[Int32] = []
    adding_replicas: Array[Int32] = []
    removing_replicas: Array[Int32] = []


@struct
class OngoingTopicReassignment:
    name: String = ""
    partitions: Array[OngoingPartitionReassignment] = []


@message(versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: Array[OngoingTopicReassignment] = []
