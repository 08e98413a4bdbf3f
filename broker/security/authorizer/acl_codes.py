"""The codes of ACLs on the wire and in the metadata log: resource types, pattern types, operations, permissions; and their names.

An ACL keeps the code that it was stored with, also one that is not declared here, so that a snapshot does not change it. Such a code is
UNKNOWN to all rules.

Source: ResourceType, PatternType, AclOperation, AclPermissionType, SecurityUtils (org.apache.kafka.common).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar


class ResourceType(IntEnum):
    """What a right is on. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names its resources (KIP-290). ANY and MATCH are for filters: MATCH finds all patterns that cover a name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What may be done. ANY is for filters; ALL in an ACL stands for every operation."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Whether an ACL denies or allows. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


WILDCARD = "*"
"""As a literal resource name: all resources of the type. As a host: all hosts."""

WILDCARD_PRINCIPAL = "User:*"
"""As the principal of an ACL: all principals, of whatever type."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

_Code = TypeVar("_Code", ResourceType, PatternType, AclOperation, AclPermissionType)


def known(kind: type[_Code], code: int) -> _Code:
    """Returns the member of a code; UNKNOWN for one that is not declared (Java's `fromCode`)."""
    try:
        return kind(code)
    except ValueError:
        return kind.UNKNOWN


def pascal_case(member: IntEnum) -> str:
    """Returns the name as Kafka's audit log and its tools write it: `TransactionalId` (SecurityUtils.toPascalCase)."""
    return "".join(word.capitalize() for word in member.name.split("_"))
