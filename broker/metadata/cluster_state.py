"""ClusterState: the cluster as the metadata log describes it. Event-sourced: it changes in `replay` and nowhere else.

The controller has one, replayed when records are appended, and the broker's MetadataCache has one, replayed when they are
committed; given the same records both are the same. No clock, no I/O, no randomness.

Invariants: every topic in `topics` is in `topics_by_id`; partition indexes of a topic are dense; a partition's epochs only grow.
Records between BeginTransactionRecord and EndTransactionRecord take effect together at the end, or not at all.

Source: the replay methods of ReplicationControlManager, ClusterControlManager, ConfigurationControlManager, FeatureControlManager,
ProducerIdControlManager, AclControlManager, ScramControlManager, DelegationTokenControlManager and OffsetControlManager (KIP-868 for
transactions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from broker.metadata.collected_changes import CollectedChanges
from broker.metadata.encoded_topic_records import EncodedTopicRecords, partition_image
from broker.metadata.features import (
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_LEVEL,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
)
from broker.metadata.image import (
    INTERNAL_TOPICS,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    RECOVERING,
    BrokerImage,
    MetadataDelta,
    PartitionImage,
    TopicImage,
)
from broker.metadata.topic_names import collision_key, has_collision_characters
from broker.metadata.unused_records import UnusedRecords
from broker.security.authorizer.acl_store import AclStore
from broker.security.credentials.scram_store import ScramStore
from broker.security.credentials.token_store import TokenStore
from broker.security.quotas.client_quotas import ClientQuotas
from protocol.messages.stored import metadata_records as records
from storage.errors import StorageError

Key = TypeVar("Key")
Value = TypeVar("Value")

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_BROKER_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32

BUFFERED_RECORDS_MAX = 1_000_000
"""Limit of records in one metadata transaction; Kafka's controller ends its own long before."""


class ElectionCounts:
    """Counts of replayed elections of partition leaders, for the metrics (Kafka's ControllerMetricsChanges)."""

    __slots__ = ("elected", "from_eligible_replicas", "unclean")

    def __init__(self) -> None:
        self.elected = 0
        self.from_eligible_replicas = 0
        self.unclean = 0


class ClusterState:
    """The image of brokers, topics, configs, features and the producer id counter. Only its owner calls `replay`."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.partitions_count = 0
        """Of all topics."""
        self.names_by_collision_key: dict[str, list[str]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.acls = AclStore()
        self.client_quotas = ClientQuotas()
        self.scram = ScramStore()
        self.tokens = TokenStore()
        self.kept = UnusedRecords()
        """The registrations of controllers."""
        self.is_in_transaction = False
        self.elections = ElectionCounts()
        """By this object, whatever it became since."""
        self._buffered: list[Any] = []
        self._changes = CollectedChanges()

    def replay(self, record: Any) -> None:
        """Apply one committed record. Raises StorageError for a record that contradicts the state: the log is damaged."""
        kind = type(record)
        if kind in _TRANSACTION_RECORDS:
            self._replay_transaction_mark(record)
        elif self.is_in_transaction:
            if len(self._buffered) >= BUFFERED_RECORDS_MAX:
                raise StorageError(f"a metadata transaction has more than {BUFFERED_RECORDS_MAX} records")
            self._buffered.append(record)
        else:
            self._apply(record)

    def replay_batch(self, batch: Sequence[Any]) -> None:
        """Apply the records of one batch, as `replay` would one by one."""
        if not isinstance(batch, EncodedTopicRecords) or self.is_in_transaction:
            for record in batch:
                self.replay(record)
            return
        for record in batch.heading:
            self.replay(record)
        self._add_partitions(batch)

    def take_delta(self) -> MetadataDelta:
        """Returns the changes since the last call."""
        delta = self._changes.to_delta(self.topics)
        self._changes = CollectedChanges()
        return delta

    def full_delta(self) -> MetadataDelta:
        """Returns the whole state as one delta, for a late subscriber."""
        changes = CollectedChanges()
        for topic in self.topics.values():
            changes.created[topic.name] = topic
            changes.partitions.update(((topic.name, index), None) for index in range(len(topic.partitions)))
        changes.topic_configs.update((name, None) for kind, name in self.configs if kind == RESOURCE_TOPIC)
        changes.broker_configs.update((name, None) for kind, name in self.configs if kind == RESOURCE_BROKER)
        changes.brokers.update((node_id, None) for node_id in self.brokers)
        changes.client_quotas = dict.fromkeys(self.client_quotas)
        return changes.to_delta(self.topics)

    def copy(self) -> ClusterState:
        """Returns an independent copy. It shares only the images, which are immutable."""
        copy = ClusterState()
        for topic in self.topics.values():
            own = TopicImage(topic.name, topic.topic_id, topic.partitions.copy(), topic.is_internal)
            copy.topics[own.name] = copy.topics_by_id[own.topic_id] = own
        copy.brokers = self.brokers.copy()
        copy.partitions_count = self.partitions_count
        copy.names_by_collision_key = {key: names.copy() for key, names in self.names_by_collision_key.items()}
        copy.configs = {resource: configs.copy() for resource, configs in self.configs.items()}
        copy.features = self.features.copy()
        copy.next_producer_id = self.next_producer_id
        copy.acls = self.acls.copy()
        copy.client_quotas = self.client_quotas.copy()
        copy.scram = self.scram.copy()
        copy.tokens = self.tokens.copy()
        copy.kept = self.kept.copy()
        copy.is_in_transaction = self.is_in_transaction
        copy._buffered = self._buffered.copy()
        return copy

    def become(self, other: ClusterState) -> None:
        """Replace the content by that of `other`, which the caller must not use afterwards. The next delta has the differences.

        The dicts stay the same objects, and so does the image of each topic that both states have."""
        self._note_differences(other)
        kept = {topic_id: topic for topic_id, topic in self.topics_by_id.items() if topic_id in other.topics_by_id}
        self.topics.clear()
        self.topics_by_id.clear()
        for topic in other.topics.values():
            own = kept.get(topic.topic_id, topic)
            own.partitions[:] = topic.partitions
            self.topics[own.name] = self.topics_by_id[own.topic_id] = own
            if own.name in self._changes.created:
                self._changes.created[own.name] = own
        _replace_entries(self.brokers, other.brokers)
        _replace_entries(self.names_by_collision_key, other.names_by_collision_key)
        _replace_entries(self.configs, other.configs)
        _replace_entries(self.features, other.features)
        self.partitions_count = other.partitions_count
        self.next_producer_id = other.next_producer_id
        self.is_in_transaction, self._buffered = other.is_in_transaction, other._buffered
        self.acls.become(other.acls)
        self.scram.become(other.scram)
        self.tokens.become(other.tokens)
        self._changes.client_quotas.update(dict.fromkeys(self.client_quotas.become(other.client_quotas)))
        self.kept = other.kept

    def _note_differences(self, other: ClusterState) -> None:
        changes = self._changes
        for topic in [topic for topic_id, topic in self.topics_by_id.items() if topic_id not in other.topics_by_id]:
            changes.forget_topic(topic)
        for topic_id, topic in other.topics_by_id.items():
            known = self.topics_by_id.get(topic_id)
            if known is None:
                changes.created[topic.name] = topic
            before = [] if known is None else known.partitions
            for index, partition in enumerate(topic.partitions):
                if index >= len(before) or partition != before[index]:
                    changes.partitions[topic.name, index] = None
        for kind, name in self.configs.keys() | other.configs.keys():
            is_gone = kind == RESOURCE_TOPIC and name not in other.topics
            if not is_gone and self.configs.get((kind, name)) != other.configs.get((kind, name)):
                self._note_config(kind, name)
        for node_id in self.brokers.keys() | other.brokers.keys():
            if self.brokers.get(node_id) != other.brokers.get(node_id):
                changes.brokers[node_id] = None

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; before it is finalized, the default of a new cluster."""
        return self.features.get(METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL)

    def topic_overrides(self, name: str) -> dict[str, str]:
        """The topic's own configs, read-only."""
        return self.configs.get((RESOURCE_TOPIC, name), _NO_CONFIGS)

    def broker_overrides(self, name: str) -> dict[str, str]:
        """The dynamic configs of broker `name`, a decimal id, or of all brokers for "". Read-only."""
        return self.configs.get((RESOURCE_BROKER, name), _NO_CONFIGS)

    def overrides(self, resource_type: int, name: str) -> dict[str, str]:
        """The configs that are set on a resource of any type, read-only."""
        return self.configs.get((resource_type, name), _NO_CONFIGS)

    def _replay_transaction_mark(self, record: Any) -> None:
        if isinstance(record, records.BeginTransactionRecord):
            if self.is_in_transaction:
                raise StorageError("a metadata transaction begins inside another")
            self.is_in_transaction = True
            return
        if not self.is_in_transaction:
            raise StorageError("a metadata transaction ends that never began")
        buffered, self._buffered, self.is_in_transaction = self._buffered, [], False
        if isinstance(record, records.EndTransactionRecord):
            for each in buffered:
                self._apply(each)

    def _apply(self, record: Any) -> None:
        apply = _APPLY.get(type(record))
        if apply is not None:
            apply(self, record)
        elif not self.kept.apply(record) and type(record) not in _MEANINGLESS:
            raise StorageError(f"the metadata log has a {type(record).__name__}, which nobody knows how to apply")

    def _topic_by_id(self, topic_id: bytes, kind: str) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise StorageError(f"{kind} for topic id {topic_id.hex()}, which does not exist")
        return topic

    # Topics and partitions

    def _apply_topic(self, record: records.TopicRecord) -> None:
        if record.name in self.topics:
            raise StorageError(f"TopicRecord for {record.name}, which exists already")
        topic = TopicImage(record.name, record.topic_id, [], record.name in INTERNAL_TOPICS)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        if has_collision_characters(record.name):
            self.names_by_collision_key.setdefault(collision_key(record.name), []).append(record.name)
        self._changes.created[record.name] = topic

    def _apply_partition(self, record: records.PartitionRecord) -> None:
        topic = self._topic_by_id(record.topic_id, "PartitionRecord")
        image = partition_image(record)
        if record.partition_id == len(topic.partitions):
            topic.partitions.append(image)
            self.partitions_count += 1
        elif 0 <= record.partition_id < len(topic.partitions):
            topic.partitions[record.partition_id] = image
        else:
            raise StorageError(f"PartitionRecord for {topic.name}-{record.partition_id} leaves a gap before it")
        self._changes.partitions[topic.name, record.partition_id] = None

    def _add_partitions(self, batch: EncodedTopicRecords) -> None:
        topic = self._topic_by_id(batch.topic_id, "PartitionRecord")
        if batch.first_partition != len(topic.partitions):
            raise StorageError(f"PartitionRecords from {topic.name}-{batch.first_partition} on do not follow those before")
        topic.partitions.extend(batch.images)
        self.partitions_count += len(batch.images)
        self._changes.added.append((topic, batch.first_partition, len(topic.partitions)))

    def _apply_partition_change(self, record: records.PartitionChangeRecord) -> None:
        topic = self._topic_by_id(record.topic_id, "PartitionChangeRecord")
        if not 0 <= record.partition_id < len(topic.partitions):
            raise StorageError(f"PartitionChangeRecord for {topic.name}-{record.partition_id}, which does not exist")
        old = topic.partitions[record.partition_id]
        is_same_leader = record.leader == NO_LEADER_CHANGE
        is_same_recovery_state = record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        topic.partitions[record.partition_id] = PartitionImage(
            leader=old.leader if is_same_leader else record.leader,
            leader_epoch=old.leader_epoch if is_same_leader else old.leader_epoch + 1,
            partition_epoch=old.partition_epoch + 1,
            replicas=_new_or(record.replicas, old.replicas),
            isr=_new_or(record.isr, old.isr),
            leader_recovery_state=old.leader_recovery_state if is_same_recovery_state else record.leader_recovery_state,
            directories=_new_or(record.directories, old.directories),
            removing_replicas=_new_or(record.removing_replicas, old.removing_replicas),
            adding_replicas=_new_or(record.adding_replicas, old.adding_replicas),
            eligible_leader_replicas=_new_or(record.eligible_leader_replicas, old.eligible_leader_replicas),
            last_known_elr=_new_or(record.last_known_elr, old.last_known_elr),
        )
        self._changes.partitions[topic.name, record.partition_id] = None
        if record.leader >= 0 and record.leader != old.leader:
            self._count_election(record, old)

    def _count_election(self, record: records.PartitionChangeRecord, old: PartitionImage) -> None:
        elections = self.elections
        elections.elected += 1
        elections.unclean += record.leader_recovery_state == RECOVERING
        elections.from_eligible_replicas += record.leader in old.eligible_leader_replicas

    def _apply_clear_elr(self, record: records.ClearElrRecord) -> None:
        """Clears the eligible leader replicas of one topic, or of all topics if none is named."""
        topics = list(self.topics.values())
        if record.topic_name:
            if record.topic_name not in self.topics:
                raise StorageError(f"ClearElrRecord for {record.topic_name}, which does not exist")
            topics = [self.topics[record.topic_name]]
        for topic in topics:
            for index, partition in enumerate(topic.partitions):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    epoch = partition.partition_epoch + 1
                    topic.partitions[index] = replace(partition, partition_epoch=epoch, eligible_leader_replicas=(), last_known_elr=())
                    self._changes.partitions[topic.name, index] = None

    def _apply_remove_topic(self, record: records.RemoveTopicRecord) -> None:
        topic = self._topic_by_id(record.topic_id, "RemoveTopicRecord")
        del self.topics_by_id[record.topic_id]
        self.partitions_count -= len(topic.partitions)
        del self.topics[topic.name]
        self.configs.pop((RESOURCE_TOPIC, topic.name), None)
        if has_collision_characters(topic.name):
            key = collision_key(topic.name)
            self.names_by_collision_key[key].remove(topic.name)
            if not self.names_by_collision_key[key]:
                del self.names_by_collision_key[key]
        self._changes.forget_topic(topic)

    # Configs, features, producer ids

    def _apply_config(self, record: records.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self.configs.setdefault(resource, {})
        if record.value is None:
            configs.pop(record.name, None)
            if not configs:
                del self.configs[resource]
        else:
            configs[record.name] = record.value
        self._note_config(*resource)

    def _note_config(self, resource_type: int, name: str) -> None:
        if resource_type == RESOURCE_TOPIC:
            self._changes.topic_configs[name] = None
        elif resource_type == RESOURCE_BROKER:
            self._changes.broker_configs[name] = None

    def _apply_feature_level(self, record: records.FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION_FEATURE and not METADATA_VERSION_MIN <= record.feature_level <= METADATA_VERSION_MAX:
            raise StorageError(
                f"the cluster's metadata.version is {record.feature_level}, and this version of Barnabas supports "
                f"{METADATA_VERSION_MIN} to {METADATA_VERSION_MAX}"
            )
        if record.name == KRAFT_VERSION_FEATURE:
            return  # control records have its level; KAFKA-18979
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level

    def _apply_producer_ids(self, record: records.ProducerIdsRecord) -> None:
        if record.next_producer_id < self.next_producer_id:
            raise StorageError(f"ProducerIdsRecord goes back from {self.next_producer_id} to {record.next_producer_id}")
        self.next_producer_id = record.next_producer_id

    def _apply_client_quota(self, record: records.ClientQuotaRecord) -> None:
        self._changes.client_quotas[self.client_quotas.replay(record)] = None

    # Brokers

    def _apply_register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            node_id=record.broker_id,
            endpoints={endpoint.name: (endpoint.host, endpoint.port) for endpoint in record.end_points},
            rack=record.rack,
            epoch=record.broker_epoch,
            is_fenced=record.fenced,
            is_in_controlled_shutdown=record.in_controlled_shutdown,
            incarnation_id=record.incarnation_id,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            registration=record,
        )
        self._changes.brokers[record.broker_id] = None

    def _apply_unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch, "UnregisterBrokerRecord")
        del self.brokers[record.broker_id]
        self._changes.brokers[record.broker_id] = None

    def _apply_fence_broker(self, record: records.FenceBrokerRecord) -> None:
        broker = self._registered(record.id, record.epoch, "FenceBrokerRecord")
        self._replace_broker(broker, is_fenced=True)

    def _apply_unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        broker = self._registered(record.id, record.epoch, "UnfenceBrokerRecord")
        self._replace_broker(broker, is_fenced=False)

    def _apply_broker_registration_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, "BrokerRegistrationChangeRecord")
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["is_fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["is_in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["log_dirs"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = tuple(record.cordoned_log_dirs)
        self._replace_broker(broker, **changes)

    def _registered(self, node_id: int, epoch: int, kind: str) -> BrokerImage:
        broker = self.brokers.get(node_id)
        if broker is None or broker.epoch != epoch:
            raise StorageError(f"{kind} for broker {node_id} with epoch {epoch}, which is not registered")
        return broker

    def _replace_broker(self, broker: BrokerImage, **changes: Any) -> None:
        self.brokers[broker.node_id] = broker._replace(**changes)
        self._changes.brokers[broker.node_id] = None


def _replace_entries(own: dict[Key, Value], other: Mapping[Key, Value]) -> None:
    own.clear()
    own.update(other)


def _new_or(new: list[Value] | None, old: tuple[Value, ...]) -> tuple[Value, ...]:
    return old if new is None else tuple(new)


_NO_CONFIGS: dict[str, str] = {}

_TRANSACTION_RECORDS = (records.BeginTransactionRecord, records.EndTransactionRecord, records.AbortTransactionRecord)

_MEANINGLESS = frozenset({records.NoOpRecord, records.ZkMigrationStateRecord})
"""Record types that leave nothing behind in Kafka's image either."""

_APPLY: dict[type, Callable[[ClusterState, Any], None]] = {
    records.TopicRecord: ClusterState._apply_topic,
    records.PartitionRecord: ClusterState._apply_partition,
    records.PartitionChangeRecord: ClusterState._apply_partition_change,
    records.RemoveTopicRecord: ClusterState._apply_remove_topic,
    records.ClearElrRecord: ClusterState._apply_clear_elr,
    records.ConfigRecord: ClusterState._apply_config,
    records.FeatureLevelRecord: ClusterState._apply_feature_level,
    records.ProducerIdsRecord: ClusterState._apply_producer_ids,
    records.RegisterBrokerRecord: ClusterState._apply_register_broker,
    records.UnregisterBrokerRecord: ClusterState._apply_unregister_broker,
    records.FenceBrokerRecord: ClusterState._apply_fence_broker,
    records.UnfenceBrokerRecord: ClusterState._apply_unfence_broker,
    records.BrokerRegistrationChangeRecord: ClusterState._apply_broker_registration_change,
    records.ClientQuotaRecord: ClusterState._apply_client_quota,
    records.AccessControlEntryRecord: lambda state, record: state.acls.replay(record),
    records.RemoveAccessControlEntryRecord: lambda state, record: state.acls.replay_removal(record),
    records.UserScramCredentialRecord: lambda state, record: state.scram.replay(record),
    records.RemoveUserScramCredentialRecord: lambda state, record: state.scram.replay_removal(record),
    records.DelegationTokenRecord: lambda state, record: state.tokens.replay(record),
    records.RemoveDelegationTokenRecord: lambda state, record: state.tokens.replay_removal(record),
}
