"""ElectLeaders (key 43): elect the preferred replica, or an unclean one (KIP-183, KIP-460)."""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, since, struct


@struct
class TopicPartitions:
    topic: String = ""
    partitions: Array[Int32] = []


@api(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    election_type: Int8 = since(1, default=0)
    topic_partitions: Array[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


@struct
class PartitionResult:
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


@struct
class ReplicaElectionResult:
    topic: String = ""
    partition_result: Array[PartitionResult] = []


@message(versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1, default=0)
    replica_election_results: Array[ReplicaElectionResult] = []
