"""ACLs in a store, replayed from the records that the controller would write."""

from __future__ import annotations

from collections.abc import Sequence

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import WILDCARD, AclOperation, AclPermissionType, PatternType, ResourceType
from broker.security.authorizer.acl_store import AclStore
from protocol.uuids import uuid_from_text

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, ALTER, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)

KAFKA_S_ACLS = {
    uuid_from_text("QZDDv-R7SyaPgetDPGd0Mw"): Acl(CLUSTER, "kafka-cluster", LITERAL, "User:*", WILDCARD, ALTER, ALLOW),
    uuid_from_text("SdDjEdlbRmy2__WFKe3RMg"): Acl(TOPIC, "foo_", PREFIXED, "User:*", WILDCARD, READ, ALLOW),
    uuid_from_text("wQzt5gkSTwuQNXZF5gIw7A"): Acl(GROUP, "mygroup", LITERAL, "User:foo", WILDCARD, READ, DENY),
    uuid_from_text("ab_5xjJXSbS1o5jGfhgQXg"): Acl(GROUP, "mygroup", PREFIXED, "User:foo", WILDCARD, READ, DENY),
    uuid_from_text("wP_cCK0LTEGSX9oDRInJHQ"): Acl(GROUP, "foo", PREFIXED, "User:foo", WILDCARD, READ, DENY),
}
"""The TEST_ACLS of StandardAclTest and StandardAclWithIdTest."""


def store_of(acls: Sequence[Acl]) -> AclStore:
    """The ACLs in a store, the first under the id 0…01."""
    store = AclStore()
    for number, acl in enumerate(acls, start=1):
        store.replay(acl.to_record(number.to_bytes(16, "big")))
    return store
