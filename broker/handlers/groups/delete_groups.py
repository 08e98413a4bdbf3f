"""DeleteGroups (key 42): remove groups that have no members, with all their offsets.

Serves v0–v2.

Behaviour:
- Answered when the tombstones are committed in `__consumer_offsets`. A group that is named twice is answered once.
- GROUP_AUTHORIZATION_FAILED without DELETE on the group; NON_EMPTY_GROUP while it has members; GROUP_ID_NOT_FOUND. Each group has its own
  error of the coordinator.
- The empty group id is treated like any other, as in Kafka.

Version notes: v2 flexible.

Not done: share and streams groups.

Source: KafkaApis.handleDeleteGroupsRequest, GroupCoordinatorService.deleteGroups (KIP-229).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns, make_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def build(services: Services) -> Handler:
    coordinator = services.group_coordinator

    def handle(context: RequestContext, request: DeleteGroupsRequest) -> Any:
        return at_once_or_in_turns(_answer(context.access, request), IDS_AT_ONCE)

    def _answer(access: Access, request: DeleteGroupsRequest) -> Work:
        deletions = coordinator.deletions()
        response = DeleteGroupsResponse(results=[])
        written: list[tuple[DeletableGroupResult, Deferred]] = []
        for group_id in dict.fromkeys(request.groups_names):
            result = DeletableGroupResult(group_id=group_id)
            response.results.append(result)
            try:
                access.require(AclOperation.DELETE, ResourceType.GROUP, group_id)
                written.append((result, (yield from deletions.delete_group(group_id))))
            except KafkaError as error:
                result.error_code = error.code
            yield
        for result, outcome in written:
            result.error_code = yield outcome
        return response

    return handle


def error_response(request: DeleteGroupsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: DeleteGroupsRequest, error: KafkaError) -> Generator[None, None, DeleteGroupsResponse]:
    def failed(group_id: str) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)

    return DeleteGroupsResponse(results=(yield from make_in_turns(failed, request.groups_names)))
