"""Acl: one rule of who may do what from where, as a value, and AclFilter, which selects rules.

Source: StandardAcl, StandardAclWithId, AclBindingFilter, ResourcePatternFilter, AccessControlEntryFilter.
"""

from __future__ import annotations

from sys import intern
from typing import NamedTuple

from broker.security.authorizer.acl_codes import (
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    known,
)
from protocol.messages.stored.metadata_records import AccessControlEntryRecord


class Acl(NamedTuple):
    """The codes are those of acl_codes.py, or undeclared ones. `principal` is `Type:name`; `host` is `*` or one address as Java writes it
    (addresses.py). Two equal ACLs are the same rule."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def to_record(self, acl_id: bytes) -> AccessControlEntryRecord:
        """Returns the record of the metadata log that adds this ACL under its id, 16 bytes."""
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission_type,
        )

    def __str__(self) -> str:
        """As Java prints a StandardAcl."""
        return (
            f"StandardAcl[resourceType={known(ResourceType, self.resource_type).name}, resourceName={self.resource_name}, "
            f"patternType={known(PatternType, self.pattern_type).name}, principal={self.principal}, host={self.host}, "
            f"operation={known(AclOperation, self.operation).name}, "
            f"permissionType={known(AclPermissionType, self.permission_type).name}]"
        )


def acl_of_record(record: AccessControlEntryRecord) -> Acl:
    """Returns the ACL of a record of the metadata log. Equal strings of many ACLs share their memory."""
    return Acl(
        record.resource_type,
        intern(record.resource_name),
        record.pattern_type,
        intern(record.principal),
        intern(record.host),
        record.operation,
        record.permission_type,
    )


class AclFilter(NamedTuple):
    """Selects ACLs: None and ANY stand for whatever value. With the pattern type MATCH, `resource_name` is the name of a resource, and the
    filter finds the patterns that cover it: literal, prefixed, and the wildcard."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = AclPermissionType.ANY

    def matches(self, acl: Acl) -> bool:
        return self.matches_pattern(acl) and self.matches_entry(acl)

    def matches_pattern(self, acl: Acl) -> bool:
        """Whether the resource pattern is selected (ResourcePatternFilter.matches)."""
        if self.resource_type not in (ResourceType.ANY, acl.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.resource_name in (name, WILDCARD)
        return name.startswith(acl.resource_name)

    def matches_entry(self, acl: Acl) -> bool:
        """Whether principal, host, operation and permission are selected (AccessControlEntryFilter.matches)."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    @property
    def has_unknown_pattern(self) -> bool:
        """Whether the resource type or the pattern type is undeclared. Such a filter selects nothing."""
        return not (known(ResourceType, self.resource_type) and known(PatternType, self.pattern_type))

    @property
    def has_unknown_entry(self) -> bool:
        """Whether the operation or the permission is undeclared. Such a filter selects nothing."""
        return not (known(AclOperation, self.operation) and known(AclPermissionType, self.permission_type))
