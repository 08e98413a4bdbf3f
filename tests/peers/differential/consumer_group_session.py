"""The steps of the KIP-848 fuzzer against one broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.peers.differential.consumer_group_steps import Beat, Epoch, Owned
from tests.peers.differential.fuzzer import Connection, plain
from tests.support.process import ServerProcess

PARTITION_COUNTS = {"a": 3, "b": 1, "c": 4}
"""The topics that exist at the begin."""
WAIT_S, WAIT_INTERVAL_S = 20.0, 0.01

_EPOCHS = {Epoch.JOIN: 0, Epoch.LEAVE: -1, Epoch.LEAVE_FOR_A_WHILE: -2, Epoch.AHEAD: 99, Epoch.BELOW_ALL: -3}


@dataclass(slots=True)
class _Member:
    """What a member knows of itself by the answers."""

    epoch: int = 0
    previous_epoch: int = 0
    owned: list[HeartbeatTopicPartitions] = field(default_factory=list)
    owned_before: list[HeartbeatTopicPartitions] = field(default_factory=list)


class ConsumerGroupSession:
    """See Session. The group has the namespace's name; topics are named "<namespace>-a" and so on."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self._namespace = namespace
        self._connection = Connection(server)
        self._members: dict[str, _Member] = {}
        self._topic_names: dict[bytes, str] = {}
        self._probe = _Member()
        self._find_coordinator()
        self._create_topics(PARTITION_COUNTS)

    def close(self) -> None:
        self._connection.close()

    # Steps.

    def run(self, step: Any) -> Any:
        return self._beat(step)

    def _beat(self, step: Beat) -> Any:
        member = self._members.setdefault(step.member, _Member())
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._namespace,
            member_id=step.member,
            member_epoch=self._epoch(member, step.epoch),
            topic_partitions=self._owned(member, step.owned),
        )
        for name, value in step.fields.items():
            setattr(request, name, [self._topic(topic) for topic in value] if name == "subscribed_topic_names" else value)
        answer = self._connection.ask(request, step.version)
        if getattr(answer, "error_code", -1) == 0:
            _learn(member, answer)
        return self._plain(answer)

    @staticmethod
    def _epoch(member: _Member, epoch: Epoch) -> int:
        if epoch is Epoch.PRESENT:
            return member.epoch
        return member.previous_epoch if epoch is Epoch.PREVIOUS else _EPOCHS[epoch]

    @staticmethod
    def _owned(member: _Member, owned: Owned) -> list[HeartbeatTopicPartitions] | None:
        match owned:
            case Owned.NOTHING:
                return []
            case Owned.ASSIGNED:
                return member.owned
            case Owned.BEFORE:
                return member.owned_before
        return None

    # What others see.

    def describe(self) -> Any:
        return self._plain(self._connection.ask(ConsumerGroupDescribeRequest(group_ids=[self._namespace]), 1))

    def log(self) -> Any:
        return None

    def _plain(self, answer: Any) -> Any:
        return plain(answer, names=self._topic_names)

    # What exists.

    def _topic(self, name: str) -> str:
        return f"{self._namespace}-{name}"

    def _find_coordinator(self) -> None:
        """On Kafka the first search makes __consumer_offsets."""
        request = FindCoordinatorRequest(coordinator_keys=[self._namespace])
        _wait_for(lambda: self._connection.ask(request, 4).coordinators[0].error_code == 0, "there is no coordinator")

    def _create_topics(self, partition_counts: dict[str, int]) -> None:
        """Returns once the group coordinator knows them."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=self._topic(name), num_partitions=count, replication_factor=1)
                for name, count in partition_counts.items()
            ]
        )
        for topic in self._connection.ask(request, 7).topics:
            self._topic_names[topic.topic_id] = topic.name
        self._await_topics(partition_counts)

    def _await_topics(self, partition_counts: dict[str, int]) -> None:
        """The only member of another group is assigned all of them."""
        expected = {self._topic(name): count for name, count in partition_counts.items()}
        self._probe = _Member()

        def is_assigned() -> bool:
            # It joins each time, so that the group's topics are looked at anew.
            answer = self._connection.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=f"{self._namespace}-probe-{time.monotonic_ns()}",
                    member_id="probe",
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=list(expected),
                    topic_partitions=[],
                ),
                1,
            )
            assigned = answer.assignment.topic_partitions if answer.assignment else []
            return {self._topic_names.get(topic.topic_id): len(topic.partitions) for topic in assigned} == expected

        _wait_for(is_assigned, f"{sorted(expected)} are not assigned")


def _learn(member: _Member, answer: Any) -> None:
    if answer.member_epoch != member.epoch:
        member.previous_epoch, member.epoch = member.epoch, answer.member_epoch
    if answer.assignment is not None:
        member.owned_before, member.owned = member.owned, answer.assignment.topic_partitions


def _wait_for(is_done: Callable[[], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_done():
        if time.monotonic() > deadline_s:
            raise AssertionError(otherwise)
        time.sleep(WAIT_INTERVAL_S)
