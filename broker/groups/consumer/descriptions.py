"""Descriptions of KIP-848 groups for clients, by their committed state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping

from broker.coordination.timeline import Timeline
from broker.groups.consumer.group import ASSIGNMENT_EPOCH, GROUP_EPOCH, ConsumerGroup, state_of
from broker.groups.consumer.member import ConsumerGroupMember, Partitions
from broker.groups.consumer.subscriptions import most_wanted
from broker.groups.consumer.topics import GroupTopics
from broker.groups.descriptions import CONSUMER_TYPE, GroupListing
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import (
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedTopicPartitions,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def listing(group: ConsumerGroup, timeline: Timeline) -> GroupListing:
    state = state_of(timeline.committed(group.epochs), timeline.committed(group.members))
    return GroupListing(group.group_id, CONSUMER_PROTOCOL_TYPE, state.value, CONSUMER_TYPE)


def not_described(group_id: str, *, is_classic: bool) -> KafkaError:
    message = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def described(
    group: ConsumerGroup, timeline: Timeline, topics: GroupTopics, default_assignor: str
) -> Generator[None, None, DescribedConsumerGroup]:
    """Epochs, members and targets as of now. Yields between members."""
    epochs = timeline.committed(group.epochs)
    members = dict(timeline.committed(group.members))
    targets = dict(timeline.committed(group.targets))
    assignors = Counter(member.server_assignor for member in members.values() if member.server_assignor is not None)
    answer = DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=state_of(epochs, members).value,
        group_epoch=epochs[GROUP_EPOCH],
        assignment_epoch=epochs[ASSIGNMENT_EPOCH],
        assignor_name=most_wanted(assignors) or default_assignor,
    )
    for member in members.values():
        answer.members.append(_member(member, targets.get(member.member_id, {}), topics))
        yield
    return answer


def _member(member: ConsumerGroupMember, target: Partitions, topics: GroupTopics) -> DescribedConsumerMember:
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(_held(member), topics),
        target_assignment=_assignment(target, topics),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _held(member: ConsumerGroupMember) -> Mapping[bytes, Iterable[int]]:
    """The member's partitions, with those that it must revoke: it may still read them."""
    if not member.pending_revocation:
        return member.assigned
    held = {topic_id: set(partitions) for topic_id, partitions in member.assigned.items()}
    for topic_id, partitions in member.pending_revocation.items():
        held.setdefault(topic_id, set()).update(partitions)
    return held


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: GroupTopics) -> DescribedAssignment:
    """The assignment, without topics that no longer exist."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(numbers))
            for topic_id, numbers in partitions.items()
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
