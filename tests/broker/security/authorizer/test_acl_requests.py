from __future__ import annotations

from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_codes import AclOperation, AclPermissionType, PatternType, ResourceType
from broker.security.authorizer.acl_requests import acl_of, described, filter_of
from protocol.messages.create_acls import AclCreation
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.security.authorizer.room import ALL, ALLOW, DENY, GROUP, LITERAL, PREFIXED, READ, TOPIC, store_of
from tests.support.turns import run

ACL = Acl(TOPIC, "topic-1", LITERAL, "User:user", "10.0.0.1", ALL, ALLOW)


def test_fields_of_a_creation_are_those_of_the_acl() -> None:
    creation = AclCreation(
        resource_type=5,
        resource_name="name",
        resource_pattern_type=4,
        principal="User:user",
        host="10.0.0.1",
        operation=15,
        permission_type=2,
    )

    assert acl_of(creation) == Acl(
        resource_type=ResourceType.TRANSACTIONAL_ID,
        resource_name="name",
        pattern_type=PREFIXED,
        principal="User:user",
        host="10.0.0.1",
        operation=AclOperation.TWO_PHASE_COMMIT,
        permission_type=AclPermissionType.DENY,
    )


def test_fields_of_a_request_are_those_of_the_filter() -> None:
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=2,
        principal_filter="User:user",
        host_filter=None,
        operation=1,
        permission_type=3,
    )

    assert filter_of(request) == AclFilter(pattern_type=PatternType.MATCH, principal="User:user", permission_type=ALLOW)


def test_description_is_by_pattern_and_has_each_rule_once() -> None:
    store = store_of([ACL, ACL._replace(operation=READ), ACL._replace(resource_type=GROUP, permission_type=DENY), ACL])

    (topic, group), _ = run(described(store, AclFilter()))

    assert (topic.resource_type, topic.resource_name, topic.pattern_type) == (TOPIC, "topic-1", LITERAL)
    assert [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in topic.acls] == [
        ("User:user", "10.0.0.1", ALL, ALLOW),
        ("User:user", "10.0.0.1", READ, ALLOW),
    ]
    assert (group.resource_type, len(group.acls)) == (GROUP, 1)
    assert run(described(store, AclFilter(operation=16)))[0] == []
