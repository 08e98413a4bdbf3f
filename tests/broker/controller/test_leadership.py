"""The controller's life: it begins with the committed state when this node comes to lead, and is thrown away with the leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.metadata.snapshot_writer import state_records
from broker.quorum.raft_log import OffsetAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from tests.broker.metadata.room import Room, creation, open_room, registration

RESIGNED_MS = 10_000  # long enough for the only voter to be elected again


async def let_run(turns_count: int = 20) -> None:
    for _ in range(turns_count):
        await asyncio.sleep(0)


async def depose(room: Room) -> None:
    room.quorum.resign(room.quorum.epoch)
    await let_run()


async def elect_again(room: Room) -> None:
    epoch = room.quorum.epoch
    while room.quorum.epoch < epoch + 2:  # the resigned epoch, one without a leader, the new one
        room.clock.advance(1_000)
        await let_run()


async def refusal_of(answer: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await answer
    return refused.value.code


async def test_a_deposed_controller_answers_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.executor.is_held = True
    waiting = asyncio.ensure_future(room.client.create_topics(creation("t", 1, 1)))
    await let_run()

    await depose(room)

    assert await refusal_of(waiting) is ErrorCode.NOT_CONTROLLER
    assert await refusal_of(room.client.create_topics(creation("u", 1, 1))) is ErrorCode.NOT_CONTROLLER
    assert await refusal_of(room.client.allocate_producer_ids()) is ErrorCode.NOT_CONTROLLER
    assert room.client.auto_create(["v"]) == {"v": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_new_controller_begins_with_the_committed_state(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 2, 1, retention_ms="7"))
    old = room.controller

    await depose(room)
    await elect_again(room)
    await room.client.create_topics(creation("u", 1, 1))

    assert room.controller is not old
    assert list(room.controller.state.topics) == list(room.cache.topics) == ["t", "u"]
    assert list(old.state.topics) == ["t"]
    assert room.failures == []


async def test_a_late_proposal_of_an_old_epoch_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    epoch = room.quorum.epoch
    await depose(room)
    await elect_again(room)
    end_offset = room.quorum.end_offset

    with pytest.raises(KafkaError) as refused:
        room.quorum.propose(epoch, [TopicRecord(name="late", topic_id=bytes(15) + b"\x01")])

    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert room.quorum.end_offset == end_offset
    assert "late" not in room.controller.state.topics


async def test_a_long_operation_does_not_go_on_under_another_leadership(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    request = creation("t", 1, 1)
    request.topics = [creation(f"t{number}", 1, 1).topics[0] for number in range(1_000)]
    answer = asyncio.ensure_future(room.client.create_topics(request))
    await asyncio.sleep(0)

    await depose(room)
    await elect_again(room)

    assert await refusal_of(answer) is ErrorCode.NOT_CONTROLLER
    assert list(room.controller.state.topics) == list(room.cache.topics)
    assert len(room.cache.topics) < 1_000


async def test_a_controller_whose_replay_fails_gives_its_leadership_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = await open_room(tmp_path)

    def fail(records: Sequence[Any]) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(room.controller, "replay", fail)
    with pytest.raises(AssertionError, match="a bug"):
        await room.client.create_topics(creation("t", 1, 1))
    await let_run()
    refused = await refusal_of(room.client.create_topics(creation("u", 1, 1)))
    await elect_again(room)

    assert refused is ErrorCode.NOT_CONTROLLER
    assert list(room.controller.state.topics) == list(room.cache.topics) == ["t"]


async def test_cache_and_controller_share_nothing_that_changes(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("a.b", 2, 1, retention_ms="7"))
    await depose(room)
    await elect_again(room)
    mine, theirs = room.cache.state, room.controller.state

    shared = [name for name, value in vars(mine).items() if isinstance(value, (dict, list)) and value is vars(theirs)[name]]

    assert shared == []
    assert mine.topics["a.b"] is not theirs.topics["a.b"] and mine.topics["a.b"].partitions is not theirs.topics["a.b"].partitions
    assert mine.configs[2, "a.b"] is not theirs.configs[2, "a.b"]
    assert mine.names_by_collision_key == theirs.names_by_collision_key == {"a_b": ["a.b"]}
    assert mine.names_by_collision_key["a_b"] is not theirs.names_by_collision_key["a_b"]


class Snapshot:
    """Of a state that other nodes have."""

    def __init__(self, records: list[Any]) -> None:
        self.snapshot = OffsetAndEpoch(1_000, 7)
        self._records = records

    def batches(self) -> Iterator[Sequence[Any]]:
        yield self._records


def topic_records(name: str, number: int, leaders: Sequence[int]) -> list[Any]:
    topic_id = number.to_bytes(16, "big")
    partitions = [
        PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=leader, leader_epoch=leader)
        for index, leader in enumerate(leaders)
    ]
    return [TopicRecord(name=name, topic_id=topic_id), *partitions]


async def test_a_fetched_snapshot_takes_the_place_of_the_state_and_the_delta_knows_what_is_gone(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    cache = room.cache
    configs = [ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="7") for name in ("kept", "gone")]
    cache.apply_committed([*registration(2), *topic_records("gone", 1, [1]), *topic_records("kept", 2, [1, 1]), *configs])
    cache.apply_committed(topic_records("again", 3, [1]))
    kept = cache.topics["kept"]
    topics, deltas = cache.topics, []
    cache.subscribe(deltas.append)
    assert cache.log_config("kept").retention_ms == 7

    room.publisher.handle_load_snapshot(
        Snapshot([*registration(3), *topic_records("kept", 2, [1, 2, 1]), *topic_records("again", 4, [2]), *topic_records("new", 5, [1])])
    )

    delta = deltas[-1]
    assert {topic.name: topic.topic_id[-1] for topic in delta.deleted_topics} == {"gone": 1, "again": 3}
    assert {topic.name for topic in delta.created_topics} == {"again", "new"}
    changed = [(change.topic.name, change.partition) for change in delta.changed_partitions]
    assert changed == [("kept", 1), ("kept", 2), ("again", 0), ("new", 0)]
    assert set(delta.changed_topic_configs) == {"kept"} and set(delta.changed_brokers) == {1, 2, 3}
    assert cache.topics is topics and list(topics) == ["kept", "again", "new"]
    assert topics["kept"] is kept and [partition.leader for partition in kept.partitions] == [1, 2, 1]
    assert cache.log_config("kept").retention_ms != 7
    assert cache.find_topic_by_id((4).to_bytes(16, "big")) is topics["again"] and cache.find_topic_by_id((1).to_bytes(16, "big")) is None


def test_a_state_that_became_another_is_that_other() -> None:
    """All that is kept, whatever it is: a snapshot of either is the same."""
    state, other = ClusterState(), ClusterState()
    state.replay_batch([*registration(1), *topic_records("a.b", 1, [1, 1]), *topic_records("c", 2, [1])])
    other.replay_batch([*registration(2), *topic_records("a.b", 1, [2]), *topic_records("d_e", 3, [1, 2])])
    state.take_delta()

    copy = other.copy()
    state.become(other)

    assert list(state_records(state)) == list(state_records(copy))
    assert (state.partitions_count, state.names_by_collision_key) == (3, {"a_b": ["a.b"], "d_e": ["d_e"]})
