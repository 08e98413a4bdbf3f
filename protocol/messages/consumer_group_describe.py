"""ConsumerGroupDescribe (key 69): state, epochs and members of KIP-848 groups.

Version notes: 1 member_type (KIP-1099).
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, Uuid, api, message, since, struct


@api(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    """Asks for groups by id."""

    group_ids: Array[String] = []
    include_authorized_operations: Bool = False


@struct
class DescribedTopicPartitions:
    topic_id: Uuid = bytes(16)
    topic_name: String = ""
    partitions: Array[Int32] = []


@struct
class DescribedAssignment:
    topic_partitions: Array[DescribedTopicPartitions] = []


@struct
class DescribedConsumerMember:
    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Array[String] = []
    subscribed_topic_regex: String | None = None
    assignment: DescribedAssignment = since(0, factory=DescribedAssignment)
    target_assignment: DescribedAssignment = since(0, factory=DescribedAssignment)
    member_type: Int8 = since(1, default=-1, ignorable=True)


@struct
class DescribedConsumerGroup:
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Array[DescribedConsumerMember] = []
    authorized_operations: Int32 = -2147483648


@message(versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """Tells state, epochs and members of each group."""

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedConsumerGroup] = []
