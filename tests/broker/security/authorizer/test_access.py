"""Access: what one client may do, by the authorizer's decisions, and what it is told where it may not."""

from __future__ import annotations

import pytest

from broker.security.authorizer.access import OPEN_ACCESS, SUPPORTED_OPERATIONS, Access
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, ResourceType
from broker.security.authorizer.acl_store import AclStore
from broker.security.authorizer.authorizer_log import INTERVAL_MS, LINES_PER_PRINCIPAL, AuthorizerLog
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import AccessControlEntryRecord
from tests.support.clock import ManualClock

ALLOW, LITERAL = 3, 3


class Room:
    def __init__(self) -> None:
        self.acls = AclStore()
        self.clock = ManualClock()
        self.log = AuthorizerLog(self.clock)
        self.authorizer = StandardAuthorizer(self.acls, super_users={"User:root"})
        self.authorizer.is_loaded = True

    def allow(self, operation: AclOperation, resource_type: ResourceType, name: str, *, host: str = "*") -> None:
        self.acls.replay(
            AccessControlEntryRecord(
                id=len(self.acls).to_bytes(16),
                resource_type=resource_type,
                resource_name=name,
                pattern_type=LITERAL,
                principal="User:a",
                host=host,
                operation=operation,
                permission_type=ALLOW,
            )
        )

    def access(self, principal: str = "User:a", host: str = "127.0.0.1") -> Access:
        return Access(self.authorizer, self.log, principal, host, "Fetch")


@pytest.fixture
def room() -> Room:
    return Room()


def test_the_host_is_the_address_as_java_writes_it(room: Room) -> None:
    room.allow(AclOperation.READ, ResourceType.TOPIC, "t", host="0:0:0:0:0:0:0:1")

    assert room.access(host="::1").allows(AclOperation.READ, ResourceType.TOPIC, "t")
    assert not room.access(host="127.0.0.1").allows(AclOperation.READ, ResourceType.TOPIC, "t")


def test_names_are_divided(room: Room) -> None:
    room.allow(AclOperation.READ, ResourceType.TOPIC, "t")

    assert room.access().allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, ["t", "u", "t"]) == {"t"}


def test_one_of_several_rights_on_the_cluster_is_enough(room: Room) -> None:
    room.allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    room.access().require_on_cluster((AclOperation.ALTER, AclOperation.CLUSTER_ACTION))
    with pytest.raises(KafkaError) as refused:
        room.access("User:b").require_on_cluster((AclOperation.ALTER, AclOperation.CLUSTER_ACTION))
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_authorized_operations_are_told_by_their_bits(room: Room) -> None:
    room.allow(AclOperation.READ, ResourceType.TOPIC, "t")

    assert room.access().authorized_operations(ResourceType.TOPIC, "t") == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert room.access("User:root").authorized_operations(ResourceType.GROUP, "g") == 3400  # as Kafka's AuthorizerIntegrationTest has it


@pytest.mark.parametrize(("kind", "bits"), [(ResourceType.TOPIC, 3576), (ResourceType.GROUP, 3400), (ResourceType.CLUSTER, 8096)])
def test_open_access_allows_all_supported_operations(kind: ResourceType, bits: int) -> None:
    assert OPEN_ACCESS.authorized_operations(kind, "x") == sum(1 << operation for operation in SUPPORTED_OPERATIONS[kind]) == bits


def test_before_the_acls_are_loaded_only_super_users_are_let_in(room: Room) -> None:
    room.authorizer.is_loaded = False

    assert room.access("User:root").allows(AclOperation.READ, ResourceType.TOPIC, "t")
    with pytest.raises(KafkaError) as refused:
        room.access().allows(AclOperation.READ, ResourceType.TOPIC, "t")
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_denials_are_logged_within_a_budget_for_each_principal(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.authorizer")
    for number in range(LINES_PER_PRINCIPAL + 3):
        room.access().allows(AclOperation.READ, ResourceType.TOPIC, f"t{number}")
    room.access("User:b").allows(AclOperation.READ, ResourceType.TOPIC, "t")
    room.clock.advance(INTERVAL_MS)

    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == (
        "Principal = User:a is Denied operation = READ from host = 127.0.0.1 on resource = Topic:LITERAL:t0 for request = Fetch "
        "with resourceRefCount = 1 based on rule DefaultDeny"
    )
    assert sum("User:a is Denied" in line for line in lines) == LINES_PER_PRINCIPAL
    assert sum("User:b is Denied" in line for line in lines) == 1
    assert lines[-1] == "3 more denials were left out in the last 60 s (User:a: 3)"


def test_what_only_filters_an_answer_is_no_line(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "barnabas.authorizer")

    room.access().allows(AclOperation.READ, ResourceType.TOPIC, "t", is_logged=False)
    assert caplog.records == []
    room.access("User:root").allows(AclOperation.READ, ResourceType.TOPIC, "t")
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert (room.authorizer.allowed_count, room.authorizer.denied_count) == (1, 1)
