"""Values of the records that KIP-848 groups have in `__consumer_offsets`; their keys are in group_records.py.

Source: the group coordinator's record definitions of Apache Kafka 4.3: metadata_hash is KIP-1101's, assignment_timestamp KIP-1263's,
assignment_epochs KIP-1251's.
"""

from __future__ import annotations

from ...schema import Array, Bytes, Int8, Int32, Int64, String, Uuid, message, since, struct
from ...uuids import ZERO_UUID


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    epoch: Int32 = 0
    metadata_hash: Int64 = since(0, tag=0, default=0)


@struct
class PartitionRacks:
    partition: Int32 = 0
    racks: Array[String] = []


@struct
class SubscribedTopicMetadata:
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    num_partitions: Int32 = 0
    partition_metadata: Array[PartitionRacks] = []


@message(versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    """Written by Kafka before 4.1; today the metadata hash says the same."""

    topics: Array[SubscribedTopicMetadata] = []


@struct
class ClassicProtocol:
    name: String = ""
    metadata: Bytes = b""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = 0
    supported_protocols: Array[ClassicProtocol] = []


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Array[String] = []
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: ClassicMemberMetadata | None = since(0, tag=0, factory=ClassicMemberMetadata)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = since(0, tag=0, default=0, ignorable=True)


@struct
class TargetTopicPartitions:
    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = []


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TargetTopicPartitions] = []


@struct
class CurrentTopicPartitions:
    topic_id: Uuid = ZERO_UUID
    partitions: Array[Int32] = []
    assignment_epochs: Array[Int32] | None = since(0, tag=0, default=None)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Array[CurrentTopicPartitions] = []
    partitions_pending_revocation: Array[CurrentTopicPartitions] = []


@message(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    topics: Array[String] = []
    version: Int64 = 0
    timestamp: Int64 = 0
