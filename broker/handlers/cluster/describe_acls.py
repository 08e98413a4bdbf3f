"""DescribeAcls (key 29): list access rules. Serves v1–v3.

Behaviour: SECURITY_DISABLED, because there is no authorizer. A request with the code for "unknown" closes the connection.

Source: AclApis.handleDescribeAcls.
"""

from __future__ import annotations

from broker.handlers.services import ControllerServices, Handler, Services
from broker.network.context import RequestContext
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

UNKNOWN = 0


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
        check_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker")

    return handle


def check_known(*codes: int) -> None:
    """Raises DecodeError for a kind, pattern, operation or permission that the client itself does not know."""
    if UNKNOWN in codes:
        raise DecodeError("an ACL of an unknown kind")
