"""What the controller answers may be large where the request was small: it is encoded in turns, on listeners of both kinds."""

from __future__ import annotations

from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.controller.channel import ControllerChannel
from broker.handlers.cluster import list_partition_reassignments
from broker.handlers.controller.other_apis import build_create_topics, build_list_partition_reassignments
from broker.handlers.services import ControllerServices, Handler
from broker.handlers.topics import create_topics
from broker.network.context import RequestContext
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.broker.metadata.room import Room, context, open_room
from tests.support.doubles import stands_for
from tests.support.turns import run

TOPICS_COUNT = 50  # with some 30 configs each
MOVES_COUNT = 1_000


@stands_for(ControllerChannel)
class ManyMoves:
    """A controller with many partitions that move."""

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, client: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        moves = [OngoingPartitionReassignment(partition_index=index) for index in range(MOVES_COUNT)]
        return ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="t", partitions=moves)])


def services_of_controller(room: Room, controller: Any) -> ControllerServices:
    metrics, quorum = room.services.metrics, room.quorum
    return ControllerServices(
        room.clock, metrics, room.cache, controller, lambda: True, quorum.handle_request, no_envelope, quorum, room.config
    )


def no_envelope(*_arguments: Any) -> None:
    raise AssertionError("no Envelope here")


async def ask(handler: Handler, version: int, request: Any) -> Any:
    outcome: Any = handler(context(version), request)
    return await outcome


@pytest.mark.parametrize("count", [1, TOPICS_COUNT])
async def test_the_configs_of_many_new_topics_are_answered_in_turns(tmp_path: Path, count: int) -> None:
    room = await open_room(tmp_path)
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(count)]
    request = CreateTopicsRequest(topics=topics, validate_only=True)

    of_broker = await ask(create_topics.build(room.services), 7, request)
    of_controller = await ask(build_create_topics(services_of_controller(room, room.local)), 7, request)

    outcomes = [of_broker, of_controller]
    assert [isinstance(outcome, GeneratorType) for outcome in outcomes] == [count > 1] * 2
    answers = [run(outcome)[0] if count > 1 else outcome for outcome in outcomes]
    assert [len(answer.topics) for answer in answers] == [count] * 2
    await room.close()


async def test_many_moves_are_listed_in_turns(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    controller: Any = ManyMoves()
    request = ListPartitionReassignmentsRequest(topics=None)

    of_broker = await ask(list_partition_reassignments.build(room.services._replace(controller=controller)), 0, request)
    of_controller = await ask(build_list_partition_reassignments(services_of_controller(room, controller)), 0, request)

    assert isinstance(of_broker, GeneratorType)
    assert isinstance(of_controller, GeneratorType)
    assert [len(run(outcome)[0].topics[0].partitions) for outcome in (of_broker, of_controller)] == [MOVES_COUNT] * 2
    await room.close()
