"""How replicas move between brokers: what AlterPartitionReassignments begins, and AlterPartition completes (KIP-455)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.reassignments import CHANGES_TOGETHER_MAX
from broker.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics
from protocol.messages.stored.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from tests.broker.controller.cluster import SESSION_MS, TOPIC_ID, Cluster, directory
from tests.broker.controller.test_elections import large


class FiveBrokers(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.join(1, 2, 3, 4)
        self.register(5, log_dirs=[directory(5), directory(6)])
        self.heartbeat(5)

    def move(self, *replicas: int, cancel: bool = False, **facts: Any) -> tuple[ErrorCode, str | None]:
        partition = ReassignablePartition(partition_index=facts.get("index", 0), replicas=None if cancel else list(replicas))
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=facts.get("topic", "t"), partitions=[partition])],
            allow_replication_factor_change=facts.get("allows_change", True),
        )
        response = self.run(self.controller.reassignments.alter(request))
        result = response.responses[0].partitions[0]
        return ErrorCode(result.error_code), result.error_message

    def propose(self, *isr: int) -> ErrorCode:
        """The leader proposes an ISR."""
        partition = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=self.image.leader_epoch,
            partition_epoch=self.image.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=self.epochs[each]) for each in isr],
        )
        topics = [AlterPartitionRequestTopicData(topic_id=TOPIC_ID, partitions=[partition])]
        leader = self.image.leader
        request = AlterPartitionRequest(broker_id=leader, broker_epoch=self.epochs[leader], topics=topics)
        response = self.run(self.controller.partitions.alter_partition(request))
        return ErrorCode(response.topics[0].partitions[0].error_code)

    @property
    def moves(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Replicas, those being added, those to be removed."""
        return self.image.replicas, self.image.adding_replicas, self.image.removing_replicas

    def ongoing(self, *indexes: int) -> list[tuple[str, int, list[int], list[int]]]:
        topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=list(indexes))] if indexes else None
        response = self.run(self.controller.reassignments.list(ListPartitionReassignmentsRequest(topics=topics)))
        return [
            (topic.name, each.partition_index, each.adding_replicas, each.removing_replicas)
            for topic in response.topics
            for each in topic.partitions
        ]


def test_a_move_adds_the_new_replicas_and_drops_the_old_once_the_new_are_in_sync() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)

    answer = cluster.move(3, 5)
    begun = cluster.moves, cluster.image.directories
    cluster.propose(1, 2, 3)
    half = cluster.moves
    completed = cluster.propose(1, 2, 3, 5)

    assert answer == (ErrorCode.NONE, None)
    assert begun == (((3, 5, 1, 2), (3, 5), (1, 2)), (directory(3), UNASSIGNED_DIRECTORY, directory(1), directory(2)))
    assert half == begun[0]
    assert completed is ErrorCode.NEW_LEADER_ELECTED  # newer metadata tells the old leader who leads
    assert (cluster.moves, cluster.facts) == (((3, 5), (), ()), (3, 1, (3, 5)))
    assert cluster.image.directories == (directory(3), UNASSIGNED_DIRECTORY)


def test_a_leader_that_stays_leads_in_a_new_epoch_when_a_replica_goes() -> None:
    """Nobody takes a removed replica for one any more."""
    cluster = FiveBrokers()
    cluster.partition(1, 2)
    cluster.move(1, 3)

    assert cluster.propose(1, 2, 3) is ErrorCode.NONE
    assert (cluster.moves, cluster.facts) == (((1, 3), (), ()), (1, 1, (1, 3)))


def test_another_order_of_the_same_replicas_is_there_at_once() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)

    cluster.move(2, 1)

    assert (cluster.moves, cluster.facts) == (((2, 1), (), ()), (1, 0, (1, 2)))
    assert [key.partition for key in cluster.controller.elections.partitions.imbalanced()] == [0]


def test_replicas_that_are_in_sync_already_need_no_second_stage() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2, 3)

    cluster.move(2, 3)

    assert (cluster.moves, cluster.facts) == (((2, 3), (), ()), (2, 1, (2, 3)))


def test_a_cancelled_move_leaves_the_replicas_as_they_were() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)
    cluster.move(3, 4)
    cluster.propose(1, 2, 3)

    answer = cluster.move(cancel=True)
    again = cluster.move(cancel=True)

    assert answer[0] is ErrorCode.NONE
    assert (cluster.moves, cluster.facts) == (((1, 2), (), ()), (1, 1, (1, 2)))
    assert again == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


@pytest.mark.parametrize("allows_unclean", [False, True])
def test_a_move_whose_new_replicas_alone_are_in_sync_is_cancelled_only_where_an_unclean_election_is_allowed(allows_unclean: bool) -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)
    cluster.configure(unclean_leader_election_enable=str(allows_unclean).lower())
    cluster.move(3, 4)
    cluster.propose(1, 3)
    cluster.pass_time(SESSION_MS, 2, 3, 4, 5)  # broker 1 is the controller's own: it is fenced by another
    cluster.run(cluster.controller.brokers.fence(1))

    code, message = cluster.move(cancel=True)

    if allows_unclean:
        assert code is ErrorCode.NONE and cluster.moves == ((1, 2), (), ())
        assert cluster.image.leader in (2, NO_LEADER)
    else:
        assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert message == "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
        assert cluster.moves[1] == (3, 4)


def test_moves_that_cannot_be_are_refused_one_by_one() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)

    assert cluster.move(3, 4, topic="u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named u.")
    assert cluster.move(3, 4, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:1.")
    assert cluster.move()[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.move(3, 3)[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.move(3, 9)[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.move(3, allows_change=False) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 2 to 1",
    )
    assert cluster.moves == ((1, 2), (), ())


def test_moves_that_go_on_are_listed() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)
    before = cluster.ongoing()
    cluster.move(1, 3)

    listed = [cluster.ongoing(), cluster.ongoing(0), cluster.ongoing(7)]
    cluster.propose(1, 2, 3)

    assert before == []
    assert listed == [[("t", 0, [3], [2])], [("t", 0, [3], [2])], []]
    assert cluster.ongoing() == cluster.ongoing(0) == []


def test_a_deleted_topics_moves_are_forgotten() -> None:
    cluster = FiveBrokers()
    cluster.partition(1, 2)
    cluster.ongoing()
    cluster.move(1, 3)

    cluster.append([RemoveTopicRecord(topic_id=TOPIC_ID)])

    assert cluster.ongoing() == []


def many_moves(count: int) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=index, replicas=[3, 4]) for index in range(count)]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="large-5", partitions=partitions)])


def test_many_moves_are_computed_in_steps_and_appended_together() -> None:
    cluster = FiveBrokers()
    large(cluster, 2 * CHANGES_TOGETHER_MAX, [1, 2])

    steps = [len(records) for records in cluster.controller.reassignments.alter(many_moves(CHANGES_TOGETHER_MAX - 1))]
    of_more = [len(records) for records in cluster.controller.reassignments.alter(many_moves(CHANGES_TOGETHER_MAX + 7))]

    assert [size for size in steps if size] == [CHANGES_TOGETHER_MAX - 1]
    assert [size for size in of_more if size] == [CHANGES_TOGETHER_MAX, 7]
    assert len(steps) >= CHANGES_TOGETHER_MAX / 20


def test_too_many_moves_are_refused_whole() -> None:
    cluster = FiveBrokers()
    large(cluster, 1, [1, 2])

    with pytest.raises(KafkaError) as refused:
        cluster.run(cluster.controller.reassignments.alter(many_moves(10_001)))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_what_others_change_while_many_moves_are_computed_counts() -> None:
    """A partition whose ISR shrank, one that another request moves, and one whose leader goes."""
    cluster = FiveBrokers()
    large(cluster, 100, [1, 2])
    moving = cluster.controller.reassignments.alter(many_moves(100))
    for _ in range(8):
        assert list(next(moving)) == []

    topic_id = cluster.controller.state.topics["large-5"].topic_id
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1])])
    other = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="large-5", partitions=[ReassignablePartition(partition_index=1, replicas=[2, 5])])]
    )
    cluster.run(cluster.controller.reassignments.alter(other))
    results = cluster.run(moving).responses[0].partitions

    partitions = cluster.controller.state.topics["large-5"].partitions
    assert {each.error_code for each in results} == {ErrorCode.NONE}
    assert (partitions[0].isr, partitions[0].replicas) == ((1,), (3, 4, 1, 2))
    assert (partitions[1].replicas, partitions[1].removing_replicas) == ((3, 4, 1, 2, 5), (1, 2, 5))
    assert {each.replicas for each in partitions[2:]} == {(3, 4, 1, 2)}


def test_broker_that_goes_while_many_moves_are_computed_gets_no_replicas() -> None:
    cluster = FiveBrokers()
    large(cluster, 100, [1, 2])
    moving = cluster.controller.reassignments.alter(many_moves(100))
    for _ in range(8):
        next(moving)

    cluster.run(cluster.controller.brokers.unregister(4))
    results = cluster.run(moving).responses[0].partitions

    assert {each.error_code for each in results} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert {each.replicas for each in cluster.controller.state.topics["large-5"].partitions} == {(1, 2)}


def test_a_topic_may_be_deleted_while_many_moves_are_computed() -> None:
    cluster = FiveBrokers()
    large(cluster, 100, [1, 2])
    moving = cluster.controller.reassignments.alter(many_moves(100))
    for _ in range(8):
        assert list(next(moving)) == []

    cluster.append([RemoveTopicRecord(topic_id=cluster.controller.state.topics["large-5"].topic_id)])
    results = cluster.run(moving).responses[0].partitions

    assert {each.error_code for each in results} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
