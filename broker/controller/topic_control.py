"""The controller's decisions about topics: create, delete, add partitions. Pure: state and request in, records and response out.

Only the replay of the records changes the state. The checks have Kafka's order and Kafka's messages.

Source: ReplicationControlManager and ControllerApis.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from broker.controller.config_control import changed_configs, validated_topic_configs
from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, Pace, Steps, check_records_count
from broker.controller.elections import Elections, default_directory
from broker.controller.manual_assignment import active, check_assignment
from broker.controller.placement import place_replicas
from broker.controller.topic_selection import failed_deletion, find_duplicates, topics_to_delete
from broker.metadata.cluster_state import ClusterState
from broker.metadata.config_entries import ConfigDescriber
from broker.metadata.encoded_topic_records import EncodedTopicRecords
from broker.metadata.image import CLUSTER_METADATA_TOPIC, BrokerImage
from broker.metadata.topic_names import collision_key, has_collision_characters, validate_name
from broker.security.authorizer.access import OPEN_ACCESS, Access
from config.server import ServerConfig
from config.topic import TOPIC_PROPERTIES
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
from protocol.uuids import ZERO_UUID, random_uuid

USE_DEFAULT = -1
"""Number of partitions or replicas in a CreateTopics request: the broker's default, or given by the assignment."""

PARTITIONS_AT_ONCE = 1_000
"""New partitions of one topic that are computed, encoded and replayed in one step, 14 µs each; records of more are prepared in steps."""

Topic = TypeVar("Topic", CreatableTopic, CreatePartitionsTopic)
Result = TypeVar("Result")

Compute = Callable[[Topic, int], Steps[tuple[Sequence[Any], Result]]]
"""Computes a topic's records and its answer, given how many records there are before its own."""

CountMutations = Callable[[int], None]
"""Counts partitions that a client has created or deleted. Raises KafkaError THROTTLING_QUOTA_EXCEEDED if it may not, which refuses their
topic."""

Brokers = Mapping[int, BrokerImage]
"""The facts on which the computing of a topic's records began. It starts again if they have changed meanwhile."""


def count_nothing(partitions_count: int) -> None:
    """For who has no quota."""


class TopicControl:
    """Computes the records of topic operations. Reads `state`, never changes it; `random_source` places replicas and draws ids.

    `replicas_max` is the number of replicas for which the broker in this process, `node_id`, has file descriptors: one client's topics
    must not use up all of them. Other brokers are not limited by it."""

    def __init__(
        self,
        state: ClusterState,
        config: ServerConfig,
        describer: ConfigDescriber,
        elections: Elections,
        random_source: random.Random,
        *,
        node_id: int,
        replicas_max: int,
    ) -> None:
        self._state = state
        self._config = config
        self._describer = describer
        self._elections = elections
        self._random = random_source
        self._node_id = node_id
        self._replicas_max = replicas_max

    def create_topics(self, request: CreateTopicsRequest, count: CountMutations = count_nothing) -> Steps[CreateTopicsResponse]:
        """Raises KafkaError POLICY_VIOLATION when the request asks for too much at once; other errors are in the response."""
        # Before any topic is checked, as in Kafka since 4.0: a request for too many has no errors of single topics.
        check_records_count(sum(map(self.partitions_asked_for, request.topics)))
        duplicates = find_duplicates(request.topics, attrgetter("name"))
        once = [topic for topic in request.topics if topic.name not in duplicates]
        topics = [topic for topic in once if topic.name != CLUSTER_METADATA_TOPIC]
        if not self._fits_if_all_are_accepted(sum(map(self._count_creation_records, topics))):
            yield from self._check_fits(topics, self._create_topic)
        results = yield from self._each(
            topics,
            self._create_topic,
            _failed_creation,
            self._takes_steps,
            lambda result, records_count: count(result.num_partitions),
            is_validated_only=request.validate_only,
        )
        results += [_failed_creation(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in duplicates]
        if len(topics) < len(once):
            why = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            results.append(_failed_creation(CLUSTER_METADATA_TOPIC, ErrorCode.INVALID_REQUEST, why))
        return CreateTopicsResponse(topics=results)

    def delete_topics(
        self, request: DeleteTopicsRequest, version: int, access: Access = OPEN_ACCESS, count: CountMutations = count_nothing
    ) -> Steps[DeleteTopicsResponse]:
        """Raises KafkaError where topics may not be deleted at all. `access` says which ones the client may delete and describe."""
        if not self._config.delete_topic_enable:
            if version < 3:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        results: list[DeletableTopicResult] = []
        doomed = yield from topics_to_delete(self._state, request, access, results)
        check_records_count(len(doomed))
        step: list[Any] = []
        pace = Pace()
        for topic_id, name in doomed.items():
            topic = self._state.topics_by_id.get(topic_id)
            if topic is None:  # deleted meanwhile
                why = "This server does not host this topic-partition."
                results.append(failed_deletion(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why))
                continue
            try:
                count(len(topic.partitions))
            except KafkaError as error:
                results.append(failed_deletion(name, topic_id, error.code, error.message))
                continue
            step.append(RemoveTopicRecord(topic_id=topic_id))
            results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_message=None))
            if pace.is_due(1 + len(topic.partitions)):
                yield step
                step = []
        yield step
        return DeleteTopicsResponse(responses=results)

    def create_partitions(self, request: CreatePartitionsRequest, count: CountMutations = count_nothing) -> Steps[CreatePartitionsResponse]:
        """Raises KafkaError POLICY_VIOLATION when the request asks for too much at once; other errors are in the response."""
        duplicates = find_duplicates(request.topics, attrgetter("name"))
        topics = [topic for topic in request.topics if topic.name not in duplicates]
        results = [_failed_addition(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in duplicates]
        if not self._fits_if_all_are_accepted(sum(max(topic.count, 0) for topic in topics)):
            yield from self._check_fits(topics, self._add_partitions)
        results += yield from self._each(
            topics,
            self._add_partitions,
            _failed_addition,
            self._addition_takes_steps,
            lambda result, records_count: count(records_count),
            is_validated_only=request.validate_only,
        )
        return CreatePartitionsResponse(results=results)

    def _each(
        self,
        topics: list[Topic],
        compute: Compute[Topic, Result],
        refuse: Callable[[str, ErrorCode, str | None], Result],
        takes_steps: Callable[[Topic], bool],
        count: Callable[[Result, int], None],
        *,
        is_validated_only: bool,
    ) -> Steps[list[Result]]:
        """Compute the records of each topic, many small ones to a step, and each topic's answer. `count` gets the answer and the number of
        records of each topic that is not refused, and may refuse it; as in Kafka, also of what is only validated.

        If computing a topic's records `takes_steps`, earlier records are appended first, and its own have a step to themselves."""
        results: list[Result] = []
        step: list[Any] = []
        pace = Pace()
        for topic in topics:
            if is_large := takes_steps(topic):
                yield step
                step = []
            records: Sequence[Any] = ()
            try:
                made, result = yield from compute(topic, len(step))
                count(result, len(made))
                records = made
            except KafkaError as error:
                if error.code is ErrorCode.POLICY_VIOLATION:
                    raise
                result = refuse(topic.name, error.code, error.message)
            results.append(result)
            if is_large:
                yield [] if is_validated_only else records
                continue
            step += [] if is_validated_only else records
            if pace.is_due(len(records) or 1):
                yield step
                step = []
        yield step
        return results

    # Limits. A request over them is refused as a whole, before its first step is appended.

    def partitions_asked_for(self, topic: CreatableTopic) -> int:
        """Returns how many partitions the topic gets if it is not refused."""
        default = self._config.num_partitions
        return len(topic.assignments) or (default if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0))

    def _count_creation_records(self, topic: CreatableTopic) -> int:
        return 1 + len(topic.configs) + self.partitions_asked_for(topic)

    def _fits_if_all_are_accepted(self, records_count: int) -> bool:
        """Whether `records_count`, the records of all topics if none is refused, is within the limits."""
        return records_count <= RECORDS_PER_OPERATION_MAX and self._state.partitions_count + records_count <= self._replicas_max

    def _check_fits(self, topics: list[Topic], compute: Compute[Topic, Any]) -> Steps[None]:
        """Raises KafkaError POLICY_VIOLATION when the topics that are not refused exceed the limits."""
        count = 0
        pace = Pace()
        for topic in topics:
            records: Sequence[Any] = ()
            try:
                records, _ = yield from compute(topic, count)
            except KafkaError as error:
                if error.code is ErrorCode.POLICY_VIOLATION:
                    raise
            count += len(records)
            if pace.is_due(len(records) or 1):
                yield []

    def _takes_steps(self, topic: CreatableTopic) -> bool:
        """Whether its records are computed in steps, between which other operations run. Records of earlier topics have to be appended
        first then."""
        return self.partitions_asked_for(topic) > PARTITIONS_AT_ONCE

    def _create_topic(self, topic: CreatableTopic, records_count: int) -> Steps[tuple[Sequence[Any], CreatableTopicResult]]:
        """The records and the answer, which hold until the next step. Has steps of its own only where it `_takes_steps`."""
        while True:
            brokers = self._elections.usable_brokers()
            records, result = yield from self._creation(topic, records_count, brokers)
            # Other operations may have run meanwhile.
            self._check_name(topic.name)
            self._check_partitions_count(records_count + result.num_partitions)
            if self._elections.usable_brokers() == brokers:
                return records, result

    def _creation(self, topic: CreatableTopic, records_count: int, brokers: Brokers) -> Steps[tuple[Sequence[Any], CreatableTopicResult]]:
        self._check_name(topic.name)
        configs = self._creation_configs(topic)
        if topic.assignments:
            assignments = yield from self._manual_assignments(topic, records_count, brokers)
        else:
            assignments = yield from self._automatic_assignments(topic, records_count, brokers)
        topic_id = self._new_topic_id()
        heading: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        heading.extend(changed_configs(2, topic.name, configs))
        check_records_count(records_count + len(heading) + len(assignments))
        self._check_partitions_count(records_count + len(assignments))
        records = yield from self._with_partitions(heading, topic_id, 0, assignments, brokers)
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
        unknown = next((config.name for config in topic.configs if config.name not in TOPIC_PROPERTIES), None)
        if unknown is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown}")
        return validated_topic_configs(self._config, {config.name: config.value or "" for config in topic.configs})

    def _manual_assignments(self, topic: CreatableTopic, records_count: int, brokers: Brokers) -> Steps[list[list[int]]]:
        if topic.replication_factor != USE_DEFAULT:
            why = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        if topic.num_partitions != USE_DEFAULT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A manual partition assignment was specified, but numPartitions was not set to -1.")
        assignments: dict[int, list[int]] = {}
        replication_factor = None
        pace = Pace()
        for assignment in topic.assignments:
            if len(topic.assignments) > PARTITIONS_AT_ONCE and pace.is_due():
                yield []
            if assignment.partition_index in assignments:
                why = f"Found multiple manual partition assignments for partition {assignment.partition_index}"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
            check_assignment(brokers, assignment.broker_ids, replication_factor, assignment.partition_index)
            replication_factor = len(assignment.broker_ids)
            assignments[assignment.partition_index] = assignment.broker_ids
        if any(index not in assignments for index in range(len(assignments))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")
        check_records_count(records_count + len(assignments))
        return [list(assignments[index]) for index in range(len(assignments))]

    def _automatic_assignments(self, topic: CreatableTopic, records_count: int, brokers: Brokers) -> Steps[list[list[int]]]:
        if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
            why = "Replication factor must be larger than 0, or -1 to use the default value."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
        if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        partitions_count = self._config.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
        replicas_count = self._config.default_replication_factor if topic.replication_factor == USE_DEFAULT else topic.replication_factor
        prefix = f"Unable to replicate the partition {replicas_count} time(s): "
        return (yield from self._place(partitions_count, replicas_count, records_count, brokers, prefix))

    def _place(
        self, partitions_count: int, replication_factor: int, records_count: int, brokers: Brokers, prefix: str = ""
    ) -> Steps[list[list[int]]]:
        """`prefix` begins the message of a refusal for lack of brokers; Kafka has it only for new topics."""
        check_records_count(records_count + partitions_count)
        try:
            placed = place_replicas(
                brokers.values(),
                partitions_count=partitions_count,
                replication_factor=replication_factor,
                random_source=self._random,
            )
        except KafkaError as error:
            raise KafkaError(error.code, f"{prefix}{error.message}") from error
        assignments: list[list[int]] = []
        pace = Pace()
        for replicas in placed:
            if not active(brokers, replicas):
                why = f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced or in "
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{why}controlled shutdown.")
            assignments.append(replicas)
            if partitions_count > PARTITIONS_AT_ONCE and pace.is_due():
                yield []
        return assignments

    def _with_partitions(
        self, heading: list[Any], topic_id: bytes, first: int, assignments: list[list[int]], brokers: Brokers
    ) -> Steps[Sequence[Any]]:
        """`heading` and the records of a topic's partitions from `first` on; more than PARTITIONS_AT_ONCE are prepared."""
        if len(assignments) <= PARTITIONS_AT_ONCE:
            heading.extend(_partition_record(topic_id, index, replicas, brokers) for index, replicas in enumerate(assignments, first))
            return heading
        prepared = EncodedTopicRecords(topic_id, first, heading)
        pace = Pace()
        for index, replicas in enumerate(assignments, first):
            prepared.add(_partition_record(topic_id, index, replicas, brokers))
            if pace.is_due():
                yield []
        return prepared

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
            topic_id = random_uuid(self._random.getrandbits)
            if topic_id not in self._state.topics_by_id:
                return topic_id

    # Partitions

    def _addition_takes_steps(self, topic: CreatePartitionsTopic) -> bool:
        image = self._state.topics.get(topic.name)
        return image is not None and topic.count - len(image.partitions) > PARTITIONS_AT_ONCE

    def _add_partitions(self, topic: CreatePartitionsTopic, records_count: int) -> Steps[tuple[Sequence[Any], CreatePartitionsTopicResult]]:
        """The records and the answer, which hold until the next step. Has steps of its own only where it `_addition_takes_steps`."""
        while True:
            brokers = self._elections.usable_brokers()
            image = self._state.topics.get(topic.name)
            topic_id, first = (ZERO_UUID, 0) if image is None else (image.topic_id, len(image.partitions))
            records = yield from self._addition(topic, records_count, brokers)
            # Other operations may have run meanwhile.
            self._check_partitions_count(records_count + len(records))
            image = self._state.topics.get(topic.name)
            is_same = image is not None and image.topic_id == topic_id and len(image.partitions) == first
            if is_same and self._elections.usable_brokers() == brokers:
                return records, CreatePartitionsTopicResult(name=topic.name, error_message=None)

    def _addition(self, topic: CreatePartitionsTopic, records_count: int, brokers: Brokers) -> Steps[Sequence[Any]]:
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
            assignments = yield from self._place(additional, replication_factor, records_count, brokers)
        else:
            if len(topic.assignments) != additional:
                why = (
                    f"Attempted to add {additional} additional partition(s), but only {len(topic.assignments)} "
                    "assignment(s) were specified."
                )
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
            check_records_count(records_count + additional)
            assignments = []
            pace = Pace()
            for index, assignment in enumerate(topic.assignments, start=current):
                check_assignment(brokers, assignment.broker_ids, replication_factor, index)
                assignments.append(list(assignment.broker_ids))
                if additional > PARTITIONS_AT_ONCE and pace.is_due():
                    yield []
        return (yield from self._with_partitions([], image.topic_id, current, assignments, brokers))

    def _check_partitions_count(self, new_count: int) -> None:
        """Raises KafkaError POLICY_VIOLATION, for the whole request, when `new_count` partitions are more than there is room for."""
        if self._state.partitions_count + new_count <= self._replicas_max:
            return  # other brokers have them
        present_count = self._count_hosted()
        if present_count + new_count > self._replicas_max:
            why = f"There are {present_count} partitions; the descriptor limit of the broker allows {self._replicas_max}."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, why)

    def _count_hosted(self) -> int:
        """The replicas of the broker in this process. A millisecond for 10,000 partitions, where there are other brokers."""
        state = self._state
        if len(state.brokers) <= 1:
            return state.partitions_count
        return sum(self._node_id in partition.replicas for topic in state.topics.values() for partition in topic.partitions)


def _failed_creation(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def _failed_addition(name: str, code: ErrorCode, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


def _partition_record(topic_id: bytes, index: int, replicas: list[int], brokers: Brokers) -> PartitionRecord:
    isr = active(brokers, replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(brokers[replica]) for replica in replicas],
    )
