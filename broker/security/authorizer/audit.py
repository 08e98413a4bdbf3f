"""The line of Kafka's authorizer log about a decision (logger kafka.authorizer.logger).

Kafka logs a denial at INFO; a right that was granted at DEBUG; at TRACE what only filters an answer or tells authorized operations. Which
is which the caller knows.

Source: StandardAuthorizerData.buildAuditMessage.
"""

from __future__ import annotations

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation, PatternType, ResourceType, pascal_case
from broker.security.authorizer.decision import Decision


def audit_message(
    decision: Decision,
    *,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    resource_name: str,
    request: str,
    reference_count: int = 1,
) -> str:
    """Returns the line. `request` is the API's name, such as Fetch; `reference_count` says how often the request names the resource. The
    names are as the peer sent them, line breaks included: what writes the log has to escape them."""
    rule = f"MatchingAcl(acl={decision.rule})" if isinstance(decision.rule, Acl) else decision.rule
    return (
        f"Principal = {principal} is {'Allowed' if decision.is_allowed else 'Denied'} operation = {operation.name} "
        f"from host = {host} on resource = {pascal_case(resource_type)}:{PatternType.LITERAL.name}:{resource_name} "
        f"for request = {request} with resourceRefCount = {reference_count} based on rule {rule}"
    )
