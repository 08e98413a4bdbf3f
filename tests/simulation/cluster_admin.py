"""An admin of a cluster: beside topics that come and go it moves replicas and leaders of those that clients write to."""

from __future__ import annotations

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.simulation.admin import TIMEOUT_MS, Admin
from tests.simulation.clients import RETRIED
from tests.simulation.history import Key

REASSIGN_VERSION, ELECT_VERSION = 0, 2
REPLICAS_COUNTS = (2, 3)  # not fewer than min.insync.replicas

_MOVE_ANSWERS = RETRIED | {ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
_ELECTION_ANSWERS = RETRIED | {
    ErrorCode.NONE,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


class ClusterAdmin(Admin):
    """`keys` are the partitions that it moves among `node_ids`."""

    def __init__(self, *arguments: Any, keys: list[Key], node_ids: list[int]) -> None:
        super().__init__(*arguments)
        self._keys = keys
        self._node_ids = node_ids

    async def _step(self) -> None:
        what = self.draw.random()
        if what < 0.2:
            await self._reassign(self.draw.choice(self._keys))
        elif what < 0.3:
            await self._elect(self.draw.choice(self._keys))
        else:
            await super()._step()

    async def _reassign(self, key: Key) -> None:
        """Other replicas for a partition, or the end of the reassignment that is under way."""
        replicas = None
        if self.draw.random() < 0.85:
            replicas = self.draw.sample(self._node_ids, self.draw.choice(REPLICAS_COUNTS))
        partition = ReassignablePartition(partition_index=key[1], replicas=replicas)
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=key[0], partitions=[partition])])
        self.operations_count += 1
        response = await self.ask(request, REASSIGN_VERSION)
        error = response.error_code or response.responses[0].partitions[0].error_code
        self._covered("reassignment" if replicas is not None else "reassignment cancelled", error)
        self.note(f"reassigned {key[0]}-{key[1]} to {replicas}: {error}")
        if error and error not in _MOVE_ANSWERS:
            self.unexpected(f"AlterPartitionReassignments {key} {replicas}", error)

    async def _elect(self, key: Key) -> None:
        """The preferred leader of a partition."""
        request = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=key[0], partitions=[key[1]])], timeout_ms=TIMEOUT_MS)
        self.operations_count += 1
        response = await self.ask(request, ELECT_VERSION)
        error = response.error_code or response.replica_election_results[0].partition_result[0].error_code
        self._covered("preferred election", error)
        self.note(f"elected the preferred leader of {key[0]}-{key[1]}: {error}")
        if error not in _ELECTION_ANSWERS:
            self.unexpected(f"ElectLeaders {key}", error)

    def _covered(self, what: str, error: int) -> None:
        if error == ErrorCode.NONE:
            self.loop.trace.cover(what)
