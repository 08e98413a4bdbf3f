"""The changes that a chaos campaign makes come to pass; otherwise it would show nothing about them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from tests.faults.changes import ELECT_PREFERRED, MOVE_REPLICAS, MOVE_VOTER, Change, Changes
from tests.support.cluster import BARNABAS, Cluster

PARTITIONS = 6


def replicas(cluster: Cluster) -> dict[int, list[int]]:
    (topic,) = cluster.metadata("a").topics
    return {each.partition_index: each.replica_nodes for each in topic.partitions}


def voters(cluster: Cluster) -> set[int]:
    return {voter.replica_id for voter in cluster.quorum().current_voters}


def test_replicas_and_a_vote_move_and_preferred_leaders_are_elected(tmp_path: Path) -> None:
    with Cluster(tmp_path, [BARNABAS] * 4, initial_voters=(1, 2, 3)) as cluster:
        cluster.create_topic("a", PARTITIONS)
        changes = Changes(cluster, "a", random.Random(3))
        before = replicas(cluster)
        assert voters(cluster) == {1, 2, 3}

        changes.begin(MOVE_REPLICAS).wait()
        cluster.wait_for(lambda: replicas(cluster) != before, "all to know of the move")
        changes.begin(MOVE_VOTER).wait()
        cluster.wait_for(lambda: 4 in voters(cluster) and len(voters(cluster)) == 3, "the voters that the new leader tells")

        reversed_order = [
            ReassignablePartition(partition_index=index, replicas=each[::-1]) for index, each in replicas(cluster).items() if index < 2
        ]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="a", partitions=reversed_order)])
        assert cluster.ask(request, 0).error_code == ErrorCode.NONE
        changes.begin(ELECT_PREFERRED).wait()
        cluster.wait_for(lambda: all(cluster.partition("a", index).leader_id == replicas(cluster)[index][0] for index in (0, 1)), "them")


def test_a_change_that_does_not_come_to_an_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.changes.END_TIMEOUT_S", 0.05)

    def never() -> bool:
        raise OSError("no broker answers")

    with pytest.raises(AssertionError, match="has not ended"):
        Change("in vain", never).wait()
