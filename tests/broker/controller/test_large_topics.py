"""One topic with very many partitions is made, extended and deleted in turns, and still all or nothing for whoever looks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.controller.controller import Controller
from broker.controller.controller_result import Steps
from broker.metadata.cluster_state import ClusterState
from broker.metadata.encoded_topic_records import EncodedTopicRecords
from broker.metadata.record_format import batch_of_encoded, build_metadata_batch
from config.server import ServerConfig
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from tests.broker.controller.cluster import collected
from tests.broker.metadata.room import Room, creation, make_controller, open_room, registration

COUNT = 3_000
PARTITIONS_PER_STEP_MAX = 100


def adding(name: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)])


def assigned(name: str) -> CreateTopicsRequest:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(COUNT)]
    return CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)])


def run_to_append(steps: Steps[Any]) -> tuple[int, Sequence[Any]]:
    """How many steps came before the first that has records, and these. They are not appended yet."""
    for steps_count in range(COUNT):
        if records := next(steps):
            return steps_count, records
    raise AssertionError("no records")


def finish(controller: Controller, steps: Steps[Any], records: Sequence[Any] = ()) -> Any:
    while True:
        controller.replay(records)
        try:
            records = next(steps)
        except StopIteration as e:
            return e.value


@pytest.mark.parametrize("request_", [creation("t", COUNT, 1), assigned("t")], ids=["placed", "assigned"])
def test_a_large_topic_takes_many_steps_and_one_append(request_: CreateTopicsRequest) -> None:
    controller = make_controller()
    steps = controller.topics.create_topics(request_)

    steps_count, records = run_to_append(steps)
    before = dict(controller.state.topics)
    response = finish(controller, steps, records)

    assert steps_count >= COUNT / PARTITIONS_PER_STEP_MAX
    assert before == {}
    assert len(records) == COUNT + 1
    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (ErrorCode.NONE, COUNT)
    assert len(controller.state.topics["t"].partitions) == controller.state.partitions_count == COUNT


def test_large_additions_take_many_steps_and_one_append() -> None:
    controller = make_controller()
    controller.replay(collected(controller.topics.create_topics(creation("t", 2, 1))).records)
    assignments = [CreatePartitionsAssignment(broker_ids=[1]) for _ in range(COUNT)]
    by_hand = CreatePartitionsTopic(name="t", count=2 * COUNT, assignments=assignments)
    steps = controller.topics.create_partitions(adding("t", COUNT))

    placed_steps_count, records = run_to_append(steps)
    finish(controller, steps, records)
    steps = controller.topics.create_partitions(CreatePartitionsRequest(topics=[by_hand]))
    assigned_steps_count, records = run_to_append(steps)
    finish(controller, steps, records)

    assert min(placed_steps_count, assigned_steps_count) >= (COUNT - 2) / PARTITIONS_PER_STEP_MAX
    assert len(controller.state.topics["t"].partitions) == 2 * COUNT


@pytest.mark.parametrize(
    ("name", "other", "error"),
    [("t", "t", ErrorCode.TOPIC_ALREADY_EXISTS), ("a.b", "a_b", ErrorCode.INVALID_TOPIC_EXCEPTION)],
    ids=["same name", "collision"],
)
def test_a_name_taken_between_the_steps_is_refused(name: str, other: str, error: ErrorCode) -> None:
    controller = make_controller()
    steps = controller.topics.create_topics(creation(name, COUNT, 1))
    for _ in range(10):
        assert not next(steps)

    controller.replay(collected(controller.topics.create_topics(creation(other, 1, 1))).records)
    response = finish(controller, steps)

    assert response.topics[0].error_code == error
    assert {topic.name: len(topic.partitions) for topic in controller.state.topics.values()} == {other: 1}


def test_topics_before_a_large_one_are_appended_before_others_have_their_turns() -> None:
    controller = make_controller()
    request = CreateTopicsRequest(topics=[*creation("small", 1, 1).topics, *creation("large", COUNT, 1).topics])
    steps = controller.topics.create_topics(request)

    _, records = run_to_append(steps)
    controller.replay(records)
    while not next(steps):
        assert "small" in controller.state.topics


@pytest.mark.parametrize("case", ["deleted", "extended"])
def test_a_topic_changed_between_the_steps_of_an_addition_is_looked_at_again(case: str) -> None:
    controller = make_controller()
    controller.replay(collected(controller.topics.create_topics(creation("t", 1, 1))).records)
    steps = controller.topics.create_partitions(adding("t", COUNT))
    for _ in range(10):
        assert not next(steps)

    if case == "deleted":
        controller.replay(collected(controller.topics.delete_topics(DeleteTopicsRequest(topic_names=["t"]), 5)).records)
    else:
        controller.replay(collected(controller.topics.create_partitions(adding("t", 5))).records)
    response = finish(controller, steps)

    if case == "deleted":
        assert response.results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert len(controller.state.topics["t"].partitions) == COUNT


def test_a_broker_that_changes_between_the_steps_counts() -> None:
    controller = make_controller(1, 2)
    steps = controller.topics.create_topics(creation("t", COUNT, 1))
    for _ in range(10):
        assert not next(steps)

    controller.replay(registration(2, is_fenced=True, epoch=11))
    finish(controller, steps)

    assert {partition.leader for partition in controller.state.topics["t"].partitions} == {1}


def test_prepared_records_are_the_records(tmp_path: Path) -> None:
    """In the log, one by one, and in what they make of the state."""
    controller = make_controller()
    _, prepared = run_to_append(controller.topics.create_topics(creation("t", COUNT, 1, retention_ms="7")))
    assert isinstance(prepared, EncodedTopicRecords)
    at_once, one_by_one = ClusterState(), ClusterState()

    at_once.replay_batch(prepared)
    for record in prepared:
        one_by_one.replay(record)
    batch = batch_of_encoded(prepared.payload, len(prepared), base_offset=5, epoch=2, now_ms=77)

    assert batch == build_metadata_batch(list(prepared), base_offset=5, epoch=2, now_ms=77)
    assert at_once.topics == one_by_one.topics and at_once.configs == one_by_one.configs
    added = [change for each in at_once.take_delta().added_partitions for change in each.changes()]
    changed = one_by_one.take_delta().changed_partitions
    # Without the topic, which compares all of its partitions.
    assert [(change.partition, change.image) for change in added] == [(change.partition, change.image) for change in changed]
    assert (prepared[0], prepared[-1], prepared[1:3]) == (next(iter(prepared)), list(prepared)[-1], list(prepared)[1:3])


async def partitions_meanwhile(room: Room, task: asyncio.Future[Any]) -> set[int]:
    """The counts of partitions of topic "t" that anyone saw in the cache, turn by turn, until the task is done."""
    counts = set()
    while not task.done():
        await asyncio.sleep(0)
        topic = room.cache.find_topic("t")
        counts.add(0 if topic is None else len(topic.partitions))
    return counts


async def test_no_reader_sees_half_a_topic(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    created = await partitions_meanwhile(room, asyncio.ensure_future(room.client.create_topics(creation("t", COUNT, 1))))
    extended = await partitions_meanwhile(room, asyncio.ensure_future(room.client.create_partitions(adding("t", 2 * COUNT))))

    assert created == {0, COUNT}
    assert extended == {COUNT, 2 * COUNT}
    await room.close()


async def test_a_crash_leaves_all_of_a_topic_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    room = await open_room(tmp_path / "log")
    task = asyncio.ensure_future(room.client.create_topics(creation("t", COUNT, 1)))
    copies_count = 0
    while not task.done():
        await asyncio.sleep(0)
        copies_count += 1
        if copies_count % 20 == 0:
            shutil.copytree(tmp_path / "log", tmp_path / f"copy-{copies_count}")
    await room.close()

    seen = []
    for number in (*range(20, copies_count + 1, 20), None):
        copy = await open_room(tmp_path / ("log" if number is None else f"copy-{number}"))
        topic = copy.cache.find_topic("t")
        seen.append(0 if topic is None else len(topic.partitions))
        await copy.close()

    assert len(seen) > 2
    assert set(seen) == {0, COUNT}


async def test_two_clients_create_one_large_topic_once(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    responses = await asyncio.gather(*(room.client.create_topics(creation("t", COUNT + number, 1)) for number in range(3)))

    errors = [response.topics[0].error_code for response in responses]
    assert sorted(errors) == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
    topic = room.cache.find_topic("t")
    assert topic is not None and len(topic.partitions) == COUNT + errors.index(ErrorCode.NONE)
    await room.close()


async def test_a_large_topic_is_created_automatically_in_turns(tmp_path: Path) -> None:
    room = await open_room(tmp_path, ServerConfig(offsets_topic_replication_factor=1, num_partitions=COUNT))

    room.client.auto_create(["t"])
    await asyncio.sleep(0)
    others = await room.client.create_topics(creation("short", 1, 1))
    was_first = room.cache.find_topic("t") is None
    while room.cache.find_topic("t") is None:
        await asyncio.sleep(0)

    assert others.topics[0].error_code == ErrorCode.NONE
    assert was_first
    topic = room.cache.find_topic("t")
    assert topic is not None and len(topic.partitions) == COUNT
    await room.close()
