"""The lines that StandardAuthorizerTest expects."""

from __future__ import annotations

import pytest

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.audit import audit_message
from broker.security.authorizer.decision import DEFAULT_ALLOW, DEFAULT_DENY, SUPER_USER, Decision
from tests.broker.security.authorizer.room import ALLOW, DENY, PREFIXED, READ, TOPIC


def line(decision: Decision, name: str) -> str:
    return audit_message(
        decision,
        principal="User:bob",
        host="127.0.0.1",
        operation=AclOperation.READ,
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        request="Fetch",
    )


def test_denial() -> None:
    decision = Decision(False, Acl(TOPIC, "alp", PREFIXED, "User:bob", "*", READ, DENY))

    assert line(decision, "alpha") == (
        "Principal = User:bob is Denied operation = READ from host = 127.0.0.1 on resource = Topic:LITERAL:alpha for request = Fetch "
        "with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=alp, patternType=PREFIXED, "
        "principal=User:bob, host=*, operation=READ, permissionType=DENY])"
    )


def test_permission() -> None:
    decision = Decision(True, Acl(TOPIC, "green", PREFIXED, "User:bob", "*", READ, ALLOW))

    assert line(decision, "green1") == (
        "Principal = User:bob is Allowed operation = READ from host = 127.0.0.1 on resource = Topic:LITERAL:green1 for request = Fetch "
        "with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=green, patternType=PREFIXED, "
        "principal=User:bob, host=*, operation=READ, permissionType=ALLOW])"
    )


@pytest.mark.parametrize(
    ("decision", "verb", "rule"),
    [(SUPER_USER, "Allowed", "SuperUser"), (DEFAULT_ALLOW, "Allowed", "DefaultAllow"), (DEFAULT_DENY, "Denied", "DefaultDeny")],
)
def test_rules_that_are_no_acl(decision: Decision, verb: str, rule: str) -> None:
    assert line(decision, "a").startswith(f"Principal = User:bob is {verb} ")
    assert line(decision, "a").endswith(f" based on rule {rule}")
