"""ACLs and filters as values. Cases of ResourcePatternFilterTest and AclBindingTest are Kafka's."""

from __future__ import annotations

import pytest

from broker.security.authorizer.acl import Acl, AclFilter, acl_of_record
from broker.security.authorizer.acl_codes import AclOperation, AclPermissionType, PatternType, ResourceType, known, pascal_case
from tests.broker.security.authorizer.room import ALLOW, DENY, GROUP, KAFKA_S_ACLS, LITERAL, PREFIXED, READ, TOPIC, WRITE

ACL = Acl(TOPIC, "alp", PREFIXED, "User:bob", "*", READ, DENY)


@pytest.mark.parametrize(("acl_id", "acl"), KAFKA_S_ACLS.items())
def test_acl_is_the_same_after_it_was_a_record(acl_id: bytes, acl: Acl) -> None:
    record = acl.to_record(acl_id)

    assert record.id == acl_id
    assert acl_of_record(record) == acl


def test_acl_prints_as_java_prints_it() -> None:
    assert str(ACL) == (
        "StandardAcl[resourceType=TOPIC, resourceName=alp, patternType=PREFIXED, principal=User:bob, host=*, operation=READ, "
        "permissionType=DENY]"
    )
    assert "operation=UNKNOWN" in str(ACL._replace(operation=16))


@pytest.mark.parametrize(
    ("member", "name"),
    [
        (ResourceType.TRANSACTIONAL_ID, "TransactionalId"),
        (ResourceType.TOPIC, "Topic"),
        (AclOperation.TWO_PHASE_COMMIT, "TwoPhaseCommit"),
        (AclPermissionType.ALLOW, "Allow"),
    ],
)
def test_names_in_pascal_case(member: ResourceType, name: str) -> None:
    assert pascal_case(member) == name


def test_undeclared_codes_are_unknown() -> None:
    assert known(AclOperation, 15) is AclOperation.TWO_PHASE_COMMIT
    assert known(AclOperation, 16) is AclOperation.UNKNOWN
    assert known(ResourceType, -1) is ResourceType.UNKNOWN


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (AclFilter(), True),
        (AclFilter(TOPIC), True),
        (AclFilter(GROUP), False),
        (AclFilter(TOPIC, None, PREFIXED), True),
        (AclFilter(TOPIC, None, LITERAL), False),
        (AclFilter(TOPIC, "alp", PREFIXED), True),
        (AclFilter(TOPIC, "alp"), True),
        (AclFilter(TOPIC, "alpha"), False),  # ANY compares the pattern's own name
        (AclFilter(TOPIC, "alpha", PREFIXED), False),
        (AclFilter(TOPIC, "alpha", PatternType.MATCH), True),
        (AclFilter(TOPIC, "alp", PatternType.MATCH), True),
        (AclFilter(TOPIC, "al", PatternType.MATCH), False),
        (AclFilter(TOPIC, None, PatternType.MATCH), True),
        (AclFilter(TOPIC, "", PatternType.MATCH), False),
        (AclFilter(TOPIC, None, PatternType.UNKNOWN), False),
        (AclFilter(9, "alp"), False),
        (AclFilter(principal="User:bob"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), True),
        (AclFilter(host="10.0.0.1"), False),  # a host filter compares too: the wildcard does not match an address
        (AclFilter(operation=READ), True),
        (AclFilter(operation=WRITE), False),
        (AclFilter(operation=AclOperation.UNKNOWN), False),
        (AclFilter(permission_type=DENY), True),
        (AclFilter(permission_type=ALLOW), False),
    ],
)
def test_filter_selects_a_prefixed_acl(pattern: AclFilter, expected: bool) -> None:
    assert pattern.matches(ACL) is expected


@pytest.mark.parametrize(
    ("pattern_type", "name", "expected"),
    [
        (PatternType.MATCH, "anything", True),
        (PatternType.MATCH, "*", True),
        (PatternType.ANY, "anything", False),
        (PatternType.LITERAL, "anything", False),
        (PatternType.LITERAL, "*", True),
        (PatternType.PREFIXED, "*", False),
    ],
)
def test_only_match_takes_the_wildcard_for_every_name(pattern_type: int, name: str, expected: bool) -> None:
    wildcard = Acl(TOPIC, "*", LITERAL, "User:bob", "*", READ, ALLOW)

    assert AclFilter(TOPIC, name, pattern_type).matches(wildcard) is expected


@pytest.mark.parametrize(
    ("acl_filter", "pattern", "entry"),
    [
        (AclFilter(), False, False),
        (AclFilter(TOPIC, "x", PatternType.MATCH, "User:a", "*", READ, ALLOW), False, False),
        (AclFilter(0), True, False),
        (AclFilter(8), True, False),
        (AclFilter(pattern_type=5), True, False),
        (AclFilter(operation=16), False, True),
        (AclFilter(permission_type=4), False, True),
    ],
)
def test_filter_knows_its_undeclared_codes(acl_filter: AclFilter, pattern: bool, entry: bool) -> None:
    assert (acl_filter.has_unknown_pattern, acl_filter.has_unknown_entry) == (pattern, entry)
