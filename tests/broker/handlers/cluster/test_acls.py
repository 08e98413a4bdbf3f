"""DescribeAcls, CreateAcls and DeleteAcls while there is no authorizer: Kafka's refusals, in Kafka's words."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.controller.authorized_controller import AuthorizedController
from broker.handlers.cluster import create_acls, delete_acls, describe_acls
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.metadata.room import open_room
from tests.support.services import request_context, services
from tests.support.turns import finished

KIND = {"operation": 3, "permission_type": 3}


def ask(module: ModuleType, request: Any) -> Any:
    return finished(module.build(services())(request_context(29, 3), request))


async def refused(module: ModuleType, root: Path, api_key: int, request: Any) -> Any:
    """The answer of a node without an authorizer."""
    room = await open_room(root)
    try:
        controller: Any = AuthorizedController(room.local, has_authorizer=False)
        with pytest.raises(KafkaError) as error:
            await module.build(services(controller=controller))(request_context(api_key, 3), request)
        return finished(module.error_response(request, error.value))
    finally:
        await room.close()


def test_rules_are_not_described() -> None:
    response = ask(describe_acls, DescribeAclsRequest(resource_type_filter=2, **KIND))

    assert (response.error_code, response.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )


async def test_each_new_rule_is_refused(tmp_path: Path) -> None:
    response = await refused(
        create_acls, tmp_path, 30, CreateAclsRequest(creations=[AclCreation(resource_type=2, resource_name="t", **KIND)] * 2)
    )

    assert [(result.error_code, result.error_message) for result in response.results] == [
        (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    ] * 2


async def test_each_filter_is_refused(tmp_path: Path) -> None:
    response = await refused(delete_acls, tmp_path, 31, DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2, **KIND)] * 2))

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
