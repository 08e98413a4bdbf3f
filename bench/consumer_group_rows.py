"""KIP-848 groups: the time until every member owns its target, and the records of `__consumer_offsets` for it.

One client plays all members, each on a connection of its own. In each round the members that are not at their target send a heartbeat, then
the client reads the responses. Real members wait for their heartbeat interval between two; this measures what the broker adds.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from bench.clients.wire import WireClient
from bench.session import MeasurementError, Outcome, Session
from bench.usage import cpu_seconds
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

HEARTBEAT_VERSION, FIND_VERSION, ALTER_VERSION, METADATA_VERSION = 1, 2, 1, 8
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
REBALANCE_TIMEOUT_MS = 60_000
GROUP_RESOURCE, SET = 32, 0
GROUP_TOPIC = "__consumer_offsets"
NOT_READY = (14, 15, 16)  # the coordinator's partition is being made or loaded
PARTITIONS_PER_MEMBER = 2
CHANGES = 5
SETTLE_TIMEOUT_S = 120.0
RETRY_PAUSE_S = 0.05

_group_names = itertools.count()


@dataclass(slots=True)
class Member:
    """`owned` is its last assignment, which it owns at once. If `has_news` it sends `owned` with its next heartbeat."""

    client: WireClient
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = JOIN_EPOCH
    owned: list[HeartbeatTopicPartitions] = field(default_factory=list)
    has_news: bool = True

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.owned)


class ConsumerGroup:
    """Members of one group that reads one topic."""

    def __init__(self, name: str, topic: str, partition_count: int) -> None:
        self.members: list[Member] = []
        self.heartbeat_count = 0
        self._name = name
        self._topic = topic
        self._partition_count = partition_count

    def settle(self, joining: Sequence[Member] = (), leaving: Sequence[Member] = ()) -> float:
        """Let members join and leave. Returns the seconds until each member owns its share of all partitions, in one epoch."""
        started = time.perf_counter()
        self._exchange(leaving, [self._leave(member) for member in leaving])
        self.members = [member for member in self.members if member not in leaving] + list(joining)
        self._beat(joining)
        while not self._is_balanced():
            if time.perf_counter() - started > SETTLE_TIMEOUT_S:
                raise MeasurementError(f"{self._name} does not settle")
            newest = max(member.epoch for member in self.members)
            self._beat([member for member in self.members if member.has_news or member.epoch < newest] or self.members)
        return time.perf_counter() - started

    def leave(self) -> None:
        """All members leave at once."""
        self._exchange(self.members, [self._leave(member) for member in self.members])

    def _is_balanced(self) -> bool:
        least, more = divmod(self._partition_count, len(self.members))
        counts = [member.partition_count for member in self.members]
        return (
            not any(member.has_news for member in self.members)
            and len({member.epoch for member in self.members}) == 1
            and sum(counts) == self._partition_count
            and set(counts) <= ({least, least + 1} if more else {least})
        )

    def _beat(self, members: Sequence[Member]) -> None:
        for member, answer in zip(members, self._exchange(members, [self._heartbeat(member) for member in members]), strict=True):
            member.epoch = answer.member_epoch
            member.has_news = answer.assignment is not None and answer.assignment.topic_partitions != member.owned
            if member.has_news:
                member.owned = answer.assignment.topic_partitions

    def _heartbeat(self, member: Member) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(group_id=self._name, member_id=member.member_id, member_epoch=member.epoch)
        if member.epoch == JOIN_EPOCH:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self._topic]
        if member.has_news:
            request.topic_partitions = member.owned
        return request

    def _leave(self, member: Member) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(group_id=self._name, member_id=member.member_id, member_epoch=LEAVE_EPOCH)

    def _exchange(
        self, members: Sequence[Member], requests: Sequence[ConsumerGroupHeartbeatRequest]
    ) -> list[ConsumerGroupHeartbeatResponse]:
        self.heartbeat_count += len(requests)
        for member, request in zip(members, requests, strict=True):
            member.client.send(request, HEARTBEAT_VERSION)
        answers = [member.client.receive() for member in members]
        refused = [answer for answer in answers if answer.error_code]
        if refused:
            raise MeasurementError(f"a member was refused: error {refused[0].error_code} {refused[0].error_message}")
        return answers


def rebalance(member_count: int) -> Callable[[Session], Outcome]:
    """The measurement for a group of that size: it forms, then one more member joins and leaves several times."""

    def measure(session: Session) -> Outcome:
        name, partition_count = f"bench-consumers-{next(_group_names)}", PARTITIONS_PER_MEMBER * member_count
        with ExitStack() as stack:
            topic = stack.enter_context(session.topic(partition_count))
            clients = [stack.enter_context(session.wire()) for _ in range(member_count + 1)]
            _await_coordinator(clients[0], name, topic)
            _set_assignment_interval(clients[0], name, 0)
            offsets_partitions = _partition_count(clients[0], GROUP_TOPIC)
            group = ConsumerGroup(name, topic, partition_count)
            formed_s = group.settle(joining=[Member(client) for client in clients[:-1]])
            times, records, heartbeats_before, cpu_before_s = [], [], group.heartbeat_count, cpu_seconds(*session.pids)
            for _ in range(CHANGES):
                more = [Member(clients[-1])]
                for joining, leaving in ((more, []), ([], more)):
                    offset_before = session.end_offsets(GROUP_TOPIC, offsets_partitions)
                    times.append(group.settle(joining, leaving))
                    records.append(session.end_offsets(GROUP_TOPIC, offsets_partitions) - offset_before)
            heartbeats = group.heartbeat_count - heartbeats_before
            cpu_s = cpu_seconds(*session.pids) - cpu_before_s
            group.leave()
        return Outcome(
            {
                "change_ms": 1000 * median(times),
                "cpu_ms": 1000 * cpu_s / len(times),
                "longest_ms": 1000 * max(times),
                "form_ms": 1000 * formed_s,
                "records": median(records),
                "heartbeats": heartbeats / len(times),
            }
        )

    return measure


def _await_coordinator(client: WireClient, name: str, topic: str) -> None:
    """The first group of a broker makes it create the offsets topic. Members are refused until that exists."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < deadline:
        if not client.request(FindCoordinatorRequest(key=name, key_type=0), FIND_VERSION).error_code:
            leave = ConsumerGroupHeartbeatRequest(group_id=name, member_id="nobody", member_epoch=LEAVE_EPOCH)
            if client.request(leave, HEARTBEAT_VERSION).error_code not in NOT_READY:
                return
        time.sleep(RETRY_PAUSE_S)
    raise MeasurementError("no group coordinator")


def _set_assignment_interval(client: WireClient, name: str, interval_ms: int) -> None:
    """Set the group's assignment interval, so that a change does not wait for the previous one."""
    config = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=SET, value=str(interval_ms))
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=[config])
    (answer,) = client.request(IncrementalAlterConfigsRequest(resources=[resource]), ALTER_VERSION).responses
    if answer.error_code:
        raise MeasurementError(f"the group's configs were refused: {answer.error_message}")


def _partition_count(client: WireClient, topic: str) -> int:
    return len(client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), METADATA_VERSION).topics[0].partitions)
