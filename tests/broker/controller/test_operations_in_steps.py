"""Operations on many topics go step by step: others are served in between, and what they come to is what it was in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.controller.controller_result import Steps
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.broker.controller.cluster import collected
from tests.broker.metadata.room import creation, make_controller, open_room

COUNT = 1_000
ELEMENTS_PER_STEP_MAX = 500
NAMES = [f"t{number}" for number in range(COUNT)]


def creating(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics)


def adding(*names: str) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names])


def altering(*names: str, configs_count: int = 1, value: str = "77") -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name="retention.ms" if number == 0 else f"c{number}", value=value) for number in range(configs_count)]
    return IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name=name, configs=configs) for name in names]
    )


def carried_out(controller: Any, steps: Steps[Any]) -> tuple[Any, int]:
    """The response, and how many steps it took."""
    steps_count = 0
    while True:
        try:
            records = next(steps)
        except StopIteration as e:
            return e.value, steps_count
        controller.replay(records)
        steps_count += 1


OPERATIONS: dict[str, Callable[[Any], Steps[Any]]] = {
    "create": lambda controller: controller.topics.create_topics(creating(*NAMES)),
    "create, refused": lambda controller: controller.topics.create_topics(creating(*(f"/{name}" for name in NAMES))),
    "add partitions": lambda controller: controller.topics.create_partitions(adding(*NAMES)),
    "delete, unknown": lambda controller: controller.topics.delete_topics(DeleteTopicsRequest(topic_names=NAMES), 5),
    "alter": lambda controller: controller.configs.incremental_alter_configs(altering(*NAMES)),
}

DUPLICATES: dict[str, Callable[[Any], Steps[Any]]] = {
    "create": lambda controller: controller.topics.create_topics(creating(*NAMES, *NAMES)),
    "delete": lambda controller: controller.topics.delete_topics(DeleteTopicsRequest(topic_names=[*NAMES, *NAMES]), 5),
    "add partitions": lambda controller: controller.topics.create_partitions(adding(*NAMES, *NAMES)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_many_elements_take_many_steps(name: str) -> None:
    controller = make_controller()

    _, steps_count = carried_out(controller, OPERATIONS[name](controller))

    assert steps_count >= COUNT / ELEMENTS_PER_STEP_MAX


@pytest.mark.parametrize("name", DUPLICATES)
def test_each_of_many_duplicates_is_refused(name: str) -> None:
    controller = make_controller()

    answer, _ = carried_out(controller, DUPLICATES[name](controller))

    results = next(field for field in (getattr(answer, each, None) for each in ("topics", "results", "responses")) if field)
    assert [ErrorCode(result.error_code) for result in results] == [ErrorCode.INVALID_REQUEST] * COUNT


def test_topics_are_created_changed_and_deleted_step_by_step() -> None:
    controller = make_controller()

    answers = [
        carried_out(controller, steps)[0]
        for steps in (
            controller.topics.create_topics(creating(*NAMES)),
            controller.topics.create_partitions(adding(*NAMES)),
            controller.configs.incremental_alter_configs(altering(*NAMES)),
        )
    ]
    topics = dict(controller.state.topics)
    configs = [controller.state.topic_overrides(name) for name in NAMES]
    deleted, _ = carried_out(controller, controller.topics.delete_topics(DeleteTopicsRequest(topic_names=list(NAMES)), 5))

    assert {result.error_code for result in (*answers[0].topics, *answers[1].results, *answers[2].responses, *deleted.responses)} == {0}
    assert list(topics) == NAMES
    assert {len(topic.partitions) for topic in topics.values()} == {2}
    assert configs == [{"retention.ms": "77"}] * COUNT
    assert controller.state.topics == {}


def test_too_much_at_once_is_refused_before_the_first_step() -> None:
    """Each topic counts with its record and its partitions: 4,000 topics of 2 partitions are 12,000 records."""
    controller = make_controller()
    request = creating(*(f"t{number}" for number in range(4_000)), partitions=2)

    with pytest.raises(KafkaError) as refused:
        carried_out(controller, controller.topics.create_topics(request))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert controller.state.topics == {}


def test_refused_topics_do_not_count_for_the_limit() -> None:
    controller = make_controller()
    request = creating(*(f"/{number}" for number in range(4_900)), "good", partitions=2)

    response, _ = carried_out(controller, controller.topics.create_topics(request))

    assert [topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE] == ["good"]
    assert list(controller.state.topics) == ["good"]


def test_a_topic_deleted_meanwhile_is_no_contradiction() -> None:
    controller = make_controller()
    carried_out(controller, controller.topics.create_topics(creating(*NAMES)))
    steps = controller.topics.delete_topics(DeleteTopicsRequest(topic_names=list(NAMES)), 5)
    while not (records := next(steps)):
        pass
    controller.replay(records)

    controller.replay(collected(controller.topics.delete_topics(DeleteTopicsRequest(topic_names=NAMES[-1:]), 5)).records)
    response, _ = carried_out(controller, steps)

    errors = {result.name: result.error_code for result in response.responses if result.error_code}
    assert errors == {NAMES[-1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert controller.state.topics == {}


def test_a_topic_deleted_while_other_configs_are_checked_leaves_none_of_its_own() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creating("t"))).records)
    request = altering("t", "u")
    request.resources[1] = altering("u", configs_count=COUNT).resources[0]
    steps = controller.configs.incremental_alter_configs(request)
    controller.replay(next(steps))

    controller.replay(collected(controller.topics.delete_topics(DeleteTopicsRequest(topic_names=["t"]), 5)).records)
    carried_out(controller, steps)

    assert controller.state.configs == {}


def test_a_large_list_is_appended_to_and_subtracted_from() -> None:
    controller = make_controller()
    controller.replay(collected(controller.topics.create_topics(creating("t"))).records)
    name = "follower.replication.throttled.replicas"

    def alter(operation: int, *parts: str) -> None:
        config = AlterableConfig(name=name, config_operation=operation, value=",".join(parts))
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
        controller.replay(
            collected(controller.configs.incremental_alter_configs(IncrementalAlterConfigsRequest(resources=[resource]))).records
        )

    alter(0, "0:1", "0:1", "1:1")
    alter(2, "1:1", "2:1", "2:1")
    appended = controller.state.topic_overrides("t")[name]
    alter(3, "0:1", "2:1", "7:1")

    assert appended == "0:1,0:1,1:1,2:1"
    assert controller.state.topic_overrides("t")[name] == "0:1,1:1"


async def test_others_are_served_between_the_steps(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    long = asyncio.ensure_future(room.client.create_topics(creating(*NAMES)))
    await asyncio.sleep(0)
    await room.client.create_topics(creation("short", 1, 1))
    topics_then = len(room.cache.topics)
    await long

    assert topics_then < COUNT
    assert len(room.cache.topics) == COUNT + 1
    await room.close()
