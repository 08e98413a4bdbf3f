"""LeaveGroup (key 13): members leave a classic group, or a tool removes them.

Serves v0–v5.

Behaviour:
- Removes each member named, by member id, or a static one by instance id alone; the rest of the group rebalances.
- If the group is empty afterwards, that is stored before the answer is sent.
- In a KIP-848 group members of either protocol can be named. If only members that speak the classic protocol are left, the group becomes a
classic one, as `group.consumer.migration.policy` allows.

Version notes:
- v3: a batch of members, each with its own error (KIP-345); before it the one member's error is the response's.
- v5: reasons (KIP-800).
"""

from __future__ import annotations

from typing import Any

from broker.groups.replies import gathered, mapped
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import ELEMENTS_AT_ONCE, Work
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

VERSION_BATCH = 3


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: LeaveGroupRequest) -> Any:
        context.access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        is_batch = context.api_version >= VERSION_BATCH
        if not is_batch:
            request.members = [MemberIdentity(member_id=request.member_id)]
        elif len(request.members) > ELEMENTS_AT_ONCE:
            return _leave_in_turns(request)
        try:
            response = coordinator.leave(request)
        except KafkaError as e:
            return LeaveGroupResponse(error_code=e.code)
        if is_batch:
            return response
        return mapped(response, _without_batch) if isinstance(response, Deferred) else _without_batch(response)

    def _leave_in_turns(request: LeaveGroupRequest) -> Work:
        """Handle the members in batches, each like a request of its own: waiting members get their responses at once, which takes 50 µs
        each."""
        replies: list[Deferred | LeaveGroupResponse] = []
        for start in range(0, len(request.members), ELEMENTS_AT_ONCE):
            batch = request.members[start : start + ELEMENTS_AT_ONCE]
            try:
                replies.append(coordinator.leave(LeaveGroupRequest(group_id=request.group_id, members=batch)))
            except KafkaError as e:
                return LeaveGroupResponse(error_code=e.code)
            yield
        return gathered(replies, _joined)

    return handle


def _joined(responses: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """Merges responses into one, in their order."""
    return LeaveGroupResponse(
        error_code=next((response.error_code for response in responses if response.error_code), 0),
        members=[member for response in responses for member in response.members],
    )


def _without_batch(response: LeaveGroupResponse) -> LeaveGroupResponse:
    error_code = response.error_code or next((member.error_code for member in response.members), 0)
    return LeaveGroupResponse(error_code=error_code)
