"""DescribeGroups (key 15): state and members of classic groups.

Serves v0–v6.

Behaviour:
- Metadata and protocol only of a stable group: before that nothing is chosen yet.
- A group that does not exist is in state Dead.

Version notes:
- v3: authorized_operations when asked for; everything is allowed as long as there is no authorizer. v4: static members.
- v6: a group that does not exist is GROUP_ID_NOT_FOUND as well, with a message (KIP-1043).

Not done: groups of other types.
"""

from __future__ import annotations

from broker.context import Handler, RequestContext, Services
from broker.groups.classic_group import ClassicGroup, GroupState
from broker.groups.coordinator import GroupCoordinator
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

VERSION_GROUP_ID_NOT_FOUND = 6
ALL_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, by their AclOperation codes."""


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        groups = [_describe(coordinator, group_id, context.api_version) for group_id in request.groups]
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = ALL_GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    return handle


def error_response(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=group_id, error_code=error.code) for group_id in request.groups])


def _describe(coordinator: GroupCoordinator, group_id: str, api_version: int) -> DescribedGroup:
    try:
        group = coordinator.find_group(group_id)
    except KafkaError as e:
        return DescribedGroup(group_id=group_id, error_code=e.code)
    if group is not None:
        return _described(group)
    if api_version < VERSION_GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
    )


def _described(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
