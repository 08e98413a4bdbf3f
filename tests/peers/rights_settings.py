"""Sets of rights: what the client of a comparison or a test may do, as ACLs that tell clients apart by their address.

Each right that any API asks for is given alone, and taken alone from all.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from broker.security.authorizer.rights import CLIENT_RIGHTS, CONTROLLER_RIGHTS
from protocol.messages.create_acls import AclCreation
from tests.peers.rights_requests import AT_BROKERS, AT_CONTROLLERS, GROUP, TOPIC, TRANSACTION, RightsRequest

CLIENT_HOST = "127.0.0.2"
EVERYBODY = "User:ANONYMOUS"

NAMES = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.TRANSACTIONAL_ID: TRANSACTION,
    ResourceType.CLUSTER: CLUSTER_NAME,
}
"""The resources that the requests name and that are there."""

ALL = AclOperation.ALL


class Setting(NamedTuple):
    """The client's rules: `kind` is what it is, `operation` and `resource` the right that it is about."""

    kind: str
    operation: AclOperation | None = None
    resource: ResourceType | None = None

    def __str__(self) -> str:
        right = "" if self.operation is None or self.resource is None else f" {self.operation.name} on {self.resource.name}"
        return f"{self.kind}{right}"

    def acls(self) -> list[Acl]:
        everything = [rule(kind, WILDCARD if kind is not ResourceType.CLUSTER else CLUSTER_NAME, ALL) for kind in NAMES]
        if self.kind == "nobody":
            return []
        if self.kind == "everything":
            return everything
        if self.kind == "denied":
            return everything + [rule(kind, name, ALL, AclPermissionType.DENY) for kind, name in NAMES.items()]
        assert self.operation is not None and self.resource is not None
        if self.kind == "only":
            return [rule(self.resource, NAMES[self.resource], self.operation)]
        return [*everything, rule(self.resource, NAMES[self.resource], self.operation, AclPermissionType.DENY)]


def rule(
    kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType = AclPermissionType.ALLOW, host: str = CLIENT_HOST
) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, EVERYBODY, host, operation, permission)


def rights_of(api: str) -> set[tuple[AclOperation, ResourceType]]:
    """All that is ever asked for a request of the API."""
    rights: set[tuple[AclOperation, ResourceType]] = set()
    for table in (CLIENT_RIGHTS, CONTROLLER_RIGHTS):
        line = table.get(api)
        if line is not None:
            rights |= {(right.operation, right.resource) for right in line.named}
            rights |= {(operation, ResourceType.CLUSTER) for operation in line.cluster}
    return rights


SETTINGS = [
    Setting("nobody"),
    Setting("everything"),
    Setting("denied"),
    *(
        Setting(kind, operation, resource)
        for operation, resource in sorted(set().union(*(rights_of(each.api) for each in (*AT_BROKERS, *AT_CONTROLLERS))))
        for kind in ("only", "all but")
    ),
]


def concerned(setting: Setting, requests: list[RightsRequest]) -> list[RightsRequest]:
    """Returns the requests whose APIs ask for the right that the setting is about."""
    if setting.operation is None or setting.resource is None:
        return requests
    return [each for each in requests if (setting.operation, setting.resource) in rights_of(each.api)]


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
