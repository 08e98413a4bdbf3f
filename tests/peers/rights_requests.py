"""One request or more for each API, which all name the same resources: for what a client with these or those rights is answered.

A request can be sent again and again: it changes nothing, or the same each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.describe_producers import TopicRequest as ProducersTopic
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.peers.odd_request import UNKNOWN_ID, batch, topic

BROKER = 4
TOPIC, MISSING, GROUP, TRANSACTION = "t", "missing", "g", "x"
"""The topic is there, the other is not; the group has committed offsets; the transactional id has no transaction."""

Make = Callable[[bytes], Any]
"""Makes the message, given the topic's id."""


@dataclass(frozen=True, slots=True)
class RightsRequest:
    """`name` begins with the API's."""

    name: str
    version: int
    make: Make

    @property
    def api(self) -> str:
        return self.name.partition(" ")[0]


def request(name: str, version: int, message: Any) -> RightsRequest:
    return RightsRequest(name, version, message if callable(message) and not isinstance(message, type) else lambda _: message)


def _produce(records: Any, transactional_id: str | None = None) -> ProduceRequest:
    topics = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)]) for name in (TOPIC, MISSING)]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)


def _transactional_batch() -> memoryview:
    return batch(producer_id=10**9, producer_epoch=0, base_sequence=0, is_transactional=True)


def _produce_by_id(topic_id: bytes) -> ProduceRequest:
    topics = [
        TopicProduceData(topic_id=each, partition_data=[PartitionProduceData(index=0, records=batch())]) for each in (topic_id, UNKNOWN_ID)
    ]
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)


def _fetch(*, replica_id: int = -1, version: int = 12) -> FetchRequest:
    topics = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=index, fetch_offset=10**6, partition_max_bytes=1) for index in (0, 9)])
        for name in (TOPIC, MISSING)
    ]
    return FetchRequest(replica_id=replica_id, max_wait_ms=0, topics=topics)


def _fetch_by_id(topic_id: bytes, replica_id: int = -1) -> FetchRequest:
    topics = [
        FetchTopic(topic_id=each, partitions=[FetchPartition(partition=0, fetch_offset=10**6, partition_max_bytes=1)])
        for each in (topic_id, UNKNOWN_ID)
    ]
    return FetchRequest(replica_state=ReplicaState(replica_id=replica_id), max_wait_ms=0, topics=topics)


def _metadata(*names: str, **fields: Any) -> MetadataRequest:
    given = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **(given | fields))


def _metadata_by_id(topic_id: bytes) -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, UNKNOWN_ID)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)


def _commit(names: tuple[str, ...] = (TOPIC, MISSING)) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 9)]
    return OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names])


def _commit_by_id(topic_id: bytes) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(topic_id=each, partitions=partitions) for each in (topic_id, UNKNOWN_ID)]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


def _offsets(*, by_name: bool = True) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 9]) for name in (TOPIC, MISSING)] if by_name else None
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])


def _offsets_by_id(topic_id: bytes) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (topic_id, UNKNOWN_ID)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])


def _old_offsets(*, all_of_them: bool = False) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 9]) for name in (TOPIC, MISSING)]
    return OffsetFetchRequest(group_id=GROUP, topics=None if all_of_them else topics)


def _txn_commit() -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in (TOPIC, MISSING)]
    return TxnOffsetCommitRequest(transactional_id=TRANSACTION, group_id=GROUP, producer_id=10**9, topics=topics)


def _additions(names: tuple[str, ...]) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names]
    return AddPartitionsToTxnRequest(v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=10**9, v3_and_below_topics=topics)


def _additions_of_broker() -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    transaction = AddPartitionsToTxnTransaction(transactional_id=TRANSACTION, producer_id=10**9, verify_only=True, topics=topics)
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _described_configs(*resources: tuple[int, str, str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key]) for kind, name, key in resources
        ]
    )


_ALTERED = (
    (2, TOPIC, "retention.ms", "1"),
    (2, MISSING, "retention.ms", "1"),
    (BROKER, "", "message.max.bytes", "2000000"),
    (16, "metrics", "interval.ms", "1000"),
    (32, GROUP, "consumer.session.timeout.ms", "45000"),
)


def _altered(*rows: tuple[int, str, str, str]) -> IncrementalAlterConfigsRequest:
    resources = [
        AlterConfigsResource(resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value=value)])
        for kind, name, key, value in rows
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def _replaced() -> AlterConfigsRequest:
    resources = [
        ReplacedResource(resource_type=kind, resource_name=name, configs=[ReplacedConfig(name=key, value=value)])
        for kind, name, key, value in _ALTERED
        if kind != BROKER  # Kafka refuses to remove the cluster's min.insync.replicas, which it has set there
    ]
    return AlterConfigsRequest(resources=resources, validate_only=True)


def _deletions_by_id(topic_id: bytes) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=UNKNOWN_ID), DeleteTopicState(name=MISSING)], timeout_ms=10_000)


def _joining() -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(group_id="joining", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)


def _heartbeat(*names: str, group: str = "none") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id="member", member_epoch=5, subscribed_topic_names=list(names) or None)


_LOG_DIRS = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=MISSING, partitions=[0])])
_MARKER = WritableTxnMarker(producer_id=5, topics=[WritableTxnMarkerTopic(name=MISSING, partition_indexes=[0])])
_OTHER_LOG = DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[DescribeQuorumRequestPartitionData()])
_ACL = AclCreation(resource_type=2, resource_name="z", principal="User:z", host="*", operation=3, permission_type=3)
_NO_ACL = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="none", operation=3, permission_type=3)
_QUOTA = EntryData(entity=[EntityData(entity_type="user", entity_name="u")], ops=[OpData(key="producer_byte_rate", value=1000.0)])
_LISTED = ListOffsetsRequest(
    replica_id=-1,
    topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-2)]) for name in (TOPIC, MISSING)],
)
_EPOCHS = OffsetForLeaderEpochRequest(
    topics=[OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(leader_epoch=0)]) for name in (TOPIC, MISSING)]
)
_SHOWN_ACLS = DescribeAclsRequest(
    resource_type_filter=2, resource_name_filter="z", pattern_type_filter=3, principal_filter=None, host_filter=None, operation=1,
    permission_type=1,
)  # fmt: skip
_CREATED = CreateTopicsRequest(topics=[topic("new"), topic(TOPIC), topic("a/b")], validate_only=True)

FORWARDED: list[RightsRequest] = [
    *(request(f"CreateTopics v{version}", version, _CREATED) for version in (2, 5, 7)),
    request("DeleteTopics by name", 5, DeleteTopicsRequest(topic_names=[MISSING, "missing-too"], timeout_ms=10_000)),
    request("DeleteTopics by id", 6, _deletions_by_id),
    request(
        "CreatePartitions",
        3,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=5, assignments=None) for name in (TOPIC, MISSING)],
            timeout_ms=10_000,
            validate_only=True,
        ),
    ),
    request("CreateAcls", 3, CreateAclsRequest(creations=[_ACL])),
    request("DeleteAcls", 3, DeleteAclsRequest(filters=[_NO_ACL])),
    request("AlterConfigs", 2, _replaced()),
    request("IncrementalAlterConfigs", 1, _altered(*_ALTERED)),
    request("ElectLeaders v0", 0, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])])),
    request("ElectLeaders v2", 2, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])])),
    request(
        "AlterPartitionReassignments",
        0,
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[ReassignablePartition(replicas=None)])]),
    ),
    request("ListPartitionReassignments", 0, ListPartitionReassignmentsRequest()),
    request("DescribeQuorum of another log", 1, DescribeQuorumRequest(topics=[_OTHER_LOG])),
    request("AlterClientQuotas", 1, AlterClientQuotasRequest(entries=[_QUOTA], validate_only=True)),
    request("AlterUserScramCredentials", 0, AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)])),
    request("UnregisterBroker", 0, UnregisterBrokerRequest(broker_id=99)),
    request("UpdateFeatures v1", 1, UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="none", max_version_level=1)])),
    request("RemoveRaftVoter", 0, RemoveRaftVoterRequest(cluster_id=None, voter_id=7)),
]
"""Answered by the controller, to clients of it and of brokers alike."""

SERVED_BY_BOTH: list[RightsRequest] = [
    *(request(f"DescribeAcls v{version}", version, _SHOWN_ACLS) for version in (1, 3)),
    request(
        "DescribeConfigs",
        4,
        _described_configs(
            (2, TOPIC, "retention.ms"), (2, MISSING, "retention.ms"), (4, "1", "num.partitions"), (32, GROUP, "consumer.session.timeout.ms")
        ),
    ),
]

OF_BROKERS: list[RightsRequest] = [
    request("Produce", 9, lambda _: _produce(batch())),
    request("Produce by id", 13, _produce_by_id),
    request(
        "Produce in a transaction",
        9,
        lambda _: _produce(batch(producer_id=10**9, producer_epoch=0, base_sequence=0, is_transactional=True), TRANSACTION),
    ),
    request("Produce with a transactional id", 9, lambda _: _produce(batch(), TRANSACTION)),
    request("Fetch", 12, _fetch()),
    request("Fetch by id", 13, _fetch_by_id),
    request("Fetch of a replica", 12, _fetch(replica_id=77)),
    request("Fetch of a replica by id", 15, lambda topic_id: _fetch_by_id(topic_id, 77)),
    *(request(f"ListOffsets v{version}", version, _LISTED) for version in (1, 6)),
    request("Metadata v0", 0, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])),
    request("Metadata of all v0", 0, MetadataRequest()),
    request("Metadata v9", 9, _metadata(TOPIC, MISSING, include_cluster_authorized_operations=True)),
    request("Metadata of all v9", 9, MetadataRequest(topics=None, include_topic_authorized_operations=True)),
    request("Metadata by id", 12, _metadata_by_id),
    request("Metadata with a bad name", 9, _metadata("a/b", allow_auto_topic_creation=True)),
    request("OffsetCommit", 9, lambda _: _commit()),
    request("OffsetCommit by id", 10, _commit_by_id),
    request("OffsetFetch v1", 1, _old_offsets()),
    request("OffsetFetch v7", 7, _old_offsets()),
    request("OffsetFetch of all v7", 7, _old_offsets(all_of_them=True)),
    request("OffsetFetch v9", 9, _offsets()),
    request("OffsetFetch of all v9", 9, _offsets(by_name=False)),
    request("OffsetFetch by id", 10, _offsets_by_id),
    request("OffsetFetch of all v10", 10, _offsets(by_name=False)),
    *(request(f"FindCoordinator of a group v{version}", version, FindCoordinatorRequest(key=GROUP)) for version in (0, 3)),
    request("FindCoordinator of groups", 4, FindCoordinatorRequest(coordinator_keys=[GROUP])),
    request("FindCoordinator of a transaction", 3, FindCoordinatorRequest(key=TRANSACTION, key_type=1)),
    request("FindCoordinator of transactions", 6, FindCoordinatorRequest(coordinator_keys=[TRANSACTION], key_type=1)),
    request("JoinGroup v9", 9, _joining()),
    *(request(f"Heartbeat v{version}", version, HeartbeatRequest(group_id=GROUP, member_id="m")) for version in (0, 4)),
    request("LeaveGroup v0", 0, LeaveGroupRequest(group_id=GROUP, member_id="m")),
    request("LeaveGroup v5", 5, LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")])),
    request("SyncGroup v0", 0, SyncGroupRequest(group_id=GROUP, member_id="m")),
    request("SyncGroup v5", 5, SyncGroupRequest(group_id=GROUP, member_id="m", protocol_type="consumer", protocol_name="range")),
    request("SyncGroup without a protocol", 5, SyncGroupRequest(group_id=GROUP, member_id="m")),
    request("DescribeGroups v0", 0, DescribeGroupsRequest(groups=[GROUP])),
    request("DescribeGroups v6", 6, DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True)),
    request("ListGroups", 5, ListGroupsRequest()),
    request(
        "DeleteRecords",
        2,
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(offset=0)]) for name in (TOPIC, MISSING)],
            timeout_ms=10_000,
        ),
    ),
    request("InitProducerId", 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
    request("InitProducerId of a transaction", 4, InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=10**9)),
    request("InitProducerId of no name", 4, InitProducerIdRequest(transactional_id="")),
    *(request(f"OffsetForLeaderEpoch v{version}", version, _EPOCHS) for version in (2, 4)),
    request("AddPartitionsToTxn v3", 3, _additions((TOPIC,))),
    request("AddPartitionsToTxn of several", 3, _additions((TOPIC, MISSING, "__consumer_offsets"))),
    request("AddPartitionsToTxn v5", 5, _additions_of_broker()),
    request("AddOffsetsToTxn", 4, AddOffsetsToTxnRequest(transactional_id=TRANSACTION, producer_id=10**9, group_id=GROUP)),
    *(request(f"EndTxn v{version}", version, EndTxnRequest(transactional_id=TRANSACTION, producer_id=10**9)) for version in (1, 4, 5)),
    request("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[_MARKER])),
    *(request(f"TxnOffsetCommit v{version}", version, lambda _: _txn_commit()) for version in (0, 3)),
    request("IncrementalAlterConfigs of loggers", 1, _altered((8, "1", "root", "INFO"))),
    request(
        "AlterReplicaLogDirs",
        2,
        AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path="/nowhere", topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])]
        ),
    ),
    *(request(f"DescribeLogDirs v{version}", version, _LOG_DIRS) for version in (1, 4)),
    request("DeleteGroups", 2, DeleteGroupsRequest(groups_names=["none"])),
    request(
        "OffsetDelete",
        0,
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=9)])
                for name in (TOPIC, MISSING)
            ],
        ),
    ),
    request("DescribeClientQuotas", 1, DescribeClientQuotasRequest()),
    request("DescribeCluster", 1, DescribeClusterRequest(include_cluster_authorized_operations=True)),
    request("DescribeUserScramCredentials", 0, DescribeUserScramCredentialsRequest()),
    request(
        "DescribeProducers",
        0,
        DescribeProducersRequest(topics=[ProducersTopic(name=name, partition_indexes=[0]) for name in (MISSING, "a/b")]),
    ),
    request("DescribeTransactions", 0, DescribeTransactionsRequest(transactional_ids=["none"])),
    request("ListTransactions", 1, ListTransactionsRequest()),
    request("ConsumerGroupHeartbeat", 1, _heartbeat(TOPIC, MISSING)),
    request("ConsumerGroupHeartbeat without names", 1, _heartbeat()),
    request("ConsumerGroupDescribe", 1, ConsumerGroupDescribeRequest(group_ids=["none"], include_authorized_operations=True)),
    request("ListConfigResources", 1, ListConfigResourcesRequest(resource_types=[4])),
    request("ListConfigResources v0", 0, ListConfigResourcesRequest()),
    request("DescribeTopicPartitions", 0, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in (TOPIC, MISSING)])),
    request("DescribeTopicPartitions of all", 0, DescribeTopicPartitionsRequest()),
]

AT_BROKERS = [*OF_BROKERS, *FORWARDED, *SERVED_BY_BOTH]
AT_CONTROLLERS = [
    *FORWARDED,
    *SERVED_BY_BOTH,
    request("DescribeCluster", 1, DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=2)),
    request("IncrementalAlterConfigs of loggers", 1, _altered((8, "1", "root", "INFO"))),
]
