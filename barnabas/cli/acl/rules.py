"""ACLs by the options of kafka-acls and rpk, on the wire: librdkafka's administrator lacks two resource types and the newer operations."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from enum import IntEnum
from itertools import product
from typing import Any, NamedTuple

from barnabas.cli import errors
from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError, RefusedError
from barnabas.cli.output import Column
from broker.security.authorizer.acl_codes import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    known,
    pascal_case,
)
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import DescribeAclsRequest

RESOURCE_OPTIONS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_resource": ResourceType.USER,
}
OPERATIONS = [member for member in AclOperation if member not in (AclOperation.UNKNOWN, AclOperation.ANY)]
PATTERNS = {"literal": PatternType.LITERAL, "prefixed": PatternType.PREFIXED, "any": PatternType.ANY, "match": PatternType.MATCH}
COLUMNS = (
    Column("principal", "PRINCIPAL"),
    Column("host", "HOST"),
    Column("resource_type", "RESOURCE"),
    Column("resource_name", "NAME"),
    Column("pattern_type", "PATTERN"),
    Column("operation", "OPERATION"),
    Column("permission", "PERMISSION"),
)


class Rule(NamedTuple):
    """One ACL. In a filter None and ANY stand for all."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermissionType

    def to_data(self) -> dict[str, Any]:
        return {
            "principal": self.principal,
            "host": self.host,
            "resource_type": pascal_case(self.resource_type),
            "resource_name": self.resource_name,
            "pattern_type": pascal_case(self.pattern_type),
            "operation": pascal_case(self.operation),
            "permission": pascal_case(self.permission),
        }

    def to_filter(self) -> dict[str, Any]:
        """The fields of a filter of DescribeAcls and DeleteAcls."""
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission,
        }

    def __str__(self) -> str:
        kind, pattern = pascal_case(self.resource_type), " prefix" if self.pattern_type is PatternType.PREFIXED else ""
        what = f"{pascal_case(self.permission)} {pascal_case(self.operation)} on {kind}{pattern} {self.resource_name}"
        return f"{self.principal} from {self.host}: {what}"


def add_rule(parser: argparse.ArgumentParser, patterns: Iterable[str]) -> None:
    """The options that say which rules; of each several may be given."""
    who = parser.add_argument_group("who").add_argument
    who("--allow-principal", action="append", default=[], metavar="User:NAME", help="or NAME alone")
    who("--deny-principal", action="append", default=[], metavar="User:NAME")
    who("--allow-host", action="append", default=[], metavar="HOST")
    who("--deny-host", action="append", default=[], metavar="HOST")
    what = parser.add_argument_group("what").add_argument
    what("--operation", action="append", default=[], metavar="OPERATION", help=", ".join(_word(each) for each in OPERATIONS))
    what("--topic", action="append", default=[], metavar="NAME")
    what("--group", action="append", default=[], metavar="NAME")
    what("--cluster", action="store_true")
    what("--transactional-id", action="append", default=[], metavar="NAME")
    what("--delegation-token", action="append", default=[], metavar="NAME")
    what("--user-principal", dest="user_resource", action="append", default=[], metavar="User:NAME", help="as what is acted on")
    what("--pattern-type", "--resource-pattern-type", choices=[*patterns], help="prefixed: the names are how others begin")


def resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    found = [(kind, name) for option, kind in RESOURCE_OPTIONS.items() for name in getattr(options, option)]
    return found + ([(ResourceType.CLUSTER, CLUSTER_NAME)] if options.cluster else [])


def operations(options: argparse.Namespace) -> list[AclOperation]:
    """Raises NotUnderstoodError."""
    by_word = {_word(each): each for each in OPERATIONS}
    wished = [word.replace("_", "").replace("-", "").lower() for word in options.operation]
    by_letters = {word.replace("-", ""): each for word, each in by_word.items()}
    if unknown := [given for given, word in zip(options.operation, wished, strict=True) if word not in by_letters]:
        raise NotUnderstoodError(f"{', '.join(unknown)}: operations are {', '.join(by_word)}")
    return [by_letters[word] for word in wished]


def filters(options: argparse.Namespace) -> list[Rule]:
    """What is asked for; one filter for all rules if nothing is."""
    permitted = [
        *((AclPermissionType.ALLOW, name) for name in options.allow_principal),
        *((AclPermissionType.DENY, name) for name in options.deny_principal),
    ] or [(AclPermissionType.ANY, None)]
    hosts: list[str | None] = [*options.allow_host, *options.deny_host] or [None]
    pattern = PATTERNS[options.pattern_type or "any"]
    asked: list[tuple[ResourceType, str | None]] = [*resources(options)] or [(ResourceType.ANY, None)]
    return [
        Rule(kind, name, pattern, None if who is None else principal(who), host, operation, permission)
        for (kind, name), operation, (permission, who), host in product(asked, operations(options) or [AclOperation.ANY], permitted, hosts)
    ]


def find(connection: Connection, asked: Iterable[Rule]) -> list[Rule]:
    """The rules that match one of the filters, each once, sorted. Raises RefusedError."""
    found: set[Rule] = set()
    for rule in asked:
        answer = connection.wire().request(DescribeAclsRequest(**rule.to_filter()))
        check(answer.error_code, answer.error_message)
        for resource in answer.resources:
            kind, pattern = known(ResourceType, resource.resource_type), known(PatternType, resource.pattern_type)
            for acl in resource.acls:
                operation, permission = known(AclOperation, acl.operation), known(AclPermissionType, acl.permission_type)
                found.add(Rule(kind, resource.resource_name, pattern, acl.principal, acl.host, operation, permission))
    return sorted(found, key=lambda rule: (rule.resource_type, str(rule.resource_name), rule.pattern_type, *map(str, rule[3:])))


def check(code: int, message: str | None) -> None:
    """Raises RefusedError."""
    if code == ErrorCode.SECURITY_DISABLED:
        raise RefusedError("SECURITY_DISABLED: the brokers have no authorizer (authorizer.class.name)")
    errors.check(code, message)


def principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _word(member: IntEnum) -> str:
    return member.name.lower().replace("_", "-")


ANY_HOST = WILDCARD
