from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.cluster_state import ClusterState
from protocol.messages.stored import metadata_records as records
from storage.errors import StorageError
from tests.broker.metadata.room import registration

TOPIC_ID = bytes(15) + b"\x01"
OTHER_ID = bytes(15) + b"\x02"


def _replayed(*changes: Any) -> ClusterState:
    state = ClusterState()
    for record in changes:
        state.replay(record)
    return state


def _topic(name: str = "t", topic_id: bytes = TOPIC_ID, partitions: int = 1) -> list[Any]:
    made: list[Any] = [records.TopicRecord(name=name, topic_id=topic_id)]
    made += [
        records.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0)
        for index in range(partitions)
    ]
    return made


def test_a_new_topic_is_in_the_delta_with_all_its_partitions() -> None:
    state = _replayed(*_topic(partitions=2))

    delta = state.take_delta()

    assert [topic.name for topic in delta.created_topics] == ["t"]
    assert [(change.topic.name, change.partition, change.image.leader) for change in delta.changed_partitions] == [("t", 0, 1), ("t", 1, 1)]
    assert state.take_delta().is_empty


def test_a_leader_change_raises_both_epochs_and_an_isr_change_only_one() -> None:
    state = _replayed(*_topic())

    state.replay(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1, 2]))
    after_isr = state.topics["t"].partitions[0]
    state.replay(records.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    after_leader = state.topics["t"].partitions[0]

    assert (after_isr.isr, after_isr.leader_epoch, after_isr.partition_epoch) == ((1, 2), 0, 1)
    assert (after_leader.leader, after_leader.isr, after_leader.leader_epoch, after_leader.partition_epoch) == (2, (1, 2), 1, 2)


def test_removing_a_topic_takes_everything_of_it_along() -> None:
    state = _replayed(*_topic("t_1"), records.ConfigRecord(resource_type=2, resource_name="t_1", name="retention.ms", value="1"))
    state.take_delta()

    state.replay(records.RemoveTopicRecord(topic_id=TOPIC_ID))

    assert (state.topics, state.topics_by_id, state.configs, state.names_by_collision_key) == ({}, {}, {}, {})
    assert [topic.topic_id for topic in state.take_delta().deleted_topics] == [TOPIC_ID]


def test_a_topic_that_came_and_went_leaves_no_trace_in_the_delta() -> None:
    state = _replayed(*_topic(), records.RemoveTopicRecord(topic_id=TOPIC_ID))

    assert state.take_delta().is_empty


def test_a_topic_deleted_and_made_anew_is_in_the_delta_twice() -> None:
    state = _replayed(*_topic())
    state.take_delta()

    for record in (records.RemoveTopicRecord(topic_id=TOPIC_ID), *_topic(topic_id=OTHER_ID)):
        state.replay(record)
    delta = state.take_delta()

    assert [topic.topic_id for topic in delta.deleted_topics] == [TOPIC_ID]
    assert [topic.topic_id for topic in delta.created_topics] == [OTHER_ID]


def test_a_transaction_takes_effect_at_its_end() -> None:
    state = _replayed(records.BeginTransactionRecord(name="x"), *_topic())
    before = dict(state.topics)

    state.replay(records.EndTransactionRecord())

    assert before == {}
    assert list(state.topics) == ["t"]


def test_an_aborted_transaction_has_no_effect() -> None:
    state = _replayed(records.BeginTransactionRecord(name="x"), *_topic(), records.AbortTransactionRecord(reason="y"))

    assert state.topics == {}
    assert not state.is_in_transaction


@pytest.mark.parametrize(
    "record",
    [
        records.UnknownMetadataRecord(99, 0, b""),
        records.FeatureLevelRecord(name="metadata.version", feature_level=31),
        records.FeatureLevelRecord(name="metadata.version", feature_level=6),
    ],
)
def test_what_nobody_here_understands_ends_the_replay(record: Any) -> None:
    """Going on, this node would make something else of the log than the others."""
    state = ClusterState()

    with pytest.raises(StorageError):
        state.replay(record)


def test_eligible_leaders_are_cleared_of_one_topic_or_of_all() -> None:
    state = _replayed(*_topic("a"), *_topic("b", OTHER_ID))
    for topic_id in (TOPIC_ID, OTHER_ID):
        change = records.PartitionChangeRecord(topic_id=topic_id, partition_id=0, eligible_leader_replicas=[2], last_known_elr=[3])
        state.replay(change)
    state.take_delta()

    state.replay(records.ClearElrRecord(topic_name="a"))
    one = [state.topics[name].partitions[0].eligible_leader_replicas for name in "ab"]
    changed = [change.topic.name for change in state.take_delta().changed_partitions]
    state.replay(records.ClearElrRecord(topic_name=""))

    assert (one, changed) == ([(), (2,)], ["a"])
    image = state.topics["b"].partitions[0]
    assert (image.eligible_leader_replicas, image.last_known_elr, image.partition_epoch) == ((), (), 2)


def test_fencing_and_unfencing_follow_the_registration_of_that_epoch() -> None:
    state = _replayed(*registration(1, is_fenced=True, epoch=10))
    fenced = state.brokers[1].is_active

    state.replay(records.UnfenceBrokerRecord(id=1, epoch=10))

    assert not fenced
    assert state.brokers[1].is_active
    with pytest.raises(StorageError):
        state.replay(records.FenceBrokerRecord(id=1, epoch=9))


def test_unregistering_removes_the_broker() -> None:
    state = _replayed(*registration(1), records.UnregisterBrokerRecord(broker_id=1, broker_epoch=10))

    assert state.brokers == {}


def test_a_changed_broker_default_names_every_topic() -> None:
    state = _replayed(*_topic("a"), *_topic("b", OTHER_ID))
    state.take_delta()

    state.replay(records.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="1"))

    assert state.take_delta().changed_topic_configs == ("a", "b")


@pytest.mark.parametrize(
    "record",
    [
        records.PartitionRecord(partition_id=0, topic_id=OTHER_ID),
        records.PartitionRecord(partition_id=5, topic_id=TOPIC_ID),
        records.PartitionChangeRecord(partition_id=7, topic_id=TOPIC_ID),
        records.RemoveTopicRecord(topic_id=OTHER_ID),
        records.TopicRecord(name="t", topic_id=OTHER_ID),
        records.EndTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_state_is_a_storage_error(record: Any) -> None:
    state = _replayed(*_topic())

    with pytest.raises(StorageError):
        state.replay(record)


def test_partitions_are_counted_as_topics_come_and_go() -> None:
    state = ClusterState()
    first, second = bytes(15) + b"\x01", bytes(15) + b"\x02"
    for record in [
        records.TopicRecord(name="a", topic_id=first),
        records.PartitionRecord(partition_id=0, topic_id=first),
        records.PartitionRecord(partition_id=1, topic_id=first),
        records.PartitionRecord(partition_id=1, topic_id=first, leader=2),
        records.TopicRecord(name="b", topic_id=second),
        records.PartitionRecord(partition_id=0, topic_id=second),
    ]:
        state.replay(record)
    before = state.partitions_count

    state.replay(records.RemoveTopicRecord(topic_id=first))

    assert (before, state.partitions_count) == (3, 1)
