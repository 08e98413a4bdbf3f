"""Cases of Kafka's StandardAuthorizerTest and AuthorizerTest on our store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.decision import DEFAULT_ALLOW, DEFAULT_DENY, SUPER_USER
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import RemoveAccessControlEntryRecord
from tests.broker.security.authorizer.room import (
    ALL,
    ALLOW,
    ALTER,
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

HOST = "192.168.0.1"
CREATE, DELETE = AclOperation.CREATE, AclOperation.DELETE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
OPERATIONS = [operation for operation in AclOperation if operation > AclOperation.ANY]


def authorizer_of(*acls: Acl, is_allowed_without_acls: bool = False) -> StandardAuthorizer:
    authorizer = StandardAuthorizer(store_of(acls), super_users=["User:superman"], is_allowed_without_acls=is_allowed_without_acls)
    authorizer.is_loaded = True
    return authorizer


def answers(authorizer: StandardAuthorizer, name: str, *questions: tuple[int, int, str], host: str = HOST) -> list[bool]:
    """What `name` may do: operation, resource type, resource name."""
    return [authorizer.authorize(f"User:{name}", host, *question).is_allowed for question in questions]


def of_bob(operation: int, permission: int) -> Acl:
    return Acl(TOPIC, "foo_", PREFIXED, "User:bob", "*", operation, permission)


@pytest.mark.parametrize(("is_allowed", "topic2"), [(True, DEFAULT_ALLOW), (False, DEFAULT_DENY)])
def test_everyone_may_what_no_acl_is_about_if_so_set(is_allowed: bool, topic2: object) -> None:
    acl = Acl(TOPIC, "topic1", LITERAL, "User:Alice", "*", READ, ALLOW)
    authorizer = authorizer_of(acl, is_allowed_without_acls=is_allowed)

    assert authorizer.authorize("User:Bob", HOST, READ, TOPIC, "topic1") == DEFAULT_DENY
    assert authorizer.authorize("User:Bob", HOST, READ, TOPIC, "topic2") == topic2
    assert authorizer.authorize("User:Bob", HOST, READ, GROUP, "topic1") == topic2


@pytest.mark.parametrize(
    ("operation", "permission", "asked", "expected"),
    [
        *((operation, ALLOW, DESCRIBE, True) for operation in (DESCRIBE, READ, WRITE, DELETE, ALTER)),
        (CREATE, ALLOW, DESCRIBE, False),
        *((operation, ALLOW, DESCRIBE_CONFIGS, True) for operation in (DESCRIBE_CONFIGS, ALTER_CONFIGS)),
        (READ, ALLOW, DESCRIBE_CONFIGS, False),
        (DESCRIBE, ALLOW, READ, False),
    ],
)
def test_allowed_operation_implies_description(operation: int, permission: int, asked: int, expected: bool) -> None:
    assert answers(authorizer_of(of_bob(operation, permission)), "bob", (asked, TOPIC, "foo_bar")) == [expected]


@pytest.mark.parametrize(
    ("operation", "asked", "is_denied"),
    [
        *((operation, DESCRIBE, False) for operation in (READ, WRITE, DELETE, ALTER)),
        (DESCRIBE, DESCRIBE, True),
        (ALTER_CONFIGS, DESCRIBE_CONFIGS, False),
        (ALTER_CONFIGS, ALTER_CONFIGS, True),
    ],
)
def test_denied_operation_implies_nothing(operation: int, asked: int, is_denied: bool) -> None:
    authorizer = authorizer_of(of_bob(operation, DENY), of_bob(ALL, ALLOW))

    assert answers(authorizer, "bob", (asked, TOPIC, "foo_bar")) == [not is_denied]


@pytest.mark.parametrize("permission", [ALLOW, DENY])
def test_all_stands_for_every_operation(permission: int) -> None:
    acl = Acl(CLUSTER, "kafka-cluster", LITERAL, "User:bob", "*", ALL, permission)
    everyone = Acl(CLUSTER, "kafka-cluster", LITERAL, "User:*", "*", ALL, ALLOW)
    authorizer = authorizer_of(acl, *([everyone] if permission == DENY else []))

    found = answers(authorizer, "bob", *((operation, CLUSTER, "kafka-cluster") for operation in OPERATIONS))

    assert found == [permission == ALLOW] * 14


def test_principals_are_compared_with_their_case() -> None:
    authorizer = authorizer_of(of_bob(READ, ALLOW), Acl(GROUP, "bar", LITERAL, "User:*", "*", READ, DENY))

    assert answers(authorizer, "bob", (READ, TOPIC, "foo_bar")) == [True]
    assert answers(authorizer, "alice", (READ, TOPIC, "foo_bar"), (READ, GROUP, "bar")) == [False, False]
    assert answers(authorizer, "Bob", (READ, TOPIC, "foo_bar")) == [False]
    assert not authorizer.authorize("Group:bob", HOST, READ, TOPIC, "foo_bar").is_allowed


def test_all_principals_are_so_of_whatever_type() -> None:
    authorizer = authorizer_of(Acl(TOPIC, "a", LITERAL, "User:*", "*", READ, ALLOW))

    assert authorizer.authorize("Service:x", HOST, READ, TOPIC, "a").is_allowed


def test_denial_comes_first_with_operation_all() -> None:
    authorizer = authorizer_of(
        Acl(TOPIC, "foo", LITERAL, "User:alice", "*", ALL, DENY),
        Acl(TOPIC, "foo", PREFIXED, "User:alice", "*", READ, ALLOW),
        Acl(TOPIC, "foo", LITERAL, "User:*", "*", ALL, DENY),
        Acl(TOPIC, "foo", PREFIXED, "User:*", "*", DESCRIBE, ALLOW),
    )
    of_foo = [(WRITE, TOPIC, "foo"), (READ, TOPIC, "foo"), (DESCRIBE, TOPIC, "foo")]

    assert answers(authorizer, "alice", *of_foo, (READ, TOPIC, "foobar")) == [False, False, False, True]
    assert answers(authorizer, "bob", *of_foo, (DESCRIBE, TOPIC, "foobaz"), (READ, TOPIC, "foobaz")) == [False, False, False, True, False]


def test_topics_with_operation_all() -> None:
    authorizer = authorizer_of(
        Acl(TOPIC, "foo", LITERAL, "User:*", "*", ALL, ALLOW),
        Acl(TOPIC, "bar", PREFIXED, "User:alice", "*", ALL, ALLOW),
        Acl(TOPIC, "baz", LITERAL, "User:bob", "*", ALL, ALLOW),
    )
    of_alice = [(WRITE, TOPIC, "foo"), (DESCRIBE_CONFIGS, TOPIC, "bar"), (DESCRIBE, TOPIC, "baz")]

    assert answers(authorizer, "alice", *of_alice) == [True, True, False]
    assert answers(authorizer, "bob", (WRITE, TOPIC, "foo"), (READ, TOPIC, "bar"), (DESCRIBE, TOPIC, "baz")) == [True, False, True]
    assert answers(authorizer, "malory", (DESCRIBE, TOPIC, "foo"), (WRITE, TOPIC, "bar"), (READ, TOPIC, "baz")) == [True, False, False]


@pytest.mark.parametrize(
    ("name", "host", "expected"),
    [
        ("alice", "127.0.0.1", [True, False, True]),
        ("alice", "192.168.1.1", [False, False, False]),
        ("alice", "192.168.1.2", [True, False, False]),
        ("bob", "127.0.0.1", [False, False, True]),
        ("bob", "192.168.1.1", [False, False, False]),
        ("bob", "192.168.1.2", [False, True, True]),
    ],
)
def test_hosts(name: str, host: str, expected: list[bool]) -> None:
    authorizer = authorizer_of(
        Acl(TOPIC, "foo", LITERAL, "User:alice", "192.168.1.1", READ, DENY),
        Acl(TOPIC, "foo", LITERAL, "User:alice", "*", READ, ALLOW),
        Acl(TOPIC, "bar", LITERAL, "User:bob", "192.168.1.2", READ, ALLOW),
        Acl(TOPIC, "bar", LITERAL, "User:*", "127.0.0.1", DESCRIBE, ALLOW),
    )

    assert answers(authorizer, name, (READ, TOPIC, "foo"), (READ, TOPIC, "bar"), (DESCRIBE, TOPIC, "bar"), host=host) == expected


MANY_ACLS = (
    Acl(TOPIC, "green2", LITERAL, "User:*", "*", READ, ALLOW),
    Acl(TOPIC, "green", PREFIXED, "User:bob", "*", READ, ALLOW),
    Acl(TOPIC, "betamax4", LITERAL, "User:bob", "*", READ, ALLOW),
    Acl(TOPIC, "betamax", LITERAL, "User:bob", "*", READ, ALLOW),
    Acl(TOPIC, "beta", PREFIXED, "User:*", "*", READ, ALLOW),
    Acl(TOPIC, "alpha", PREFIXED, "User:*", "*", READ, ALLOW),
    Acl(TOPIC, "alp", PREFIXED, "User:bob", "*", READ, DENY),
    Acl(GROUP, "*", LITERAL, "User:bob", "*", WRITE, ALLOW),
    Acl(GROUP, "wheel", LITERAL, "User:*", "*", WRITE, DENY),
)


def test_many_acls() -> None:
    questions = [
        (READ, TOPIC, "green1"),
        (WRITE, GROUP, "wheel"),
        (READ, TOPIC, "alpha"),
        (WRITE, GROUP, "arbitrary"),
        (READ, TOPIC, "ala"),
    ]

    assert answers(authorizer_of(*MANY_ACLS), "bob", *questions) == [True, False, False, True, False]


def test_prefixes() -> None:
    authorizer = authorizer_of(
        Acl(TOPIC, "fooa", PREFIXED, "User:alice", "*", ALL, ALLOW),
        Acl(TOPIC, "foobar", LITERAL, "User:bob", "*", ALL, ALLOW),
        Acl(TOPIC, "f", PREFIXED, "User:bob", "*", ALL, ALLOW),
    )

    assert answers(authorizer, "bob", (WRITE, TOPIC, "foobarr"), (READ, TOPIC, "goobar"), (READ, TOPIC, "fooa")) == [True, False, True]
    assert answers(authorizer, "alice", (DESCRIBE, TOPIC, "fooa"), (WRITE, TOPIC, "bar"), (READ, TOPIC, "baz")) == [True, False, False]


def test_single_characters() -> None:
    authorizer = authorizer_of(
        Acl(TOPIC, "f", LITERAL, "User:alice", "*", READ, ALLOW), Acl(TOPIC, "_", PREFIXED, "User:alice", "*", READ, ALLOW)
    )
    names = ["f", "foo", "_foo", "_", "foo_"]

    assert answers(authorizer, "alice", *((READ, TOPIC, name) for name in names)) == [True, False, True, True, False]


def test_wildcard_covers_every_name_and_denies_before_others_allow() -> None:
    acls = [Acl(TOPIC, "*", LITERAL, "User:alice", HOST, READ, ALLOW)]
    assert answers(authorizer_of(*acls), "alice", (READ, TOPIC, "foo"), (WRITE, TOPIC, "foo")) == [True, False]

    acls.append(Acl(TOPIC, "foo", LITERAL, "User:alice", HOST, WRITE, ALLOW))
    acls.append(Acl(TOPIC, "*", LITERAL, "User:alice", HOST, WRITE, DENY))

    assert answers(authorizer_of(*acls), "alice", (WRITE, TOPIC, "foo")) == [False]


def test_prefix_that_is_an_asterisk_is_no_wildcard() -> None:
    authorizer = authorizer_of(Acl(GROUP, "*", PREFIXED, "User:alice", "*", READ, ALLOW))

    assert answers(authorizer, "alice", (READ, GROUP, "a"), (READ, GROUP, "*a"), (READ, GROUP, "*")) == [False, True, True]


def test_group_whose_name_begins_with_an_asterisk_is_denied_with_all_groups() -> None:
    """Apache Kafka 4.3.1 lets it in: its wildcard does not cover such a name."""
    authorizer = authorizer_of(
        Acl(GROUP, "*", LITERAL, "User:alice", "*", READ, DENY), Acl(GROUP, "*", PREFIXED, "User:alice", "*", READ, ALLOW)
    )

    assert answers(authorizer, "alice", (READ, GROUP, "*a")) == [False]


def test_empty_name_is_covered_by_the_wildcard_only() -> None:
    assert answers(authorizer_of(), "alice", (READ, GROUP, "")) == [False]
    assert answers(authorizer_of(Acl(GROUP, "*", LITERAL, "User:alice", "*", READ, ALLOW)), "alice", (READ, GROUP, "")) == [True]


@pytest.mark.parametrize("kind", [TOPIC, CLUSTER, GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.USER])
def test_super_user_may_all_that_is_denied(kind: int) -> None:
    authorizer = authorizer_of(Acl(kind, "*", LITERAL, "User:*", "*", ALL, DENY))

    assert authorizer.authorize("User:superman", HOST, WRITE, kind, "x") == SUPER_USER
    assert authorizer.authorize_by_type("User:superman", HOST, WRITE, kind) == SUPER_USER


def test_code_of_a_later_kafka_allows_nothing_and_an_unknown_permission_denies() -> None:
    authorizer = authorizer_of(
        Acl(TOPIC, "a", LITERAL, "User:alice", "*", 16, ALLOW),
        Acl(TOPIC, "b", LITERAL, "User:alice", "*", READ, ALLOW),
        Acl(TOPIC, "b", LITERAL, "User:alice", "*", READ, 4),
    )

    assert answers(authorizer, "alice", (READ, TOPIC, "a"), (READ, TOPIC, "b")) == [False, False]


def test_before_the_acls_are_loaded_only_super_users_get_an_answer() -> None:
    authorizer = StandardAuthorizer(store_of(MANY_ACLS), super_users=["User:superman"], is_allowed_without_acls=True)

    for refused in (
        lambda: authorizer.authorize("User:bob", HOST, READ, TOPIC, "green1"),
        lambda: authorizer.authorize_by_type("User:bob", HOST, READ, TOPIC),
    ):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert answers(authorizer, "superman", (READ, TOPIC, "green1"), (WRITE, GROUP, "wheel")) == [True, True]

    authorizer.is_loaded = True
    assert answers(authorizer, "bob", (READ, TOPIC, "green1")) == [True]


def test_decision_falls_with_every_change_of_the_acls() -> None:
    acl = Acl(TOPIC, "a", LITERAL, "User:alice", "*", READ, ALLOW)
    store = store_of([])
    authorizer = StandardAuthorizer(store)
    authorizer.is_loaded = True
    seen: list[Sequence[bool]] = []

    def look() -> None:
        by_type = authorizer.authorize_by_type("User:alice", HOST, READ, TOPIC).is_allowed
        seen.append([*answers(authorizer, "alice", (READ, TOPIC, "a"), (DESCRIBE, TOPIC, "a")), by_type])

    look()
    store.replay(acl.to_record(bytes(16)))
    look()
    store.replay(acl._replace(permission_type=DENY).to_record(bytes(15) + b"\x01"))
    look()
    store.replay_removal(RemoveAccessControlEntryRecord(id=bytes(16)))
    store.replay_removal(RemoveAccessControlEntryRecord(id=bytes(15) + b"\x01"))
    look()
    store.become(store_of([acl]))
    look()

    assert seen == [[False] * 3, [True] * 3, [False, True, False], [False] * 3, [True] * 3]
