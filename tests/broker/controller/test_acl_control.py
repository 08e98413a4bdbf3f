"""What the controller answers and appends for CreateAcls and DeleteAcls: cases of Kafka's AclControlManagerTest and AuthorizerTest."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from broker.controller.acl_control import AclControl
from broker.metadata.cluster_state import ClusterState
from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_codes import PatternType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.stored.metadata_records import RemoveAccessControlEntryRecord
from tests.broker.controller.cluster import collected
from tests.broker.security.authorizer.room import (
    ALL,
    ALLOW,
    ALTER,
    CLUSTER,
    DESCRIBE,
    KAFKA_S_ACLS,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)

MATCH, ANY = PatternType.MATCH, PatternType.ANY
ACL = Acl(TOPIC, "topic-1", LITERAL, "User:user", "10.0.0.1", ALL, ALLOW)


@dataclass
class Room:
    """A controller's state and its decisions about ACLs."""

    state: ClusterState = field(default_factory=ClusterState)

    @property
    def control(self) -> AclControl:
        return AclControl(self.state, random.Random(1))

    @property
    def acls(self) -> list[Acl]:
        return list(self.state.acls.by_id.values())

    def create(self, *acls: Acl) -> tuple[list[tuple[int, str | None]], int]:
        """Returns codes and messages, and how many records there were; they are replayed."""
        records, response = collected(self.control.create_acls(CreateAclsRequest(creations=[creation(acl) for acl in acls])))
        for record in records:
            self.state.replay(record)
        assert isinstance(response, CreateAclsResponse)
        return [(result.error_code, result.error_message) for result in response.results], len(records)

    def delete(self, *filters: AclFilter) -> tuple[list[DeleteAclsFilterResult], list[bytes]]:
        """Returns the answers and the deleted ids, which are not replayed."""
        records, response = collected(self.control.delete_acls(deletion(filters)))
        assert isinstance(response, DeleteAclsResponse)
        return response.filter_results, [record.id for record in records]


def creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def deletion(filters: Iterable[AclFilter]) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource_name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission_type,
            )
            for each in filters
        ]
    )


def told(result: DeleteAclsFilterResult) -> set[Acl]:
    assert (result.error_code, result.error_message) == (0, None)
    assert {(each.error_code, each.error_message) for each in result.matching_acls} <= {(0, None)}
    return {as_acl(each) for each in result.matching_acls}


def as_acl(told: DeleteAclsMatchingAcl) -> Acl:
    return Acl(told.resource_type, told.resource_name, told.pattern_type, told.principal, told.host, told.operation, told.permission_type)


def exactly(acl: Acl) -> AclFilter:
    return AclFilter(*acl)


VALID = Acl(TOPIC, "*", LITERAL, "User:*", "*", ALTER, ALLOW)


@pytest.mark.parametrize(
    ("acl", "message"),
    [
        (VALID._replace(pattern_type=5), "Invalid patternType UNKNOWN"),
        (VALID._replace(pattern_type=MATCH), "Invalid patternType MATCH"),
        (VALID._replace(pattern_type=ANY), "Invalid patternType ANY"),
        (VALID._replace(resource_type=8), "Invalid resourceType UNKNOWN"),
        (VALID._replace(resource_type=1), "Invalid resourceType ANY"),
        (VALID._replace(operation=16), "Invalid operation UNKNOWN"),
        (VALID._replace(operation=1), "Invalid operation ANY"),
        (VALID._replace(permission_type=4), "Invalid permissionType UNKNOWN"),
        (VALID._replace(permission_type=1), "Invalid permissionType ANY"),
        (VALID._replace(resource_name=""), "Invalid empty resource name"),
        (VALID._replace(resource_type=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (
            VALID._replace(principal="invalid"),
            "Could not parse principal from `invalid` (no colon is present separating the principal type from the principal name)",
        ),
        (
            VALID._replace(principal=""),
            "Could not parse principal from `` (no colon is present separating the principal type from the principal name)",
        ),
    ],
)
def test_acl_that_cannot_be_is_refused_alone(acl: Acl, message: str) -> None:
    room = Room()

    answers, _ = room.create(acl, VALID)

    assert answers == [(ErrorCode.INVALID_REQUEST, message), (0, "")]
    assert room.acls == [VALID]


def test_created_acls_have_the_answer_that_kafka_sends() -> None:
    assert AclCreationResult() == AclCreationResult(error_code=0, error_message="")
    room = Room()

    answers, count = room.create(*KAFKA_S_ACLS.values())

    assert (answers, count) == ([(0, "")] * 5, 5)
    assert room.acls == list(KAFKA_S_ACLS.values())
    assert len(set(room.state.acls.by_id)) == 5


@pytest.mark.parametrize("code", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_code_0_refuses_the_whole_request(code: str) -> None:
    room = Room()
    with pytest.raises(KafkaError) as caught:
        room.create(VALID, VALID._replace(**{code: 0}))
    assert caught.value.code is ErrorCode.INVALID_REQUEST

    with pytest.raises(KafkaError) as caught:
        room.delete(AclFilter(), AclFilter()._replace(**{code: 0}))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_acl_is_created_once() -> None:
    room = Room()

    assert room.create(ACL, ACL) == ([(0, ""), (0, "")], 1)
    assert room.create(ACL) == ([(0, "")], 0)
    assert room.acls == [ACL]


def test_acl_that_another_request_creates_between_the_steps_is_not_created_again() -> None:
    room = Room()
    names = [ACL._replace(resource_name=f"topic-{number}") for number in range(1, 61)]
    steps = room.control.create_acls(CreateAclsRequest(creations=[creation(acl) for acl in names]))

    assert next(steps) == []
    room.create(ACL)
    records = next(steps)

    assert len(records) == 59 and ACL.resource_name not in {record.resource_name for record in records}


def test_deletion_tells_what_it_deletes_and_refuses_an_unknown_filter_alone() -> None:
    room = Room()
    created = list(KAFKA_S_ACLS.values())[:3]
    room.create(*created)

    (first, second), ids = room.delete(AclFilter(pattern_type=LITERAL), AclFilter(resource_type=8, pattern_type=LITERAL))

    assert told(first) == {created[0], created[2]}
    assert (second.error_code, second.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    for acl_id in ids:
        room.state.replay(RemoveAccessControlEntryRecord(id=acl_id))
    assert room.acls == [created[1]]


def test_filter_with_an_undeclared_operation_is_refused() -> None:
    (result,), ids = Room().delete(AclFilter(operation=16))

    assert (result.error_code, result.error_message, ids) == (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.", [])


def test_acl_that_two_filters_select_is_told_twice_and_deleted_once() -> None:
    room = Room()
    room.create(ACL)
    (acl_id,) = room.state.acls.by_id

    for filters in ([AclFilter()], [exactly(ACL)], [AclFilter(), exactly(ACL)]):
        results, ids = room.delete(*filters)

        assert ids == [acl_id]
        assert [told(result) for result in results] == [{ACL}] * len(filters)


def test_acl_that_another_request_deletes_between_the_steps_is_not_deleted_again() -> None:
    room = Room()
    names = [ACL._replace(resource_name=f"topic-{number}") for number in range(1, 61)]
    room.create(*names)
    ids = list(room.state.acls.by_id)
    steps = room.control.delete_acls(deletion(exactly(acl) for acl in names))

    assert next(steps) == []
    room.state.replay(RemoveAccessControlEntryRecord(id=ids[0]))
    records = [record for step in steps for record in step]

    assert [record.id for record in records] == ids[1:]


def test_filters_select_as_kafka_s_do() -> None:
    first, second, prefixed = "foo-1", "bar-1", "bar-"
    acls = [
        Acl(TOPIC, first, LITERAL, "User:alice", "*", READ, ALLOW),
        Acl(TOPIC, first, LITERAL, "User:alice", "192.168.0.1", WRITE, ALLOW),
        Acl(TOPIC, second, LITERAL, "User:alice", "*", DESCRIBE, ALLOW),
        Acl(TOPIC, prefixed, PREFIXED, "User:*", "*", READ, ALLOW),
    ]
    room = Room()
    room.create(*acls)
    filters = [AclFilter(1, second, MATCH), exactly(acls[0]), AclFilter(TOPIC, second, LITERAL), AclFilter(TOPIC, "baz", ANY)]

    results, ids = room.delete(*filters)

    assert [told(result) for result in results] == [{acls[2], acls[3]}, {acls[0]}, {acls[2]}, set()]
    assert len(ids) == 3


def test_principal_s_filter_finds_no_wildcard_and_the_reverse() -> None:
    room = Room()
    of_all = ACL._replace(principal="User:*")
    room.create(ACL, of_all)

    (of_user, of_wildcard), _ = room.delete(AclFilter(principal="User:user"), AclFilter(principal="User:*"))

    assert (told(of_user), told(of_wildcard)) == ({ACL}, {of_all})


def many_acls(count: int) -> list[Acl]:
    return [Acl(TOPIC, f"mytopic_{number}", LITERAL, "User:alice", "127.0.0.1", READ, ALLOW) for number in range(count)]


def test_more_than_10000_acls_are_not_created_at_once() -> None:
    room = Room()
    with pytest.raises(KafkaError, match="Unable to perform excessively large batch operation") as caught:
        room.create(*many_acls(10_001))

    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert room.create(*many_acls(10_000))[1] == 10_000
    assert room.create(*many_acls(10_001))[1] == 1  # the others exist


def test_more_than_10000_acls_are_not_deleted_at_once() -> None:
    room = Room()
    acls = many_acls(10_002)
    room.create(*acls[::2])
    room.create(*acls[1::2])

    for filters in ([exactly(acl) for acl in acls], [AclFilter()]):
        with pytest.raises(KafkaError, match="Cannot remove more than 10000 acls in a single delete operation") as caught:
            room.delete(*filters)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert len(room.delete(*(exactly(acl) for acl in acls[:10_000]))[1]) == 10_000
