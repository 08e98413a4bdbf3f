"""What tools ask of a broker in the fuzzer of admin operations.

Each step is a request. Topics, groups and client metrics subscriptions are named without the namespace, but for names that no topic can
have (`RAW_NAMES`); a topic id is said by the topic's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.records import SimpleRecord, build_batch
from tests.peers.differential.names import Names

TIMEOUT_MS = 10_000
TIMESTAMP_MS = 1_000
"""Of the records: the same on both brokers."""


class Resource(IntEnum):
    """What configs belong to."""

    TOPIC = 2
    BROKER = 4
    LOGGER = 8
    METRICS = 16
    GROUP = 32


class Operation(IntEnum):
    """Of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def _resource_name(names: Names, kind: int, name: str) -> str:
    return names.of(name) if kind in (Resource.TOPIC, Resource.METRICS, Resource.GROUP) else name


class AdminStep(Protocol):
    """What all steps have."""

    @property
    def version(self) -> int:
        """Of the request."""

    def message(self, names: Names) -> Any:
        """The request."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Of CreateTopics. `assignments` are partitions and their replicas."""

    name: str
    partitions: int = 1
    replicas: int = 1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()

    def message(self, names: Names) -> CreatableTopic:
        return CreatableTopic(
            name=names.of(self.name),
            num_partitions=self.partitions,
            replication_factor=self.replicas,
            assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids)) for index, ids in self.assignments],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in self.configs],
        )


@dataclass(frozen=True, slots=True)
class CreateTopics:
    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    version: int = 7

    def message(self, names: Names) -> CreateTopicsRequest:
        topics = [topic.message(names) for topic in self.topics]
        return CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=self.validate_only)


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """By names, or by the ids of `by_id`; `by_both` says both, which is refused."""

    names: tuple[str, ...] = ()
    by_id: tuple[str, ...] = ()
    by_both: tuple[str, ...] = ()
    version: int = 6

    def message(self, names: Names) -> DeleteTopicsRequest:
        if self.version < 6:
            return DeleteTopicsRequest(topic_names=[names.of(name) for name in self.names], timeout_ms=TIMEOUT_MS)
        topics = [DeleteTopicState(name=names.of(name)) for name in self.names]
        topics += [DeleteTopicState(topic_id=names.topic_id(name)) for name in self.by_id]
        topics += [DeleteTopicState(name=names.of(name), topic_id=names.topic_id(name)) for name in self.by_both]
        return DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """`topics` are names, totals and the new partitions' replicas."""

    topics: tuple[tuple[str, int, tuple[tuple[int, ...], ...] | None], ...]
    validate_only: bool = False
    version: int = 3

    def message(self, names: Names) -> CreatePartitionsRequest:
        topics = []
        for name, count, assignments in self.topics:
            made = None if assignments is None else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments]
            topics.append(CreatePartitionsTopic(name=names.of(name), count=count, assignments=made))
        return CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=self.validate_only)


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Replaces all configs of each resource: its kind, its name, keys and values."""

    resources: tuple[tuple[int, str, tuple[tuple[str, str | None], ...]], ...]
    validate_only: bool = False
    version: int = 2

    def message(self, names: Names) -> AlterConfigsRequest:
        resources = [
            ReplacedResource(
                resource_type=kind,
                resource_name=_resource_name(names, kind, name),
                configs=[ReplacedConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in self.resources
        ]
        return AlterConfigsRequest(resources=resources, validate_only=self.validate_only)


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs:
    """Each resource's kind, its name, keys, operations and values."""

    resources: tuple[tuple[int, str, tuple[tuple[str, int, str | None], ...]], ...]
    validate_only: bool = False
    version: int = 1

    def message(self, names: Names) -> IncrementalAlterConfigsRequest:
        resources = [
            AlterConfigsResource(
                resource_type=kind,
                resource_name=_resource_name(names, kind, name),
                configs=[AlterableConfig(name=key, config_operation=int(operation), value=value) for key, operation, value in configs],
            )
            for kind, name, configs in self.resources
        ]
        return IncrementalAlterConfigsRequest(resources=resources, validate_only=self.validate_only)


@dataclass(frozen=True, slots=True)
class DescribeConfigs:
    """Without `keys` all configs of the resources."""

    resources: tuple[tuple[int, str], ...]
    keys: tuple[str, ...] | None = None
    synonyms: bool = True
    version: int = 4

    def message(self, names: Names) -> DescribeConfigsRequest:
        keys = None if self.keys is None else list(self.keys)
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=_resource_name(names, kind, name), configuration_keys=keys)
            for kind, name in self.resources
        ]
        return DescribeConfigsRequest(resources=resources, include_synonyms=self.synonyms)


@dataclass(frozen=True, slots=True)
class Reassign:
    """`partitions` are names, indexes and the new replicas; None gives a reassignment up."""

    partitions: tuple[tuple[str, int, tuple[int, ...] | None], ...]
    allow_replication_factor_change: bool = True
    version: int = 1

    def message(self, names: Names) -> AlterPartitionReassignmentsRequest:
        topics = [
            ReassignableTopic(
                name=names.of(name),
                partitions=[ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))],
            )
            for name, index, replicas in self.partitions
        ]
        return AlterPartitionReassignmentsRequest(
            topics=topics, allow_replication_factor_change=self.allow_replication_factor_change, timeout_ms=TIMEOUT_MS
        )


Partitions = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics with indexes."""


def _by_topic(partitions: Partitions, names: Names, make: Callable[[str, list[int]], Any]) -> list[Any]:
    return [make(names.of(name), list(indexes)) for name, indexes in partitions]


@dataclass(frozen=True, slots=True)
class ListReassignments:
    partitions: Partitions | None
    version: int = 0

    def message(self, names: Names) -> ListPartitionReassignmentsRequest:
        topics = None
        if self.partitions is not None:
            topics = _by_topic(
                self.partitions, names, lambda name, indexes: ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            )
        return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """`election` is 0 for the preferred leader, 1 for any."""

    partitions: Partitions
    election: int = 0
    version: int = 2

    def message(self, names: Names) -> ElectLeadersRequest:
        topics = _by_topic(self.partitions, names, lambda name, indexes: TopicPartitions(topic=name, partitions=indexes))
        return ElectLeadersRequest(election_type=self.election, topic_partitions=topics, timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirs:
    """To a directory that the broker does not have."""

    partitions: Partitions
    path: str = "/no/such/directory"
    version: int = 2

    def message(self, names: Names) -> AlterReplicaLogDirsRequest:
        topics = _by_topic(self.partitions, names, lambda name, indexes: AlterReplicaLogDirTopic(name=name, partitions=indexes))
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=self.path, topics=topics)])


@dataclass(frozen=True, slots=True)
class DescribeLogDirs:
    partitions: Partitions
    version: int = 5

    def message(self, names: Names) -> DescribeLogDirsRequest:
        topics = _by_topic(self.partitions, names, lambda name, indexes: DescribableLogDirTopic(topic=name, partitions=indexes))
        return DescribeLogDirsRequest(topics=topics)


@dataclass(frozen=True, slots=True)
class Produce:
    """`count` records in one batch."""

    topic: str
    partition: int
    count: int
    version: int = 9

    def message(self, names: Names) -> ProduceRequest:
        records = [SimpleRecord(key=b"key", value=str(number).encode(), timestamp=TIMESTAMP_MS) for number in range(self.count)]
        data = [PartitionProduceData(index=self.partition, records=memoryview(build_batch(records)))]
        topics = [TopicProduceData(name=names.of(self.topic), partition_data=data)]
        return ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """`partitions` are names, indexes and offsets."""

    partitions: tuple[tuple[str, int, int], ...]
    version: int = 2

    def message(self, names: Names) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(name=names.of(name), partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            for name, index, offset in self.partitions
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class DescribeTopicPartitions:
    topics: tuple[str, ...]
    limit: int = 2000
    cursor: tuple[str, int] | None = None
    version: int = 0

    def message(self, names: Names) -> DescribeTopicPartitionsRequest:
        cursor = None
        if self.cursor is not None:
            cursor = Cursor(topic_name=names.of(self.cursor[0]), partition_index=self.cursor[1])
        topics = [TopicRequest(name=names.of(name)) for name in self.topics]
        return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=self.limit, cursor=cursor)


@dataclass(frozen=True, slots=True)
class Metadata:
    """By names and by ids."""

    topics: tuple[str, ...] = ()
    by_id: tuple[str, ...] = ()
    version: int = 13

    def message(self, names: Names) -> MetadataRequest:
        topics = [MetadataRequestTopic(name=names.of(name)) for name in self.topics]
        topics += [MetadataRequestTopic(name=None, topic_id=names.topic_id(name)) for name in self.by_id]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self.version < 4)


@dataclass(frozen=True, slots=True)
class ListConfigResources:
    kinds: tuple[int, ...] = ()
    version: int = 1

    def message(self, names: Names) -> ListConfigResourcesRequest:
        return ListConfigResourcesRequest(resource_types=list(self.kinds))


@dataclass(frozen=True, slots=True)
class DescribeCluster:
    endpoint_type: int = 1
    fenced: bool = False
    version: int = 2

    def message(self, names: Names) -> DescribeClusterRequest:
        return DescribeClusterRequest(endpoint_type=self.endpoint_type, include_fenced_brokers=self.fenced)


@dataclass(frozen=True, slots=True)
class Commit:
    """Of a tool: the group has no members."""

    group: str
    topic: str
    partition: int
    offset: int
    version: int = 9

    def message(self, names: Names) -> OffsetCommitRequest:
        partitions = [OffsetCommitRequestPartition(partition_index=self.partition, committed_offset=self.offset)]
        topics = [OffsetCommitRequestTopic(name=names.of(self.topic), partitions=partitions)]
        return OffsetCommitRequest(group_id=names.of(self.group), topics=topics)


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    group: str
    version: int = 9

    def message(self, names: Names) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=names.of(self.group), topics=None)])


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    group: str
    partitions: Partitions
    version: int = 0

    def message(self, names: Names) -> OffsetDeleteRequest:
        topics = _by_topic(
            self.partitions,
            names,
            lambda name, indexes: OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            ),
        )
        return OffsetDeleteRequest(group_id=names.of(self.group), topics=topics)


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    groups: tuple[str, ...]
    version: int = 2

    def message(self, names: Names) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=[names.of(name) for name in self.groups])


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Validate only. `updates` are features, levels and upgrade types."""

    updates: tuple[tuple[str, int, int], ...]
    version: int = 2

    def message(self, names: Names) -> UpdateFeaturesRequest:
        updates = [FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind) for feature, level, kind in self.updates]
        return UpdateFeaturesRequest(feature_updates=updates, validate_only=True, timeout_ms=TIMEOUT_MS)
