"""Checks OffsetCommit, TxnOffsetCommit and OffsetFetch of members of KIP-848 groups.

Source: ConsumerGroup.validateOffsetCommit and validateOffsetFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
    from protocol.messages.offset_fetch import OffsetFetchRequestGroup
    from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

    CommittedTopic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic

NO_GENERATION = -1
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
    if not _may_commit(member, epoch, request.topics, topic_id_of):
        raise _stale(member)


def check_transactional_commit(group: ConsumerGroup, request: TxnOffsetCommitRequest, topic_id_of: Callable[[str], bytes]) -> None:
    """As `check_commit`, for TxnOffsetCommit: a request that names no member is from a producer of old, and not checked; the error of an
    epoch is the one that such clients know."""
    epoch = request.generation_id
    if epoch < 0 and group.is_empty:
        return
    if epoch == NO_GENERATION and not request.member_id and request.group_instance_id is None:
        return
    member = group.members.get(request.member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not _may_commit(member, epoch, request.topics, topic_id_of):
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _may_commit(member: ConsumerGroupMember, epoch: int, topics: Sequence[CommittedTopic], topic_id_of: Callable[[str], bytes]) -> bool:
    """Whether the member is in that epoch, or was assigned all these partitions in it or before."""
    if epoch >= member.member_epoch:
        return epoch == member.member_epoch
    for topic in topics:
        topic_id = topic_id_of(topic.name)
        assigned, pending = member.assigned.get(topic_id, {}), member.pending_revocation.get(topic_id, {})
        for partition in topic.partitions:
            since = assigned.get(partition.partition_index, pending.get(partition.partition_index))
            if since is None or epoch < since:
                return False
    return True


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
