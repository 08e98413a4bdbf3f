"""What classic consumers tell each other through their group's coordinator: their subscriptions, and the leader's assignment.

Two assignors, as Java has them: "range", whose members give everything up before they join, and "cooperative-sticky" (KIP-429), whose
members keep what they have. There a partition changes hands in two generations: the leader gives it to nobody while anyone claims it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.messages.join_group import JoinGroupResponseMember
from protocol.messages.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.messages.sync_group import SyncGroupRequestAssignment
from tests.simulation.history import Key

RANGE, COOPERATIVE = "range", "cooperative-sticky"
SUBSCRIPTION_VERSIONS = (1, 2, 3)


def encode_subscription(version: int, topics: Iterable[str], owned: Iterable[Key], generation: int) -> bytes:
    """A member's metadata in JoinGroup."""
    owned_partitions = _by_topic(owned)
    subscription = ConsumerProtocolSubscription(topics=sorted(topics), owned_partitions=owned_partitions, generation_id=generation)
    return encode_with_version(subscription, version)


def assigned_keys(assignment: bytes) -> list[Key]:
    """What SyncGroup gives a member: nothing if there are no bytes."""
    if not assignment:
        return []
    return [(topic.topic, partition) for topic in decode_assignment(assignment).assigned_partitions for partition in topic.partitions]


def assign(protocol_name: str, members: Sequence[JoinGroupResponseMember], keys: Sequence[Key]) -> list[SyncGroupRequestAssignment]:
    """What the leader gives each member, as `protocol_name` does it; `keys` are all partitions of all topics."""
    subscriptions = {member.member_id: decode_subscription(member.metadata) for member in members}
    shares: dict[str, list[Key]] = {member_id: [] for member_id in subscriptions}
    for topic in sorted({topic for topic, _ in keys}):
        readers = sorted(member_id for member_id, subscription in subscriptions.items() if topic in subscription.topics)
        partitions = sorted(key for key in keys if key[0] == topic)
        for index, reader in enumerate(readers):
            first, end = (len(partitions) * each // len(readers) for each in (index, index + 1))
            shares[reader] += partitions[first:end]
    if protocol_name == COOPERATIVE:
        claims = {member_id: _keys_of(subscription.owned_partitions) for member_id, subscription in subscriptions.items()}
        shares = {
            member_id: [key for key in share if not any(key in claimed for other, claimed in claims.items() if other != member_id)]
            for member_id, share in shares.items()
        }
    versions = {member.member_id: version_of(member.metadata) for member in members}
    return [
        SyncGroupRequestAssignment(
            member_id=member_id,
            assignment=encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_by_topic(share)), versions[member_id]),
        )
        for member_id, share in shares.items()
    ]


def _by_topic(keys: Iterable[Key]) -> list[TopicPartition]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        topics.setdefault(topic, []).append(partition)
    return [TopicPartition(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def _keys_of(topics: Iterable[TopicPartition]) -> set[Key]:
    return {(topic.topic, partition) for topic in topics for partition in topic.partitions}
