"""DescribeAcls, CreateAcls and DeleteAcls while there is no authorizer: Kafka's refusals, in Kafka's words."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from broker.handlers.cluster import create_acls, delete_acls, describe_acls
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.support.services import request_context, services
from tests.support.turns import finished

KIND = {"operation": 3, "permission_type": 3}


def ask(module: ModuleType, request: Any) -> Any:
    return finished(module.build(services())(request_context(29, 3), request))


def test_rules_are_not_described() -> None:
    response = ask(describe_acls, DescribeAclsRequest(resource_type_filter=2, **KIND))

    assert (response.error_code, response.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )


def test_each_new_rule_is_refused() -> None:
    response = ask(create_acls, CreateAclsRequest(creations=[AclCreation(resource_type=2, resource_name="t", **KIND)] * 2))

    assert [(result.error_code, result.error_message) for result in response.results] == [
        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2


def test_each_filter_is_refused() -> None:
    response = ask(delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, **KIND)] * 2))

    assert [(result.error_code, result.error_message) for result in response.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2


@pytest.mark.parametrize(
    ("module", "request_"),
    [
        (describe_acls, DescribeAclsRequest(resource_type_filter=0, **KIND)),
        (create_acls, CreateAclsRequest(creations=[AclCreation(resource_type=0, **KIND)])),
        (delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, operation=0, permission_type=3)])),
    ],
)
def test_the_code_for_unknown_is_malformed(module: ModuleType, request_: Any) -> None:
    with pytest.raises(DecodeError):
        ask(module, request_)
