"""A controller that answers AlterPartition as Kafka's does, with the checks of ReplicationControlManager.validateAlterPartitionData.

It keeps its own registrations, and tells the world's metadata of what it committed when the test says so, or at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from broker.metadata.image import PartitionImage
from broker.replication.isr.isr_changes import AlterPartitionChannel
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from tests.broker.replication.world import World
from tests.support.doubles import stands_for


@stands_for(
    AlterPartitionChannel,
    own=("requests", "errors", "left_out", "registrations", "told", "is_echoing", "hold", "release", "tell_metadata", "commit", "alter"),
)
class FakeController:
    """`errors` are given in answer to the next requests, an exception or a top-level code each; `left_out` partitions get no answer."""

    def __init__(self, world: World, *, is_echoing: bool = True) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.errors: list[Exception | ErrorCode] = []
        self.left_out: set[int] = set()
        self.is_echoing = is_echoing
        self.registrations: dict[tuple[bytes, int], PartitionImage] = {
            (topic.topic_id, index): image for topic in world.metadata.topics.values() for index, image in enumerate(topic.partitions)
        }
        self.told: list[tuple[bytes, int, PartitionImage]] = []  # committed, and not in the world's metadata yet
        self._world = world
        self._gate = asyncio.Event()
        self._gate.set()

    def hold(self) -> None:
        """Answer nobody until `release`."""
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        await self._gate.wait()
        if self.errors:
            error = self.errors.pop(0)
            if isinstance(error, Exception):
                raise error
            return AlterPartitionResponse(error_code=error)
        if request.broker_epoch != self._world.metadata.brokers[request.broker_id].epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopicData(
                    topic_id=topic.topic_id,
                    partitions=[
                        self.alter(topic.topic_id, request.broker_id, asked)
                        for asked in topic.partitions
                        if asked.partition_index not in self.left_out
                    ],
                )
                for topic in request.topics
            ]
        )

    def commit(self, key: tuple[bytes, int], isr: tuple[int, ...]) -> PartitionImage:
        """Change a registration, as the controller does by itself."""
        known = self.registrations[key]
        image = self.registrations[key] = replace(known, isr=isr, partition_epoch=known.partition_epoch + 1)
        self.told.append((*key, image))
        return image

    def tell_metadata(self, count: int | None = None) -> None:
        """The brokers replay what was committed so far, or the first `count` of it."""
        count = len(self.told) if count is None else count
        told, self.told = self.told[:count], self.told[count:]
        for topic_id, index, image in told:
            topic = self._world.metadata.find_topic_by_id(topic_id)
            assert topic is not None
            self._world.change_partition(topic.name, index, isr=list(image.isr))

    def alter(self, topic_id: bytes, broker_id: int, asked: AlterPartitionRequestPartitionData) -> AlterPartitionResponsePartitionData:
        """Answer one partition of a request."""
        key = topic_id, asked.partition_index
        error_code = self._find_error(topic_id, broker_id, asked)
        if error_code is not ErrorCode.NONE:
            return AlterPartitionResponsePartitionData(partition_index=asked.partition_index, error_code=error_code)
        image = self.registrations[key]
        isr = tuple(member.broker_id for member in asked.new_isr_with_epochs)
        if isr != image.isr:
            image = self.commit(key, isr)
            if self.is_echoing:
                self.tell_metadata()
        return AlterPartitionResponsePartitionData(
            partition_index=asked.partition_index,
            leader_id=image.leader,
            leader_epoch=image.leader_epoch,
            isr=list(image.isr),
            leader_recovery_state=asked.leader_recovery_state,
            partition_epoch=image.partition_epoch,
        )

    def _find_error(self, topic_id: bytes, broker_id: int, asked: AlterPartitionRequestPartitionData) -> ErrorCode:
        if not any(known_id == topic_id for known_id, _ in self.registrations):
            return ErrorCode.UNKNOWN_TOPIC_ID
        image = self.registrations.get((topic_id, asked.partition_index))
        if image is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if asked.leader_epoch > image.leader_epoch or asked.partition_epoch > image.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if asked.leader_epoch < image.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != image.leader:
            return ErrorCode.INVALID_REQUEST
        if asked.partition_epoch < image.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [member.broker_id for member in asked.new_isr_with_epochs]
        if image.leader not in isr or not set(isr) <= set(image.replicas) or len(set(isr)) != len(isr):
            return ErrorCode.INVALID_REQUEST
        if asked.leader_recovery_state > image.leader_recovery_state:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE if all(self._is_eligible(member) for member in asked.new_isr_with_epochs) else ErrorCode.INELIGIBLE_REPLICA

    def _is_eligible(self, member: BrokerState) -> bool:
        broker = self._world.metadata.brokers.get(member.broker_id)
        return broker is not None and broker.is_active and member.broker_epoch in (-1, broker.epoch)
