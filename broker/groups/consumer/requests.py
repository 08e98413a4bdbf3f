"""Checks a ConsumerGroupHeartbeat: its fields, its member and its epoch (the checks of Kafka's GroupCoordinatorService and
GroupMetadataManager). The error messages are Kafka's, because clients show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import JOIN_EPOCH, NO_PARTITIONS, STATIC_LEAVE_EPOCH, ConsumerGroupMember, Owned
from broker.groups.consumer.records import assignment_record, member_record, member_tombstones, target_record
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

if TYPE_CHECKING:
    from broker.groups.client_info import ClientInfo


def check_request(client: ClientInfo, request: ConsumerGroupHeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raise for a request that is invalid for any group (throwIfConsumerGroupHeartbeatRequestIsInvalid)."""
    epoch = request.member_epoch
    if client.api_version >= 1 or epoch > 0 or epoch == -1:
        _refuse_blank(request.member_id, "MemberId can't be empty.")
    _refuse_blank(request.group_id, "GroupId can't be empty.")
    _refuse_blank(request.instance_id, "InstanceId can't be empty.")
    _refuse_blank(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _refuse(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        _refuse(request.topic_partitions is None or bool(request.topic_partitions), "TopicPartitions must be empty when (re-)joining.")
        _refuse(
            request.subscribed_topic_names is None and request.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVE_EPOCH:
        _refuse(request.instance_id is None, "InstanceId can't be null.")
    _refuse(epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            # The order of Java's hash map.
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(sorted(assignors, reverse=True))}.",
        )


def with_request(member: ConsumerGroupMember, client: ClientInfo, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupMember:
    """The member with the request's fields. The same object if nothing changed. A null field keeps its value."""
    names = request.subscribed_topic_names
    # As Java's InetAddress.toString(), which tools show for other brokers.
    client_host = "/" + client.client_host
    if (
        # Most heartbeats change nothing. A new member would cost 4 µs.
        names is None
        and request.rebalance_timeout_ms == -1
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, member.instance_id)
        and member.client_id == client.client_id
        and member.client_host == client_host
        and member.classic is None
    ):
        return member
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=(
            member.subscribed_topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
        ),
        client_id=client.client_id,
        client_host=client_host,
        classic=None,
    )


def check_epoch(member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """FENCED_MEMBER_EPOCH unless the request has the member's epoch, or its previous epoch because the last response was lost.

    A member may join at any time, also again: a fenced client does, and so does one whose first response was lost (KAFKA-19233)."""
    received = request.member_epoch
    if received in (JOIN_EPOCH, member.member_epoch):
        return
    if (
        received < member.member_epoch
        and received == member.previous_member_epoch
        and _is_subset(request.topic_partitions, member.assigned)
    ):
        return
    comparison = "greater" if received > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({received}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: list[HeartbeatTopicPartitions] | None, assigned: Owned) -> bool:
    return owned is not None and all(
        topic.topic_id in assigned and all(partition in assigned[topic.topic_id] for partition in topic.partitions) for topic in owned
    )


def same_partitions(left: Owned, right: Owned) -> bool:
    return left is right or (left.keys() == right.keys() and all(left[topic_id].keys() == right[topic_id].keys() for topic_id in left))


def check_size(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    """GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if len(group.members) >= max_size and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


# Static members.


def known_static_member(member: ConsumerGroupMember | None, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """The member that has the instance id. Raises if there is none or its member id is another one."""
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def replace_static_member(
    group: ConsumerGroup, old: ConsumerGroupMember, member_id: str, records: list[CoordinatorRecord]
) -> ConsumerGroupMember:
    """The static member with its new member id and its old assignment. Its records are added to `records`."""
    new = old._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += [
        *member_tombstones(group.group_id, old.member_id),
        member_record(group.group_id, new),
        target_record(group.group_id, member_id, group.targets.get(old.member_id, NO_PARTITIONS)),
        assignment_record(group.group_id, new),
    ]
    return new


def _refuse(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _refuse_blank(text: str | None, message: str) -> None:
    _refuse(text is not None and not text.strip(), message)


def error_response(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    """The response to a heartbeat whose records may be lost."""
    return ConsumerGroupHeartbeatResponse(error_code=error)


def not_found(group_id: str, *, is_classic: bool) -> KafkaError:
    message = f"Group {group_id} is not a consumer group." if is_classic else f"Consumer group {group_id} not found."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
