"""The controller's decisions about topics: create, delete, add partitions. Pure: state and request in, records and response out.

Nothing here changes the state; the records do when they are replayed. The checks come in Kafka's order, with Kafka's words.

Source: ReplicationControlManager and ControllerApis.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.config_control import changed_configs, validated_topic_configs
from broker.metadata.config_entries import ConfigDescriber
from broker.metadata.controller_result import RECORDS_PER_OPERATION_MAX, ControllerResult, Steps, check_records_count, collected
from broker.metadata.image import CLUSTER_METADATA_TOPIC, UNASSIGNED_DIRECTORY
from broker.metadata.placement import place_replicas
from broker.metadata.topic_names import collision_key, has_collision_characters, validate_name
from broker.metadata.topic_selection import failed_deletion, find_duplicates, topics_to_delete, without
from broker.pieces import PIECE_ELEMENTS, Pace, pieces
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.stored.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord

USE_DEFAULT = -1
"""Number of partitions or replicas in a CreateTopics request: the broker's default, or given by the assignment."""

PARTITIONS_UNLIMITED = 2**31 - 1


class TopicControl:
    """Computes the records of topic operations. Reads `state`, never changes it; `random_source` places replicas and draws ids.

    `partitions_max` is what the brokers have descriptors for: one client's topics must not leave them without any."""

    def __init__(
        self,
        state: ClusterState,
        config: ServerConfig,
        describer: ConfigDescriber,
        random_source: random.Random,
        partitions_max: int = PARTITIONS_UNLIMITED,
    ) -> None:
        self._state = state
        self._config = config
        self._describer = describer
        self._random = random_source
        self._partitions_max = partitions_max

    def create_topics(self, request: CreateTopicsRequest) -> ControllerResult[CreateTopicsResponse]:
        """`create_topics_in_steps` at once, for few topics."""
        return collected(self.create_topics_in_steps(request))

    def create_topics_in_steps(self, request: CreateTopicsRequest) -> Steps[CreateTopicsResponse]:
        """Raises KafkaError POLICY_VIOLATION when the request asks for too much at once; other errors are in the response."""
        yield from self._check_asked_for(request.topics)
        names, duplicates = yield from find_duplicates(request.topics, attrgetter("name"))
        topics = yield from without(request.topics, duplicates.keys() | {CLUSTER_METADATA_TOPIC})
        if not (yield from self._surely_fits(topics)):
            yield from self._check_fits(topics)
        results = []
        step: list[Any] = []
        pace = Pace()
        for topic in topics:
            try:
                records, result = self._create_topic(topic, len(step))
            except KafkaError as error:
                if error.code is ErrorCode.POLICY_VIOLATION:
                    raise
                records, result = [], _failed_creation(topic.name, error.code, error.message)
            results.append(result)
            step += [] if request.validate_only else records
            if pace.is_due(len(records) or 1):
                yield step
                step = []
        for name in duplicates:
            results.append(_failed_creation(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        if CLUSTER_METADATA_TOPIC in names and CLUSTER_METADATA_TOPIC not in duplicates:
            why = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            results.append(_failed_creation(CLUSTER_METADATA_TOPIC, ErrorCode.INVALID_REQUEST, why))
        yield step
        return CreateTopicsResponse(topics=results)

    def delete_topics(self, request: DeleteTopicsRequest, version: int) -> ControllerResult[DeleteTopicsResponse]:
        """`delete_topics_in_steps` at once, for few topics."""
        return collected(self.delete_topics_in_steps(request, version))

    def delete_topics_in_steps(self, request: DeleteTopicsRequest, version: int) -> Steps[DeleteTopicsResponse]:
        """Raises KafkaError where topics may not be deleted at all."""
        if not self._config.delete_topic_enable:
            if version < 3:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        results: list[DeletableTopicResult] = []
        doomed = yield from topics_to_delete(self._state, request, results)
        check_records_count(len(doomed))
        step: list[Any] = []
        pace = Pace()
        for topic_id, name in doomed.items():
            topic = self._state.topics_by_id.get(topic_id)
            if topic is None:  # somebody else deleted it meanwhile
                why = "This server does not host this topic-partition."
                results.append(failed_deletion(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why))
                continue
            step.append(RemoveTopicRecord(topic_id=topic_id))
            results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_message=None))
            if pace.is_due(1 + len(topic.partitions)):
                yield step
                step = []
        yield step
        return DeleteTopicsResponse(responses=results)

    def create_partitions(self, request: CreatePartitionsRequest) -> ControllerResult[CreatePartitionsResponse]:
        """`create_partitions_in_steps` at once, for few topics."""
        return collected(self.create_partitions_in_steps(request))

    def create_partitions_in_steps(self, request: CreatePartitionsRequest) -> Steps[CreatePartitionsResponse]:
        """Raises KafkaError POLICY_VIOLATION when the request asks for too much at once; other errors are in the response."""
        _, duplicates = yield from find_duplicates(request.topics, attrgetter("name"))
        topics = yield from without(request.topics, duplicates)
        results = [
            CreatePartitionsTopicResult(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
            for name in duplicates
        ]
        if not (yield from self._additions_surely_fit(topics)):
            yield from self._check_additions_fit(topics)
        step: list[Any] = []
        pace = Pace()
        for topic in topics:
            records: list[PartitionRecord] = []
            try:
                records = self._add_partitions(topic, len(step))
            except KafkaError as error:
                if error.code is ErrorCode.POLICY_VIOLATION:
                    raise
                results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message))
            else:
                results.append(CreatePartitionsTopicResult(name=topic.name, error_message=None))
            step += [] if request.validate_only else records
            if pace.is_due(len(records) or 1):
                yield step
                step = []
        yield step
        return CreatePartitionsResponse(results=results)

    # Limits. A request is refused whole, before its first step is appended.

    def _check_asked_for(self, topics: list[CreatableTopic]) -> Steps[None]:
        """Before any topic is looked at, as in Kafka since 4.0: a request for too much says nothing about its topics."""
        count = 0
        pace = Pace()
        for topic in topics:
            asked_for = self._config.num_partitions if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0)
            count += len(topic.assignments) or asked_for
            if pace.is_due():
                yield []
        check_records_count(count)

    def _surely_fits(self, topics: list[CreatableTopic]) -> Steps[bool]:
        """Whether the records of all topics are within the limits, even if none of them is refused."""
        count = 0
        for piece in pieces(topics):
            for topic in piece:
                asked_for = self._config.num_partitions if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0)
                count += 1 + len(topic.configs) + (len(topic.assignments) or asked_for)
            if len(piece) == PIECE_ELEMENTS:
                yield []
        return count <= RECORDS_PER_OPERATION_MAX and self._state.partitions_count + count <= self._partitions_max

    def _check_fits(self, topics: list[CreatableTopic]) -> Steps[None]:
        """Raises KafkaError POLICY_VIOLATION when the topics that are not refused are too much."""
        count = 0
        pace = Pace()
        for topic in topics:
            records: list[Any] = []
            try:
                records, _ = self._create_topic(topic, count)
            except KafkaError as error:
                if error.code is ErrorCode.POLICY_VIOLATION:
                    raise
            count += len(records)
            if pace.is_due(len(records) or 1):
                yield []

    def _additions_surely_fit(self, topics: list[CreatePartitionsTopic]) -> Steps[bool]:
        count = 0
        for piece in pieces(topics):
            count += sum(max(topic.count, 0) for topic in piece)
            if len(piece) == PIECE_ELEMENTS:
                yield []
        return count <= RECORDS_PER_OPERATION_MAX and self._state.partitions_count + count <= self._partitions_max

    def _check_additions_fit(self, topics: list[CreatePartitionsTopic]) -> Steps[None]:
        count = 0
        pace = Pace()
        for topic in topics:
            records: list[PartitionRecord] = []
            try:
                records = self._add_partitions(topic, count)
            except KafkaError as error:
                if error.code is ErrorCode.POLICY_VIOLATION:
                    raise
            count += len(records)
            if pace.is_due(len(records) or 1):
                yield []

    # Creation

    def _create_topic(self, topic: CreatableTopic, records_count: int) -> tuple[list[Any], CreatableTopicResult]:
        self._check_name(topic.name)
        configs = self._creation_configs(topic)
        assignments = self._manual_assignments(topic) if topic.assignments else self._automatic_assignments(topic, records_count)
        topic_id = self._new_topic_id()
        records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        records.extend(changed_configs(2, topic.name, configs))
        records.extend(self._partition_record(topic_id, index, replicas) for index, replicas in enumerate(assignments))
        check_records_count(records_count + len(records))
        self._check_partitions_count(records_count + len(assignments))
        result = CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
            configs=self._described_configs(topic.name, configs),
        )
        return records, result

    def _check_name(self, name: str) -> None:
        validate_name(name)
        if name in self._state.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if has_collision_characters(name):
            colliding = self._state.names_by_collision_key.get(collision_key(name))
            if colliding:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding[0]}")

    def _creation_configs(self, topic: CreatableTopic) -> dict[str, str]:
        nulls = [config.name for config in topic.configs if config.value is None]
        if nulls:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        return validated_topic_configs(self._config, {config.name: config.value or "" for config in topic.configs})

    def _manual_assignments(self, topic: CreatableTopic) -> list[list[int]]:
        if topic.replication_factor != USE_DEFAULT:
            why = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if topic.num_partitions != USE_DEFAULT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1.")
        assignments: dict[int, list[int]] = {}
        replication_factor = None
        for assignment in topic.assignments:
            if assignment.partition_index in assignments:
                why = f"Found multiple manual partition assignments for partition {assignment.partition_index}"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
            self._check_assignment(assignment.broker_ids, replication_factor, assignment.partition_index)
            replication_factor = len(assignment.broker_ids)
            assignments[assignment.partition_index] = list(assignment.broker_ids)
        if any(index not in assignments for index in range(len(assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
        return [assignments[index] for index in range(len(assignments))]

    def _automatic_assignments(self, topic: CreatableTopic, records_count: int) -> list[list[int]]:
        if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
            why = "Replication factor must be larger than 0, or -1 to use the default value."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
        if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        partitions_count = self._config.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
        replicas_count = self._config.default_replication_factor if topic.replication_factor == USE_DEFAULT else topic.replication_factor
        return self._place(partitions_count, replicas_count, records_count)

    def _place(self, partitions_count: int, replication_factor: int, records_count: int) -> list[list[int]]:
        check_records_count(records_count + partitions_count)
        prefix = f"Unable to replicate the partition {replication_factor} time(s): "
        try:
            assignments = place_replicas(
                self._state.brokers.values(),
                partitions_count=partitions_count,
                replication_factor=replication_factor,
                random_source=self._random,
            )
        except KafkaError as error:
            raise KafkaError(error.code, f"{prefix}{error.message}") from error
        if any(not self._active(replicas) for replicas in assignments):
            why = f"{prefix}All brokers are currently fenced or in controlled shutdown."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
        return assignments

    def _described_configs(self, name: str, configs: dict[str, str]) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in self._describer.creation_entries(name, configs)
        ]

    def _new_topic_id(self) -> bytes:
        while True:
            # A random UUID (RFC 4122, version 4) that is free and whose text form does not look like a command's option.
            bits = self._random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 4 << 76 | 2 << 62
            topic_id = bits.to_bytes(16, "big")
            if topic_id[0] >> 2 != 62 and topic_id not in self._state.topics_by_id:
                return topic_id

    # Partitions

    def _add_partitions(self, topic: CreatePartitionsTopic, records_count: int) -> list[PartitionRecord]:
        image = self._state.topics.get(topic.name)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(image.partitions)
        if topic.count == current:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if topic.count < current:
            why = f"The topic {topic.name} currently has {current} partition(s); {topic.count} would not be an increase."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, why)
        additional = topic.count - current
        self._check_partitions_count(records_count + additional)
        replication_factor = len(image.partitions[0].replicas)
        if topic.assignments is None:
            assignments = self._place(additional, replication_factor, records_count)
        else:
            if len(topic.assignments) != additional:
                why = (
                    f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
                    "assignment(s) were specified."
                )
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
            assignments = [list(assignment.broker_ids) for assignment in topic.assignments]
            check_records_count(records_count + additional)
            for index, replicas in enumerate(assignments, start=current):
                self._check_assignment(replicas, replication_factor, index)
        return [self._partition_record(image.topic_id, index, replicas) for index, replicas in enumerate(assignments, start=current)]

    def _check_partitions_count(self, new_count: int) -> None:
        """Raises KafkaError POLICY_VIOLATION, for the whole request, when `new_count` partitions are more than there is room for."""
        present_count = self._state.partitions_count
        if present_count + new_count > self._partitions_max:
            why = f"There are {present_count} partitions; the descriptor limit of the broker allows {self._partitions_max}."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, why)

    def _check_assignment(self, replicas: Sequence[int], replication_factor: int | None, partition: int) -> None:
        """Raises KafkaError INVALID_REPLICA_ASSIGNMENT for a manual assignment that cannot be."""
        self._check_replicas(replicas)
        if replication_factor is not None and len(replicas) != replication_factor:
            why = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent "
                f"with previous partitions, which have {replication_factor} replica(s)."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        if not self._active(replicas):
            why = (
                f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled shutdown."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

    def _check_replicas(self, replicas: Sequence[int]) -> None:
        prefix = "The manual partition assignment includes "
        if not replicas:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix}an empty replica list.")
        previous = None
        for broker in sorted(replicas):
            if broker not in self._state.brokers:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix}broker {broker}, but no such broker is registered.")
            if broker == previous:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix}the broker {broker} more than once.")
            previous = broker

    def _active(self, replicas: Iterable[int]) -> list[int]:
        return [replica for replica in replicas if self._state.brokers[replica].is_active]

    def _partition_record(self, topic_id: bytes, index: int, replicas: list[int]) -> PartitionRecord:
        isr = self._active(replicas)
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[self._default_directory(replica) for replica in replicas],
        )

    def _default_directory(self, node_id: int) -> bytes:
        """A broker with one log directory has no choice where to put a replica."""
        log_dirs = self._state.brokers[node_id].log_dirs
        return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY


def _failed_creation(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)
