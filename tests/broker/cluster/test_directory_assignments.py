"""When a broker tells the controller in which log directories its replicas are, and what it does until it is heard."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.cluster.directory_assignments import ASSIGNMENTS_PER_REQUEST_MAX, BATCH_MS, RETRY_MAX_MS, DirectoryAssignments
from broker.controller.channel import ControllerChannel
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from protocol.messages.stored.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TOPIC_ID = bytes(15) + b"\x01"
HERE, THERE = bytes([7] * 16), bytes([8] * 16)
COUNT = ASSIGNMENTS_PER_REQUEST_MAX + 20


@stands_for(ControllerChannel)
class Controller:
    """Notes which replica is said to be where; raises `errors` first, and refuses the partitions in `refused`."""

    def __init__(self) -> None:
        self.asked: list[dict[int, bytes]] = []
        self.errors: list[Exception] = []
        self.refused: set[int] = set()
        self.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        assert (request.broker_id, request.broker_epoch) == (1, 42)
        self.asked.append(
            {
                each.partition_index: directory.id
                for directory in request.directories
                for topic in directory.topics
                for each in topic.partitions
            }
        )
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        return AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponseDirectoryData(
                    id=directory.id,
                    topics=[
                        AssignReplicasToDirsResponseTopicData(
                            topic_id=topic.topic_id, partitions=[self._result(each.partition_index) for each in topic.partitions]
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in request.directories
            ]
        )

    def _result(self, index: int) -> AssignReplicasToDirsResponsePartitionData:
        error = self.refusal if index in self.refused else ErrorCode.NONE
        return AssignReplicasToDirsResponsePartitionData(partition_index=index, error_code=error)


class World:
    """Topic t with many partitions, all of broker 1."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.controller: Any = Controller()
        self.metadata = MetadataCache(ClusterState(), cluster_id="cluster", node_id=1, config=ServerConfig())
        partitions = [PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1) for index in range(COUNT)]
        self.metadata.apply_committed([TopicRecord(name="t", topic_id=TOPIC_ID), *partitions])
        self.assignments = DirectoryAssignments(self.controller, self.metadata, self.clock, lambda: 42)
        self.accepted: list[int] = []

    def assign(self, index: int, directory_id: bytes) -> None:
        self.assignments.assign((TOPIC_ID, index), directory_id, lambda: self.accepted.append(index))

    async def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, BATCH_MS):
            self.clock.advance(BATCH_MS)
            for _ in range(5):
                await asyncio.sleep(0)


async def test_assignments_of_one_moment_go_together_the_last_of_each_replica() -> None:
    world = World()

    world.assign(0, HERE)
    world.assign(1, THERE)
    world.assign(1, HERE)
    world.assign(2, THERE)
    await world.pass_time(10 * BATCH_MS)

    assert world.controller.asked == [{0: HERE, 1: HERE, 2: THERE}]
    assert world.accepted == [0, 1, 2]


async def test_very_many_go_in_several_requests_one_after_the_other() -> None:
    world = World()

    for index in range(COUNT):
        world.assign(index, HERE)
    await world.pass_time(10 * BATCH_MS)

    assert [len(each) for each in world.controller.asked] == [ASSIGNMENTS_PER_REQUEST_MAX, 20]
    assert sorted(world.accepted) == list(range(COUNT))


async def test_a_request_that_failed_is_sent_again_after_ever_longer_waits() -> None:
    world = World()
    world.controller.errors = [KafkaError(ErrorCode.NOT_CONTROLLER), ConnectionResetError(), *[TimeoutError()] * 8]

    world.assign(0, HERE)
    await world.pass_time(BATCH_MS)
    soon_count = len(world.controller.asked)
    await world.pass_time(2_000)
    later_count = len(world.controller.asked)
    await world.pass_time(6 * RETRY_MAX_MS)

    assert (soon_count, later_count, len(world.controller.asked)) == (1, 5, 11)
    assert world.accepted == [0]


async def test_a_replica_that_the_controller_refuses_is_told_again_alone() -> None:
    world = World()
    world.controller.refused = {1}

    world.assign(0, HERE)
    world.assign(1, HERE)
    await world.pass_time(2 * BATCH_MS)
    world.controller.refused.clear()
    await world.pass_time(4 * BATCH_MS)

    assert world.controller.asked[0] == {0: HERE, 1: HERE}
    assert all(each == {1: HERE} for each in world.controller.asked[1:]) and len(world.controller.asked) > 1
    assert world.accepted == [0, 1]


async def test_what_changed_while_a_request_was_in_flight_is_told_and_the_older_not_taken_for_accepted() -> None:
    world = World()
    told: list[str] = []

    world.assignments.assign((TOPIC_ID, 0), HERE, lambda: told.append("here"))
    world.clock.advance(BATCH_MS)
    await asyncio.sleep(0)
    world.assignments.assign((TOPIC_ID, 0), THERE, lambda: told.append("there"))
    await world.pass_time(4 * BATCH_MS)

    assert world.controller.asked == [{0: HERE}, {0: THERE}]
    assert told == ["there"]


@pytest.mark.parametrize(("refusal", "lines"), [(ErrorCode.UNKNOWN_TOPIC_ID, 0), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)])
async def test_a_topic_that_was_deleted_meanwhile_is_no_warning(refusal: ErrorCode, lines: int, caplog: pytest.LogCaptureFixture) -> None:
    """The controller knows of a deletion first."""
    world = World()
    world.controller.refused, world.controller.refusal = {0}, refusal

    world.assign(0, HERE)
    world.assign(1, HERE)
    await world.pass_time(BATCH_MS)

    assert world.accepted == [1]
    assert len(caplog.records) == lines


async def test_replicas_of_deleted_topics_are_forgotten() -> None:
    world = World()
    world.controller.errors = [KafkaError(ErrorCode.NOT_CONTROLLER)]

    world.assign(0, HERE)
    await world.pass_time(BATCH_MS)
    world.metadata.apply_committed([RemoveTopicRecord(topic_id=TOPIC_ID)])
    await world.pass_time(20 * BATCH_MS)

    assert len(world.controller.asked) == 1 and not world.accepted


async def test_nothing_is_sent_after_a_stop() -> None:
    world = World()

    world.assign(0, HERE)
    await world.assignments.stop()
    world.assign(1, HERE)
    await world.pass_time(20 * BATCH_MS)

    assert not world.controller.asked
