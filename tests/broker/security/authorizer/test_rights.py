"""The table of rights: complete, and of one meaning."""

from __future__ import annotations

import pytest

from broker.security.authorizer.access import REFUSALS
from broker.security.authorizer.acl_codes import ResourceType
from broker.security.authorizer.rights import CLIENT_RIGHTS, CONTROLLER_RIGHTS, NOBODY_IS_TOLD, Checker, Rights
from protocol.apis import FORWARDABLE_KEYS, ListenerKind, apis_of

TABLES = {ListenerKind.CLIENT: CLIENT_RIGHTS, ListenerKind.CONTROLLER: CONTROLLER_RIGHTS}


@pytest.mark.parametrize("kind", ListenerKind)
def test_each_api_that_is_served_has_a_line(kind: ListenerKind) -> None:
    assert {api.name for api in apis_of(kind).values()} <= TABLES[kind].keys()


def test_what_brokers_forward_is_checked_by_the_controller() -> None:
    forwarded = {api.name for api in apis_of(ListenerKind.CLIENT).values() if api.key in FORWARDABLE_KEYS}

    assert {name for name in forwarded if CLIENT_RIGHTS[name].checked_by is not Checker.CONTROLLER} == set()
    assert {name for name in forwarded if CLIENT_RIGHTS[name].cluster} == set()


@pytest.mark.parametrize("rights", [*CLIENT_RIGHTS.values(), *CONTROLLER_RIGHTS.values()])
def test_an_error_is_that_of_the_resource_or_of_what_it_stands_for(rights: Rights) -> None:
    for right in rights.named:
        assert right.error in (NOBODY_IS_TOLD, REFUSALS[right.resource], *(REFUSALS[other.resource] for other in rights.named)) or (
            right.resource is ResourceType.CLUSTER
        )
