"""The steps of the KIP-848 fuzzer against one broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.peers.differential import consumer_group_steps as steps
from tests.peers.differential.classic_member import ClassicMember
from tests.peers.differential.consumer_group_steps import Epoch, Owned
from tests.peers.differential.fuzzer import Connection, is_met_within, plain
from tests.peers.differential.group_coordinator import GROUP_RESOURCE, GroupCoordinatorView
from tests.support.process import ServerProcess

PARTITION_COUNTS = {"a": 3, "b": 1, "c": 4}
"""The topics that exist at the begin."""
EXPRESSION_WAIT_S = 5.0
CLASSIC_PROTOCOL = 0
"""As ConsumerGroupDescribe names the protocol that a member speaks."""
EVERY_PARTITION = [0, 1, 2, 3, 9]
TIMES_AND_HASHES = {"commit_timestamp", "assignment_timestamp", "timestamp", "current_state_timestamp", "version", "metadata_hash"}
"""Not compared of stored records: a group's hash is that of its topics' ids, and a regular expression's version an offset of metadata."""

_EPOCHS = {Epoch.JOIN: 0, Epoch.LEAVE: -1, Epoch.LEAVE_FOR_A_WHILE: -2, Epoch.AHEAD: 99, Epoch.BELOW_ALL: -3}


@dataclass(slots=True)
class _Member:
    """What a member knows of itself by the answers."""

    epoch: int = 0
    previous_epoch: int = 0
    owned: list[HeartbeatTopicPartitions] = field(default_factory=list)
    owned_before: list[HeartbeatTopicPartitions] = field(default_factory=list)

    def learn(self, answer: Any) -> None:
        if answer.member_epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, answer.member_epoch
        if answer.assignment is not None:
            self.owned_before, self.owned = self.owned, answer.assignment.topic_partitions


class ConsumerGroupSession:
    """See Session. The group has the namespace's name; topics are named "<namespace>-a" and so on."""

    def __init__(self, server: ServerProcess, namespace: str) -> None:
        self._group_id = namespace
        self._connection = Connection(server)
        self._members: dict[str, _Member] = {}
        self._classic_members: dict[str, ClassicMember] = {}
        self._has_found_topics = False
        """Of a regular expression, when last looked at."""
        self._coordinator = GroupCoordinatorView(self._connection, namespace)
        self._coordinator.create_topics({self._topic(name): count for name, count in PARTITION_COUNTS.items()})
        self._actions: Mapping[type, Callable[[Any], Any]] = {
            steps.Beat: self._beat,
            steps.Commit: self._commit,
            steps.FetchOffsets: self._fetch_offsets,
            steps.DeleteOffsets: self._delete_offsets,
            steps.DeleteGroup: lambda step: self._connection.ask(DeleteGroupsRequest(groups_names=[self._group_id]), 2),
            steps.AlterGroup: lambda step: self._coordinator.alter_group(self._group_id, step.key, step.value),
            steps.CreateTopic: lambda step: self._coordinator.create_topics({self._topic(step.name): step.partitions}),
            steps.DeleteTopic: lambda step: self._coordinator.delete_topic(self._topic(step.name)),
            steps.GrowTopic: lambda step: self._coordinator.grow_topic(self._topic(step.name), step.partitions),
            steps.ClassicJoin: self._join,
            steps.ClassicSync: lambda step: self._classic(step).sync(self._connection, self._group_id, step),
            steps.ClassicBeat: self._beat_classic,
            steps.ClassicLeave: lambda step: self._classic(step).leave(self._connection, self._group_id, step),
        }

    def close(self) -> None:
        self._connection.close()

    def run(self, step: Any) -> Any:
        return self._plain(self._actions[type(step)](step))

    # Members.

    def _beat(self, step: steps.Beat) -> Any:
        member = self._members.setdefault(step.member, _Member())
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=step.member,
            member_epoch=self._epoch(step.member, step.epoch),
            topic_partitions=self._owned(member, step.owned),
        )
        for name, value in step.fields.items():
            if name == "subscribed_topic_names" and value is not None:
                value = [self._topic(topic) for topic in value]
            elif name == "subscribed_topic_regex" and value:
                value = self._topic(value)
            setattr(request, name, value)
        answer = self._connection.ask(request, step.version)
        if getattr(answer, "error_code", -1) == 0:
            member.learn(answer)
            self._await_expressions()
        return answer

    def _await_expressions(self) -> None:
        """Until the topics of the members' regular expressions have been found, which goes on after the answer. A broker that does not
        find them shows it by what follows.

        A group that had found some looks for no more within ten seconds, whoever joins with which expression. Nothing is waited for then:
        in a seed that takes ten seconds one broker looks again a step before the other."""
        had_found, self._has_found_topics = self._has_found_topics, self._is_any_found()
        if had_found:
            return
        if any(member.subscribed_topic_regex for member in self._described_members()):
            self._has_found_topics = is_met_within(EXPRESSION_WAIT_S, self._is_any_found)

    def _described_members(self) -> list[Any]:
        described = self._connection.ask(ConsumerGroupDescribeRequest(group_ids=[self._group_id]), 1)
        return [member for group in described.groups for member in group.members]

    def _is_any_found(self) -> bool:
        return any("RegularExpression" in key for key in self._coordinator.records(self._group_id))

    def _epoch(self, name: str, epoch: Epoch) -> int:
        if name in self._classic_members:
            return self._classic_members[name].epoch(epoch)
        member = self._members.setdefault(name, _Member())
        if epoch is Epoch.PRESENT:
            return member.epoch
        return member.previous_epoch if epoch is Epoch.PREVIOUS else _EPOCHS[epoch]

    def _owned(self, member: _Member, owned: Owned) -> list[HeartbeatTopicPartitions] | None:
        match owned:
            case Owned.NOTHING:
                return []
            case Owned.ASSIGNED:
                return member.owned
            case Owned.BEFORE:
                return member.owned_before
            case Owned.FOREIGN:
                ids = {name: topic_id for topic_id, name in self._coordinator.topic_names.items()}
                return [
                    HeartbeatTopicPartitions(topic_id=ids[self._topic("c")], partitions=[0, 1]),
                    HeartbeatTopicPartitions(topic_id=bytes(range(16)), partitions=[0]),
                ]
        return None

    def _classic(self, step: Any) -> ClassicMember:
        return self._classic_members.setdefault(step.member, ClassicMember())

    def _join(self, step: steps.ClassicJoin) -> Any:
        answer = self._classic(step).join(self._connection, self._group_id, step, [self._topic(name) for name in step.topics])
        if answer.error_code == 0:
            self._await_expressions()
        return answer

    def _beat_classic(self, step: steps.ClassicBeat) -> Any:
        """The answer, and whether the group is a KIP-848 group of such members alone."""
        is_alone = {member.member_type for member in self._described_members()} == {CLASSIC_PROTOCOL}
        return {"heartbeat": self._classic(step).beat(self._connection, self._group_id, step), "is_alone": is_alone}

    def _member_id(self, name: str) -> str:
        return self._classic_members[name].member_id if name in self._classic_members else name

    # Offsets.

    def _commit(self, step: steps.Commit) -> Any:
        partition = OffsetCommitRequestPartition(
            partition_index=step.partition, committed_offset=step.offset, committed_metadata=step.metadata
        )
        topic = OffsetCommitRequestTopic(name=self._topic(step.topic), topic_id=self._topic_id(step.topic), partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=self._epoch(step.member, step.epoch) if step.member else -1,
            member_id=self._member_id(step.member),
            group_instance_id=step.instance_id,
            topics=[topic],
        )
        return self._connection.ask(request, step.version)

    def _fetch_offsets(self, step: steps.FetchOffsets) -> Any:
        if step.version < 8:
            old = None
            if step.topics is not None:
                old = [OffsetFetchRequestTopic(name=self._topic(name), partition_indexes=EVERY_PARTITION) for name in step.topics]
            return self._connection.ask(OffsetFetchRequest(group_id=self._group_id, topics=old), step.version)
        topics = None
        if step.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=self._topic(name), topic_id=self._topic_id(name), partition_indexes=EVERY_PARTITION)
                for name in step.topics
            ]
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=None if step.member is None else self._member_id(step.member),
            member_epoch=-1 if step.member is None else self._epoch(step.member, step.epoch),
            topics=topics,
        )
        return self._connection.ask(OffsetFetchRequest(groups=[group]), step.version)

    def _delete_offsets(self, step: steps.DeleteOffsets) -> Any:
        partitions = [OffsetDeleteRequestPartition(partition_index=step.partition)]
        topics = [OffsetDeleteRequestTopic(name=self._topic(step.topic), partitions=partitions)]
        return self._connection.ask(OffsetDeleteRequest(group_id=self._group_id, topics=topics), 0)

    # What others see.

    def describe(self) -> Any:
        ask, group_id = self._connection.ask, self._group_id
        resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configuration_keys=None)
        return self._plain(
            {
                "group": ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1),
                "classic": ask(DescribeGroupsRequest(groups=[group_id]), 6),
                "listed": [group for group in ask(ListGroupsRequest(), 5).groups if group.group_id == group_id],
                "configs": ask(DescribeConfigsRequest(resources=[resource]), 4),
            }
        )

    def log(self) -> Any:
        return self._plain(dict(sorted(self._coordinator.records(self._group_id).items())), left_out=TIMES_AND_HASHES)

    def _plain(self, answer: Any, **options: Any) -> Any:
        names = {
            member_id: f"{name} {number}"
            for name, member in self._classic_members.items()
            for number, member_id in enumerate(member.ids, 1)
        }
        return plain(answer, names={**self._coordinator.topic_names, **names}, **options)

    # Topics.

    def _topic(self, name: str) -> str:
        return f"{self._group_id}-{name}"

    def _topic_id(self, name: str) -> bytes:
        """Of the newest of that name; one that nobody has where there was never any."""
        found = [topic_id for topic_id, known in self._coordinator.topic_names.items() if known == self._topic(name)]
        return found[-1] if found else bytes(range(16))
