"""Checks OffsetCommit and OffsetFetch of members of KIP-848 groups (ConsumerGroup.validateOffsetCommit and validateOffsetFetch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from protocol.messages.offset_commit import OffsetCommitRequest
    from protocol.messages.offset_fetch import OffsetFetchRequestGroup

COMMIT_VERSION_HAS_MEMBER_EPOCH = 9


def check_commit(group: ConsumerGroup, request: OffsetCommitRequest, api_version: int, topic_id_of: Callable[[str], bytes]) -> None:
    """KafkaError unless this member may commit all these offsets now. A request without epoch is from a simple consumer or a tool, and the
    group must have no members.

    A request with an older epoch is accepted for partitions that the member was assigned in that epoch or before (KIP-1251)."""
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return
    member = group.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not member.uses_classic_protocol and api_version < COMMIT_VERSION_HAS_MEMBER_EPOCH:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        raise _stale(member)
    for topic in request.topics:
        topic_id = topic_id_of(topic.name)
        assigned, pending = member.assigned.get(topic_id, {}), member.pending_revocation.get(topic_id, {})
        for partition in topic.partitions:
            since = assigned.get(partition.partition_index, pending.get(partition.partition_index))
            if since is None or epoch < since:
                raise _stale(member)


def check_fetch(members: Mapping[str, ConsumerGroupMember], request: OffsetFetchRequestGroup) -> None:
    """KafkaError if the request names a member that the group does not have, or has in another epoch."""
    if request.member_id is None and request.member_epoch < 0:
        return
    member = members.get(request.member_id or "")
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if request.member_epoch != member.member_epoch:
        raise _stale(member)


def _stale(member: ConsumerGroupMember) -> KafkaError:
    return KafkaError(ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH)
