"""An admin of a cluster: beside topics that come and go it moves replicas and leaders of those that clients write to, and votes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.simulation.admin import TIMEOUT_MS, Admin
from tests.simulation.clients import RETRIED
from tests.simulation.history import Key

REASSIGN_VERSION, ELECT_VERSION, UPDATE_FEATURES_VERSION = 0, 2, 2
ADD_VOTER_VERSION, REMOVE_VOTER_VERSION, DESCRIBE_QUORUM_VERSION = 1, 0, 2
METADATA_TOPIC = "__cluster_metadata"
VOTERS_COUNT_MIN = 2
REPLICAS_COUNTS = (2, 3)  # not fewer than min.insync.replicas
WITHOUT_AWAY_SHARE = 0.7

_MOVE_ANSWERS = RETRIED | {ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
_ELECTION_ANSWERS = RETRIED | {
    ErrorCode.NONE,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}
_UPGRADE_ANSWERS = RETRIED | {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_UPDATE_VERSION}
_VOTER_ANSWERS = RETRIED | {ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND}


def draw_replicas(draw: random.Random, node_ids: list[int], away: list[int]) -> list[int]:
    """Replicas for a partition, in this order: more often than not without the brokers that are `away`, if others are enough."""
    others = [node_id for node_id in node_ids if node_id not in away]
    if away and len(others) >= min(REPLICAS_COUNTS) and draw.random() < WITHOUT_AWAY_SHARE:
        node_ids = others
    return draw.sample(node_ids, min(draw.choice(REPLICAS_COUNTS), len(node_ids)))


class ClusterAdmin(Admin):
    """`keys` are the partitions that it moves among the brokers `node_ids`, rather away from those that `find_away` tells, which are down.
    The nodes `controller_ids` vote at `controller_port`; which of them do may change if `moves_votes`, or once the voters are in the log:
    they get there (kraft.version 1) after `steps_to_upgrade`, if any."""

    def __init__(
        self,
        *arguments: Any,
        keys: list[Key],
        node_ids: list[int],
        controller_ids: list[int],
        find_away: Callable[[], list[int]],
        controller_port: int,
        moves_votes: bool,
        steps_to_upgrade: int | None = None,
    ) -> None:
        super().__init__(*arguments)
        self._keys = keys
        self._node_ids = node_ids
        self._controller_ids = controller_ids
        self._find_away = find_away
        self._controller_port = controller_port
        self._moves_votes = moves_votes
        self._steps_to_upgrade = steps_to_upgrade
        self._moved: Key | None = None

    async def _step(self) -> None:
        if self._steps_to_upgrade is not None:
            self._steps_to_upgrade -= 1
            if self._steps_to_upgrade < 0:
                await self._upgrade_kraft()
        what = self.draw.random()
        if what < 0.2:
            await self._reassign(self.draw.choice(self._keys))
        elif what < 0.3:
            await self._elect(self.draw.choice(self._keys))
        elif what < 0.5 and self._moves_votes:
            await self._move_vote()
        else:
            await super()._step()

    async def _reassign(self, key: Key) -> None:
        """Other replicas for a partition, or the end of the last reassignment, if it is under way still."""
        replicas, away = None, self._find_away()
        if self.draw.random() < 0.85:
            replicas = draw_replicas(self.draw, self._node_ids, away)
            self._moved = key
        elif self._moved is not None:
            key = self._moved
        partition = ReassignablePartition(partition_index=key[1], replicas=replicas)
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=key[0], partitions=[partition])])
        self.operations_count += 1
        response = await self.ask(request, REASSIGN_VERSION)
        error = response.error_code or response.responses[0].partitions[0].error_code
        self._covered("reassignment" if replicas is not None else "reassignment cancelled", error)
        if replicas is not None and away and not set(away) & set(replicas):
            self._covered("reassignment away from a broker that is down", error)
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

    async def _upgrade_kraft(self) -> None:
        """The voters of the configuration become those of the log (KIP-853)."""
        update = FeatureUpdateKey(feature="kraft.version", max_version_level=1)
        self.operations_count += 1
        response = await self.ask(UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update]), UPDATE_FEATURES_VERSION)
        error = response.error_code
        self._covered("voters in the log", error)
        self.note(f"upgraded kraft.version: {error} {response.error_message or ''}")
        if error == ErrorCode.NONE:
            self._steps_to_upgrade, self._moves_votes = None, True
        elif error not in _UPGRADE_ANSWERS:
            self.unexpected("UpdateFeatures kraft.version", error)

    async def _move_vote(self) -> None:
        """A node that does not vote becomes a voter, or a voter ceases to be one (KIP-853), perhaps the active controller."""
        asked = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData()])
        described = await self.ask(DescribeQuorumRequest(topics=[asked]), DESCRIBE_QUORUM_VERSION)
        partition = described.topics[0].partitions[0] if described.topics else None
        if partition is None or described.error_code or partition.error_code:
            return
        voters = {each.replica_id: each.replica_directory_id for each in partition.current_voters}
        controllers = [each for each in partition.observers if each.replica_id in self._controller_ids]
        observers = {each.replica_id: each.replica_directory_id for each in controllers}
        is_addition = bool(observers) and (len(voters) <= VOTERS_COUNT_MIN or self.draw.random() < 0.5)
        if not is_addition and len(voters) <= VOTERS_COUNT_MIN:
            return
        node_id = self.draw.choice(sorted(observers if is_addition else voters))
        self.operations_count += 1
        if is_addition:
            listener = Listener(name="CONTROLLER", host=f"node{node_id}", port=self._controller_port)
            addition = AddRaftVoterRequest(
                cluster_id=None, timeout_ms=TIMEOUT_MS, voter_id=node_id, voter_directory_id=observers[node_id], listeners=[listener]
            )
            response = await self.ask(addition, ADD_VOTER_VERSION)
        else:
            removal = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=voters[node_id])
            response = await self.ask(removal, REMOVE_VOTER_VERSION)
        error = response.error_code
        what = "voter added" if is_addition else "voter removed"
        self.note(f"{what} {node_id}: {error} {response.error_message or ''}")
        self._covered(what, error)
        if error not in _VOTER_ANSWERS:
            self.unexpected(f"{what} {node_id}", error)

    def _covered(self, what: str, error: int) -> None:
        if error == ErrorCode.NONE:
            self.loop.trace.cover(what)
