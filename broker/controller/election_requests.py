"""ElectLeaders: elections that clients request. Computes records, in steps.

Source: ReplicationControlManager.electLeaders (KIP-183, KIP-460).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from broker.controller.controller_result import Pace, Steps
from broker.controller.elections import Elections
from broker.controller.partition_change import Election
from broker.controller.topic_selection import check_partitions_count
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import NO_LEADER, PartitionImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
"""By the request's election type."""

NOT_AVAILABLE = {
    Election.PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    Election.UNCLEAN: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
}
NOT_NEEDED = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")

ELECTION_ELEMENTS = 5
"""What an election counts for in a step, as against a partition that needs none."""


def elect_leaders(state: ClusterState, elections: Elections, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    """Elect leaders for the requested partitions, or for all. The answer for all leaves out the partitions that need no election.

    Raises KafkaError INVALID_REQUEST for an unknown election type."""
    election = ELECTIONS.get(request.election_type)
    if election is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    is_all = request.topic_partitions is None
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = _all_partitions(state)
    else:
        check_partitions_count(request.topic_partitions)
        asked = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    response = ElectLeadersResponse(replica_election_results=[])
    step: dict[tuple[str, int], Any] = {}
    pace = Pace()
    for name, indexes in asked:
        results: list[PartitionResult] = []
        response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
        for index in indexes:
            code, message = _elect(state, elections, name, index, election, step)
            if not is_all or code is not ErrorCode.ELECTION_NOT_NEEDED:
                results.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
            if pace.is_due(1 if code is ErrorCode.ELECTION_NOT_NEEDED else ELECTION_ELEMENTS):
                yield list(step.values())
                step = {}
        if pace.is_due():
            yield list(step.values())
            step = {}
    yield list(step.values())
    return response


def _all_partitions(state: ClusterState) -> Iterator[tuple[str, Iterable[int]]]:
    for name in list(state.topics):  # topics may be created and deleted between two steps
        topic = state.topics.get(name)
        if topic is not None:
            yield name, range(len(topic.partitions))


def _elect(
    state: ClusterState, elections: Elections, name: str, index: int, election: Election, step: dict[tuple[str, int], Any]
) -> tuple[ErrorCode, str | None]:
    """Append the record of the election to `step`, or return the error that prevents it."""
    topic = state.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    image = topic.partitions[index]
    if not _is_needed(image, election):
        return NOT_NEEDED
    change = elections.change(topic, image)
    change.election = election
    record = change.build(topic.topic_id, index)
    if record is None:
        return NOT_AVAILABLE[election]
    step[name, index] = record
    return ErrorCode.NONE, None


def _is_needed(image: PartitionImage, election: Election) -> bool:
    return image.leader != image.replicas[0] if election is Election.PREFERRED else image.leader == NO_LEADER
