"""Records of `__consumer_offsets`: committed offsets, classic groups, and the keys of KIP-848 groups.

The values of KIP-848 groups are in consumer_group_records.py, which a broker without such groups does not need.

`broker/coordination/records.py` frames them. Key types 0 and 1 once were two versions of one key, which is why both are offset commits.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and the group coordinator's record definitions.
"""

from __future__ import annotations

from ...schema import Array, Bytes, Int32, Int64, String, Uuid, message, since, struct
from ...uuids import ZERO_UUID


@message(key=0, versions=(0, 0), flexible=None)
class LegacyOffsetCommitKey:
    """Left by very old brokers; means what an OffsetCommitKey means."""

    group: String = ""
    topic: String = ""
    partition: Int32 = 0


@message(key=1, versions=(0, 0), flexible=None)
class OffsetCommitKey:
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


@message(key=2, versions=(0, 0), flexible=None)
class GroupMetadataKey:
    group: String = ""


@message(versions=(0, 0), flexible=None)
class LegacyOffsetCommitValue:
    offset: Int64 = 0
    metadata: String = ""
    commit_timestamp: Int64 = 0


@message(versions=(0, 4), flexible=4)
class OffsetCommitValue:
    offset: Int64 = 0
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = since(4, tag=0, default=ZERO_UUID, ignorable=True)


@struct
class MemberMetadata:
    member_id: String = ""
    group_instance_id: String | None = since(3, default=None, ignorable=True)
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


@message(versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A classic group with its generation and its members."""

    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = ""
    leader: String | None = ""
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[MemberMetadata] = []


@message(key=3, versions=(0, 0), flexible=None)
class ConsumerGroupMetadataKey:
    group_id: String = ""


@message(key=4, versions=(0, 0), flexible=None)
class ConsumerGroupPartitionMetadataKey:
    group_id: String = ""


@message(key=5, versions=(0, 0), flexible=None)
class ConsumerGroupMemberMetadataKey:
    group_id: String = ""
    member_id: String = ""


@message(key=6, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String = ""


@message(key=7, versions=(0, 0), flexible=None)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: String = ""
    member_id: String = ""


@message(key=8, versions=(0, 0), flexible=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: String = ""
    member_id: String = ""


@message(key=16, versions=(0, 0), flexible=None)
class ConsumerGroupRegularExpressionKey:
    group_id: String = ""
    regular_expression: String = ""
