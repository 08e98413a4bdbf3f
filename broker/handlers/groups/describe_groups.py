"""DescribeGroups (key 15): state and members of classic groups.

Serves v0–v6.

Behaviour:
- Only a stable group has metadata and a protocol: before, no protocol is chosen.
- A group that does not exist is in state Dead. GROUP_AUTHORIZATION_FAILED without DESCRIBE on it.
- A group named twice is answered twice, as by Kafka. Groups that do not fit into an answer's size are POLICY_VIOLATION.

Version notes:
- v3: authorized_operations, if requested. v4: static members.
- v6: a group that does not exist is GROUP_ID_NOT_FOUND as well, with a message (KIP-1043).

Not done: groups of other types. They are answered as not found, as by Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.groups.classic.classic_group import GroupState
from broker.groups.coordinator import GroupCoordinator
from broker.groups.descriptions import GroupDescription, MemberDescription
from broker.handlers.services import Handler, Services
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns, make_in_turns
from broker.network.answer_size import AnswerSize
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

VERSION_GROUP_ID_NOT_FOUND = 6
MEMBER_BYTES = 200  # of a member's ids and addresses in an answer, roughly


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: DescribeGroupsRequest) -> Any:
        return at_once_or_in_turns(_answer(context, request), IDS_AT_ONCE)

    def _answer(context: RequestContext, request: DescribeGroupsRequest) -> Work:
        access = context.access
        answered: dict[str, tuple[DescribedGroup, int]] = {}
        groups = []
        size = AnswerSize()
        for group_id in request.groups:
            if group_id not in answered:
                refusal = access.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
                if refusal:
                    answered[group_id] = DescribedGroup(group_id=group_id, error_code=refusal), 0
                else:
                    answered[group_id] = yield from _describe(coordinator, group_id, context.api_version)
            group, size_bytes = answered[group_id]
            try:
                size.take(size_bytes)
            except KafkaError as e:
                group = DescribedGroup(group_id=group_id, error_code=e.code, error_message=e.message)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = access.authorized_operations(ResourceType.GROUP, group_id)
            groups.append(group)
            yield
        return DescribeGroupsResponse(groups=groups)

    return handle


def error_response(request: DescribeGroupsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: DescribeGroupsRequest, error: KafkaError) -> Generator[None, None, DescribeGroupsResponse]:
    groups = yield from make_in_turns(lambda group_id: DescribedGroup(group_id=group_id, error_code=error.code), request.groups)
    return DescribeGroupsResponse(groups=groups)


def _describe(coordinator: GroupCoordinator, group_id: str, api_version: int) -> Generator[None, None, tuple[DescribedGroup, int]]:
    """Returns the answer for one group, and the number of its bytes that grow with the members."""
    try:
        group: GroupDescription | None = yield from coordinator.describe(group_id)
    except KafkaError as e:
        return DescribedGroup(group_id=group_id, error_code=e.code), 0
    if group is not None:
        return (yield from _described(group))
    if api_version < VERSION_GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value), 0
    not_found = DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {'is not a classic group' if coordinator.is_consumer_group(group_id) else 'not found'}.",
    )
    return not_found, 0


def _described(group: GroupDescription) -> Generator[None, None, tuple[DescribedGroup, int]]:
    described = DescribedGroup(
        group_id=group.group_id, group_state=group.state.value, protocol_type=group.protocol_type, protocol_data=group.protocol
    )
    described.members = yield from make_in_turns(_member, group.members)
    return described, sum(MEMBER_BYTES + len(member.metadata) + len(member.assignment) for member in group.members)


def _member(member: MemberDescription) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
