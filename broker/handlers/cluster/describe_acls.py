"""DescribeAcls (key 29): list access rules. Serves v1–v3.

Behaviour:
- The rules that the filter selects, by resource pattern, each rule once; as this node knows them.
- SECURITY_DISABLED without an authorizer. A request with the code for "unknown" closes the connection.

Source: AclApis.handleDescribeAcls.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.acl_requests import described, filter_of
from broker.security.authorizer.acl_store import AclStore
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

UNKNOWN = 0


def build(services: Services | ControllerServices) -> Handler:
    acls = None if services.authorizer is None else services.authorizer.acls

    def handle(context: RequestContext, request: DescribeAclsRequest) -> Any:
        check_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
        if acls is None:
            return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker")
        return at_once_or_in_turns(_answer(acls, request))

    return handle


def _answer(acls: AclStore, request: DescribeAclsRequest) -> Work:
    return DescribeAclsResponse(resources=(yield from described(acls, filter_of(request))))


def check_known(*codes: int) -> None:
    """Raises DecodeError for a kind, pattern, operation or permission that the client itself does not know."""
    if UNKNOWN in codes:
        raise DecodeError("an ACL of an unknown kind")
