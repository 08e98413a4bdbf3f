"""DeleteAcls (key 31): remove access rules. Serves v1–v3.

Behaviour: SECURITY_DISABLED for each filter, because there is no authorizer. A request with the code for "unknown" closes the connection.

Source: AclApis.handleDeleteAcls.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.cluster.create_acls import NO_AUTHORIZER
from broker.handlers.cluster.describe_acls import check_known
from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: DeleteAclsRequest) -> Any:
        for rule in request.filters:
            check_known(rule.resource_type_filter, rule.pattern_type_filter, rule.operation, rule.permission_type)
        results = [DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.filters]
        return in_turns_if_many(DeleteAclsResponse(filter_results=results), [results])

    return handle
