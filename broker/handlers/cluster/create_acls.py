"""CreateAcls (key 30): add access rules. Serves v1–v3.

Behaviour:
- The active controller creates each rule or refuses it separately; one that exists is as if it had been created. The answer is sent when
  the rules are committed: all of them count from the same moment.
- INVALID_REQUEST for a rule that cannot be: a resource of type CLUSTER that is not kafka-cluster, an empty name, codes that are for filters
  or unknown, a principal without a type. POLICY_VIOLATION for all if they are more than 10,000.
- SECURITY_DISABLED for each rule without an authorizer. A request with the code for "unknown" closes the connection.

Source: AclApis.handleCreateAcls, AclControlManager.createAcls.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.cluster.describe_acls import check_known
from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def build(services: Services | ControllerServices) -> Handler:
    controller = services.controller

    def handle(context: RequestContext, request: CreateAclsRequest) -> Coroutine[Any, Any, Any]:
        for rule in request.creations:
            check_known(rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type)
        return _answered(controller.create_acls(request, context))

    return handle


async def _answered(created: Coroutine[Any, Any, CreateAclsResponse]) -> Any:
    response = await created
    return in_turns_if_many(response, [response.results])


def error_response(request: CreateAclsRequest, error: KafkaError) -> Any:
    results = [AclCreationResult(error_code=error.code, error_message=error.message) for _ in request.creations]
    return in_turns_if_many(CreateAclsResponse(results=results), [results])
