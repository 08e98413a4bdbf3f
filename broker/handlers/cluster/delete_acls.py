"""DeleteAcls (key 31): remove access rules. Serves v1–v3.

Behaviour:
- The active controller deletes what each filter selects, and answers each with it. The answer is sent when that is committed.
- INVALID_REQUEST for a filter with a code that is not declared, and for all if they select more than 10,000 rules: then none is deleted.
- SECURITY_DISABLED for each filter without an authorizer. A request with the code for "unknown" closes the connection.

Source: AclApis.handleDeleteAcls, AclControlManager.deleteAcls.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.cluster.describe_acls import check_known
from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def build(services: Services | ControllerServices) -> Handler:
    controller = services.controller

    def handle(context: RequestContext, request: DeleteAclsRequest) -> Coroutine[Any, Any, Any]:
        for rule in request.filters:
            check_known(rule.resource_type_filter, rule.pattern_type_filter, rule.operation, rule.permission_type)
        return _answered(controller.delete_acls(request, context))

    return handle


async def _answered(deleted: Coroutine[Any, Any, DeleteAclsResponse]) -> Any:
    response = await deleted
    return in_turns_if_many(response, [response.filter_results, *(result.matching_acls for result in response.filter_results)])


def error_response(request: DeleteAclsRequest, error: KafkaError) -> Any:
    results = [DeleteAclsFilterResult(error_code=error.code, error_message=error.message) for _ in request.filters]
    return in_turns_if_many(DeleteAclsResponse(filter_results=results), [results])
