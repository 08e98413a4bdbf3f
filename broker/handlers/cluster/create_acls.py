"""CreateAcls (key 30): add access rules. Serves v1–v3.

Behaviour: SECURITY_DISABLED for each rule, because there is no authorizer. A request with the code for "unknown" closes the connection.

Source: AclApis.handleCreateAcls.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.cluster.describe_acls import check_known
from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

NO_AUTHORIZER = "No Authorizer is configured."


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: CreateAclsRequest) -> Any:
        for rule in request.creations:
            check_known(rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type)
        results = [AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.creations]
        return in_turns_if_many(CreateAclsResponse(results=results), [results])

    return handle
