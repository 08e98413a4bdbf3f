"""Cases of Kafka's BaseAuthorizerTest: may a principal do something to at least one resource of a type?"""

from __future__ import annotations

import pytest

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from tests.broker.security.authorizer.room import (
    ALL,
    ALLOW,
    CLUSTER,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    store_of,
)

HOST, OTHER_HOST = "192.168.1.1", "192.168.1.2"


def may(
    acls: list[Acl], operation: int, kind: int, *, user: str = "user1", host: str = HOST, is_allowed_without_acls: bool = False
) -> bool:
    authorizer = StandardAuthorizer(store_of(acls), is_allowed_without_acls=is_allowed_without_acls)
    authorizer.is_loaded = True
    return authorizer.authorize_by_type(f"User:{user}", host, operation, kind).is_allowed


def acl(
    permission: int,
    name: str,
    operation: int = READ,
    kind: int = TOPIC,
    *,
    pattern: int = LITERAL,
    user: str = "user1",
    host: str = HOST,
) -> Acl:
    return Acl(kind, name, pattern, f"User:{user}", host, operation, permission)


def test_denial_of_the_only_topic_counts_as_long_as_it_is_there() -> None:
    acls: list[Acl] = []
    seen = [may(acls, READ, TOPIC)]
    for change in (acl(ALLOW, "sb1"), acl(DENY, "sb1")):
        acls.append(change)
        seen.append(may(acls, READ, TOPIC))

    assert seen == [False, True, False]
    assert may(acls[:1], READ, TOPIC)


def test_denials_of_others_and_elsewhere_take_nothing_away() -> None:
    acls = [
        acl(DENY, "sb1"),
        acl(DENY, "sb1", user="user2"),
        acl(DENY, "sb1", WRITE, host=OTHER_HOST),
        acl(DENY, "sb2", host=OTHER_HOST),
        acl(DENY, "s", kind=GROUP, pattern=PREFIXED, host=OTHER_HOST),
        acl(DENY, "sb1", user="user2", host=OTHER_HOST),
        acl(ALLOW, "sb1", host=OTHER_HOST),
    ]

    assert [may(acls, READ, kind) for kind in (TOPIC, GROUP, ResourceType.TRANSACTIONAL_ID, CLUSTER)] == [False] * 4
    assert may(acls, READ, TOPIC, host=OTHER_HOST)


def test_denied_prefix_takes_what_is_allowed_below_it() -> None:
    steps = [(ALLOW, "abcde", True), (DENY, "abcd", False), (ALLOW, "abc", True), (DENY, "a", False), (ALLOW, "ab", False)]
    acls: list[Acl] = []
    for permission, name, expected in steps:
        acls.append(acl(permission, name, kind=GROUP, pattern=PREFIXED))

        assert may(acls, READ, GROUP) is expected, name


def test_denied_literal_takes_a_literal_and_no_prefix() -> None:
    assert not may([acl(ALLOW, "a"), acl(DENY, "a")], READ, TOPIC)
    assert may([acl(ALLOW, "a", pattern=PREFIXED), acl(DENY, "a")], READ, TOPIC)
    assert not may([acl(ALLOW, "a"), acl(DENY, "a", pattern=PREFIXED)], READ, TOPIC)


def test_denied_wildcard_takes_all() -> None:
    acls = [acl(ALLOW, "hello", WRITE, GROUP, pattern=PREFIXED)]
    assert may(acls, WRITE, GROUP)

    for added in (acl(DENY, "*", WRITE, GROUP), acl(ALLOW, "*", WRITE, GROUP), acl(ALLOW, "aloha", WRITE, GROUP)):
        acls.append(added)
        assert not may(acls, WRITE, GROUP)


def test_allowed_wildcard_is_enough() -> None:
    assert may([acl(ALLOW, "*"), acl(DENY, "a", pattern=PREFIXED)], READ, TOPIC)


def test_operation_all() -> None:
    acls = [acl(DENY, "sb1", WRITE), acl(ALLOW, "sb1", ALL)]
    assert may(acls, READ, TOPIC) and not may(acls, WRITE, TOPIC)

    assert not may([*acls, acl(DENY, "sb1", ALL)], READ, TOPIC)


def test_no_operation_implies_another_here() -> None:
    assert not may([acl(ALLOW, "sb1", READ)], DESCRIBE, TOPIC)


def test_name_that_stands_for_all_is_asked_first() -> None:
    """Kafka asks for a topic named "hardcode", so that super users and allow.everyone.if.no.acl.found count."""
    assert may([], WRITE, TOPIC, is_allowed_without_acls=True)
    assert not may([acl(ALLOW, "hardcode", user="user2")], WRITE, TOPIC, is_allowed_without_acls=True)


def test_all_hosts() -> None:
    acls = [acl(ALLOW, "sb1")]
    seen = []
    for added in (acl(DENY, "sb1", host="*"), acl(DENY, "sb2"), acl(ALLOW, "sb2", host="*"), acl(DENY, "sb2", host="*")):
        acls.append(added)
        seen.append((may(acls, READ, TOPIC), may(acls, READ, TOPIC, host=OTHER_HOST)))

    assert seen == [(False, False), (False, False), (False, True), (False, False)]


def test_all_principals() -> None:
    acls = [acl(ALLOW, "sb1")]
    seen = []
    for added in (acl(DENY, "sb1", user="*"), acl(DENY, "sb2"), acl(ALLOW, "sb2", user="*"), acl(DENY, "sb2", user="*")):
        acls.append(added)
        seen.append((may(acls, READ, TOPIC), may(acls, READ, TOPIC, user="user2")))

    assert seen == [(False, False), (False, False), (False, True), (False, False)]


@pytest.mark.parametrize(
    ("operation", "kind", "message"),
    [
        (READ, ResourceType.ANY, "Must specify a non-filter resource type"),
        (READ, ResourceType.UNKNOWN, "Unknown resource type"),
        (AclOperation.ANY, TOPIC, "Must specify a non-filter operation type"),
        (AclOperation.UNKNOWN, TOPIC, "Unknown operation type"),
    ],
)
def test_codes_of_filters_are_refused(operation: int, kind: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        may([], operation, kind)
