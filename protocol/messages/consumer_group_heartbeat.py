"""ConsumerGroupHeartbeat (key 68): the one request by which a member of a KIP-848 group joins, lives, is given partitions and leaves.

Version notes: 1 subscribed_topic_regex, and member ids that the client generates (KIP-1082).
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, Uuid, api, message, since, struct


@struct
class HeartbeatTopicPartitions:
    topic_id: Uuid = bytes(16)
    partitions: Array[Int32] = []


@api(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    """Null, or -1, says that something is as it was in the heartbeat before. Epoch 0 joins, -1 leaves, -2 leaves for a while."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Array[String] | None = None
    subscribed_topic_regex: String | None = since(1, default=None)
    server_assignor: String | None = None
    topic_partitions: Array[HeartbeatTopicPartitions] | None = None


@struct
class HeartbeatAssignment:
    topic_partitions: Array[HeartbeatTopicPartitions] = []


@message(versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and, if it changed, its assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None
