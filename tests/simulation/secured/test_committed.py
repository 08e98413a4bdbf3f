"""The judge's replay: which states a broker had that had applied the log from one offset to another, and what they allow."""

from __future__ import annotations

from broker.security.authorizer.acl_codes import AclOperation, AclPermissionType, PatternType, ResourceType
from protocol.messages.stored.metadata_records import (
    AccessControlEntryRecord,
    NoOpRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tests.simulation.secured.accounts import SCRAM
from tests.simulation.secured.committed import CommittedSecurity, Question

QUESTION: Question = ("User:alice", "198.18.0.1", AclOperation.READ, ResourceType.TOPIC, "orders")


def acl_record(number: int, permission: AclPermissionType) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=bytes([number]) * 16, resource_type=ResourceType.TOPIC, resource_name="orders", pattern_type=PatternType.LITERAL,
        principal="User:alice", host="*", operation=AclOperation.READ, permission_type=permission,
    )  # fmt: skip


def make_history() -> CommittedSecurity:
    """Allowed from offset 10 to 20, and from 30 on."""
    history = CommittedSecurity(is_allowed_without_acls=False)
    for end_offset, records in (
        (10, [acl_record(1, AclPermissionType.ALLOW)]),
        (15, [NoOpRecord()]),
        (20, [acl_record(2, AclPermissionType.DENY)]),
        (30, [RemoveAccessControlEntryRecord(id=bytes([2]) * 16)]),
    ):
        assert history.applied(end_offset, 1, records)
    return history


def allowed(history: CommittedSecurity, first: int, last: int) -> list[bool]:
    return [state.allows(QUESTION) for state in history.between(first, last)]


def test_states_are_those_from_the_first_offset_to_the_last() -> None:
    history = make_history()

    assert allowed(history, 9, 9) == [False]
    assert allowed(history, 10, 19) == [True]
    assert allowed(history, 19, 20) == [True, False]
    assert allowed(history, 20, 29) == [False]
    assert allowed(history, 0, 30) == [False, True, False, True]


def test_broker_that_had_applied_more_before_a_restart_has_the_state_of_then() -> None:
    assert allowed(make_history(), 20, 12) == [False]


def test_another_broker_applies_the_same() -> None:
    history = make_history()

    assert history.applied(20, 1, [acl_record(2, AclPermissionType.DENY)])
    assert not history.applied(20, 2, [acl_record(3, AclPermissionType.ALLOW)])
    assert allowed(history, 20, 29) == [False]


def test_passwords_come_and_go() -> None:
    history = CommittedSecurity(is_allowed_without_acls=False)
    history.applied(5, 1, [UserScramCredentialRecord(name="alice", mechanism=SCRAM.value, stored_key=b"key")])
    history.applied(6, 1, [RemoveUserScramCredentialRecord(name="alice", mechanism=SCRAM.value)])

    assert [state.stored_keys for state in history.between(0, 6)] == [{}, {"alice": b"key"}, {}]
