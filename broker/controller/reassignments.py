"""The controller's decisions about moves of replicas between brokers: begin one, cancel one, list them. Computes records, in steps.

A reassignment goes in three stages. First, a record adds the new replicas to the partition's, and lists those being added and those to be
removed. Then the new ones catch up, and the leader adds them to the ISR (AlterPartition). Once the ISR has every replica of the target,
PartitionChange drops those to be removed, in the same record.

Source: ReplicationControlManager (alterPartitionReassignments, listPartitionReassignments), PartitionReassignmentReplicas,
PartitionReassignmentRevert (KIP-455, KIP-860).
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.controller.controller_result import Pace, Steps
from broker.controller.elections import Elections
from broker.controller.manual_assignment import check_replicas
from broker.controller.partition_change import Election
from broker.controller.topic_selection import check_partitions_count
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import PartitionImage, TopicImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.messages.stored.metadata_records import PartitionChangeRecord

CHANGE_ELEMENTS = 5
"""What a change counts for in a step, some 20 µs."""

CHANGES_TOGETHER_MAX = 1_000
"""Changes that are appended in one batch, which takes 25 ms of the loop with their replay: those of a longer request are in several."""


class _Change:
    """One partition of a request: its record, computed on `image`, or the error in `result`."""

    __slots__ = ("allows_change", "asked", "image", "record", "result", "topic")

    def __init__(self, topic: str, asked: ReassignablePartition, allows_change: bool, result: ReassignablePartitionResponse) -> None:
        self.topic = topic
        self.asked = asked
        self.allows_change = allows_change
        self.result = result
        self.image: PartitionImage | None = None
        self.record: PartitionChangeRecord | None = None


class _Together:
    """Changes to be appended in one batch, and the state of the brokers on which they were computed."""

    def __init__(self, elections: Elections) -> None:
        self.brokers = elections.usable_brokers()
        self.changes: list[_Change] = []


class Reassignments:
    """Reads `state`, never changes it."""

    def __init__(self, state: ClusterState, elections: Elections) -> None:
        self._state = state
        self._elections = elections

    # -- beginning and cancelling ----------------------------------------------------------------------------------

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Steps[AlterPartitionReassignmentsResponse]:
        """Begin, change or cancel (null replicas) the reassignment of each partition. Each is accepted or refused separately.

        Up to CHANGES_TOGETHER_MAX are one batch: a crash leaves all of them or none. They are computed in steps without records. The
        step that appends them computes those again whose partition changed meanwhile. Raises KafkaError POLICY_VIOLATION for too many at
        once. Kafka appends any number together."""
        check_partitions_count(request.topics)
        if not request.topics:
            return AlterPartitionReassignmentsResponse()  # QuorumController answers the defaults: no null, but an empty message
        allows_change = request.allow_replication_factor_change
        response = AlterPartitionReassignmentsResponse(allow_replication_factor_change=allows_change, error_message=None, responses=[])
        together = _Together(self._elections)
        pace = Pace()
        for topic in request.topics:
            results: list[ReassignablePartitionResponse] = []
            response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
            for asked in topic.partitions:
                result = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
                results.append(result)
                try:
                    if asked.replicas is not None and self._find(topic.name, asked.partition_index) is not None:
                        check_replicas(self._state.brokers, asked.replicas)
                except KafkaError as error:
                    result.error_code, result.error_message = error.code, error.message
                else:
                    self._compute(together, _Change(topic.name, asked, allows_change, result))
                if len(together.changes) >= CHANGES_TOGETHER_MAX:
                    yield self._records(together)
                    together = _Together(self._elections)
                elif pace.is_due(CHANGE_ELEMENTS):
                    yield []
        yield self._records(together)
        return response

    def _compute(self, together: _Together, change: _Change, *, is_anew: bool = False) -> None:
        """Compute the change's record, or set the error in its result."""
        result, replicas = change.result, change.asked.replicas
        try:
            if is_anew and replicas is not None and self._find(change.topic, change.asked.partition_index) is not None:
                check_replicas(self._state.brokers, replicas)
            change.record = self._alter(change.topic, change.asked, allows_change=change.allows_change)
        except KafkaError as error:
            change.record = None
            result.error_code, result.error_message = error.code, error.message
        if change.record is not None:
            change.image = self._find(change.topic, change.asked.partition_index)
            together.changes.append(change)

    def _records(self, together: _Together) -> list[PartitionChangeRecord]:
        """Returns the records, computed on the present state."""
        is_fresh = together.brokers == self._elections.usable_brokers()
        current = _Together(self._elections)
        for change in together.changes:
            assert change.record is not None
            topic = self._state.topics_by_id.get(change.record.topic_id)
            if is_fresh and topic is not None and topic.partitions[change.asked.partition_index] is change.image:
                current.changes.append(change)
            else:
                self._compute(current, change, is_anew=True)  # its topic may be deleted, or be a new one of that name
        return [change.record for change in current.changes if change.record is not None]

    def _alter(self, name: str, asked: ReassignablePartition, *, allows_change: bool) -> PartitionChangeRecord | None:
        topic = self._state.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        if not 0 <= asked.partition_index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}.")
        if asked.replicas is None:
            return self._cancel(topic, asked.partition_index)
        return self._begin(topic, asked.partition_index, asked.replicas, allows_change=allows_change)

    def _begin(self, topic: TopicImage, index: int, target: list[int], *, allows_change: bool) -> PartitionChangeRecord | None:
        image = topic.partitions[index]
        count = len(set(image.replicas) - set(image.removing_replicas))
        if not allows_change and count != len(target):
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {count} to {len(target)}")
        removing = sorted(set(image.replicas) - set(target))
        adding = sorted(set(target) - set(image.replicas))
        change = self._elections.change(topic, image)
        change.replicas = [*target, *removing]
        # If this reassignment adds (or removes) no replica, the adding (or removing) replicas of an earlier one stay recorded, as in Kafka.
        if removing:
            change.removing_replicas = removing
        if adding:
            change.adding_replicas = adding
        return change.build(topic.topic_id, index)

    def _cancel(self, topic: TopicImage, index: int) -> PartitionChangeRecord | None:
        """Restore the replicas of before the reassignment: those being added are dropped, those to be removed stay."""
        image = topic.partitions[index]
        if not is_reassigning(image):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        change = self._elections.change(topic, image)
        change.replicas = [node_id for node_id in image.replicas if node_id not in image.adding_replicas]
        change.isr = [node_id for node_id in image.isr if node_id not in image.adding_replicas]
        allows_unclean = self._elections.allows_unclean(topic)
        if not change.isr:
            if not change.replicas:
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas.")
            if not allows_unclean:
                why = f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean leader election."
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
            change.isr = [change.replicas[0]]
        if allows_unclean:
            change.election = Election.UNCLEAN
        change.adding_replicas, change.removing_replicas = [], []
        return change.build(topic.topic_id, index)

    # -- listing ---------------------------------------------------------------------------------------------------

    def list(self, request: ListPartitionReassignmentsRequest) -> Steps[ListPartitionReassignmentsResponse]:
        """Returns the ongoing reassignments, of the requested partitions or of all. Unknown partitions are left out."""
        asked: Iterable[tuple[str, list[int]]]
        if request.topics is None:
            yield from self._elections.prepare()
            indexes: dict[str, list[int]] = {}
            for key in self._elections.partitions.reassigning():
                indexes.setdefault(key.topic.name, []).append(key.partition)
            asked = indexes.items()
        else:
            asked = ((topic.name, topic.partition_indexes) for topic in request.topics)
        response = ListPartitionReassignmentsResponse(error_message=None, topics=[])
        pace = Pace()
        for name, of_topic in asked:
            ongoing: list[OngoingPartitionReassignment] = []
            for index in of_topic:
                image = self._find(name, index)
                if image is not None and is_reassigning(image):
                    ongoing.append(_ongoing(index, image))
                if pace.is_due():
                    yield []
            if ongoing:
                response.topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
            if pace.is_due():
                yield []
        return response

    def _find(self, name: str, index: int) -> PartitionImage | None:
        topic = self._state.topics.get(name)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None


def is_reassigning(image: PartitionImage) -> bool:
    return bool(image.adding_replicas or image.removing_replicas)


def _ongoing(index: int, image: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(image.replicas),
        adding_replicas=list(image.adding_replicas),
        removing_replicas=list(image.removing_replicas),
    )
