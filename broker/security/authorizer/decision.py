"""Decision: whether something is allowed and by which rule; and the rules of ACLs that decide it.

Pure functions over an index of ACLs. An ACL that denies counts before all that allow; super users and who has not loaded the ACLs yet are
standard_authorizer.py's.

Source: StandardAuthorizerData.findAclRule and findResult; Authorizer.authorizeByResourceType.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from broker.security.authorizer.acl_index import AclIndex, Pattern


class Decision(NamedTuple):
    """`rule` is the ACL that decided it, or the name that Kafka's audit log has for the rule: SuperUser, DefaultAllow, DefaultDeny."""

    is_allowed: bool
    rule: Acl | str


SUPER_USER = Decision(True, "SuperUser")
DEFAULT_ALLOW = Decision(True, "DefaultAllow")
DEFAULT_DENY = Decision(False, "DefaultDeny")

_IMPLIED_BY: dict[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operation → operations whose ALLOW is one for it too. A DENY of them is none."""

_NOTHING: frozenset[int] = frozenset()


def decide(
    index: AclIndex, principal: str, host: str, operation: int, resource_type: int, name: str, *, without_acls: Decision
) -> Decision:
    """Returns what the ACLs say about an operation on one resource: `without_acls` if no ACL of any
    principal has to do with the resource. The cost is that of the prefixes of the name, for the principal and for all principals.

    Of several rules that lead to the same answer it names the one that Kafka names: the first that denies, the last that allows.

    Kafka's wildcard does not cover names that begin with `*` (checkSection takes it for a literal prefix of them), so that a DENY for all
    groups does not reach a group `*a`. Here it covers every name, as AclBindingFilter's MATCH says."""
    patterns = index.patterns_of(resource_type, name)
    allowing: Acl | None = None
    for pattern in patterns:
        applying = [acl for acl in _at(index, resource_type, pattern, principal, host) if _applies(acl, operation)]
        if not applying:
            continue
        denying = [acl for acl in applying if acl.permission_type != AclPermissionType.ALLOW]
        if denying:
            return Decision(False, min(denying, key=_order))
        allowing = max(applying, key=_order)
    if allowing is not None:
        return Decision(True, allowing)
    return DEFAULT_DENY if index.has_any(resource_type, patterns) else without_acls


def decide_by_type(index: AclIndex, principal: str, host: str, operation: int, resource_type: int) -> Decision:
    """Returns whether the ACLs allow an operation on at least one resource of a type, whether it exists or not.

    As in Kafka no operation implies another here, and a pattern that allows counts unless it is literal and denied, or a prefix of it is
    denied. The cost is that of the ACLs of the principal and of all principals on resources of the type."""
    denied: set[tuple[int, str]] = set()
    allowing: list[Acl] = []
    for acl in _of_type(index, resource_type, principal, host):
        if acl.operation not in (operation, AclOperation.ALL):
            continue
        if acl.permission_type == AclPermissionType.ALLOW:
            allowing.append(acl)
        elif acl.permission_type == AclPermissionType.DENY:
            if _is_wildcard(acl):
                return Decision(False, acl)
            denied.add((acl.pattern_type, acl.resource_name))
    for acl in allowing:
        if _is_wildcard(acl) or not _is_dominated(acl, denied):
            return Decision(True, acl)
    return DEFAULT_DENY


def check_by_type(operation: int, resource_type: int) -> None:
    """Raises ValueError for what is not a question about one operation and one type (SecurityUtils.authorizeByResourceTypeCheckArgs)."""
    if resource_type == ResourceType.ANY:
        raise ValueError("Must specify a non-filter resource type for authorizeByResourceType")
    if resource_type == ResourceType.UNKNOWN:
        raise ValueError("Unknown resource type")
    if operation == AclOperation.ANY:
        raise ValueError("Must specify a non-filter operation type for authorizeByResourceType")
    if operation == AclOperation.UNKNOWN:
        raise ValueError("Unknown operation type")


def _at(index: AclIndex, resource_type: int, pattern: Pattern, principal: str, host: str) -> Iterator[Acl]:
    """Yields the ACLs of a pattern that are for the principal at the host."""
    for who in (principal, WILDCARD_PRINCIPAL):
        own = index.of_principal(resource_type, who)
        if own:
            yield from own.get((*pattern, host), ())
            yield from own.get((*pattern, WILDCARD), ())


def _of_type(index: AclIndex, resource_type: int, principal: str, host: str) -> Iterator[Acl]:
    for who in (principal, WILDCARD_PRINCIPAL):
        for (_, _, acl_host), acls in index.of_principal(resource_type, who).items():
            if acl_host in (host, WILDCARD):
                yield from acls


def _applies(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    return acl.permission_type == AclPermissionType.ALLOW and acl.operation in _IMPLIED_BY.get(operation, _NOTHING)


def _is_wildcard(acl: Acl) -> bool:
    return acl.resource_name == WILDCARD and acl.pattern_type == PatternType.LITERAL


def _is_dominated(acl: Acl, denied: set[tuple[int, str]]) -> bool:
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _order(acl: Acl) -> tuple[int, str, str, int]:
    """The order of Kafka's set among ACLs of one pattern (StandardAcl.compareTo)."""
    return acl.operation, acl.principal, acl.host, acl.permission_type
