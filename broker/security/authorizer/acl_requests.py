"""ACLs and filters as requests bring them, and as the answer to DescribeAcls tells them.

Source: CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest, DescribeAclsResponse.aclsResources.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import NoReturn

from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_store import AclStore
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation
from protocol.messages.delete_acls import DeleteAclsFilter
from protocol.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource


def acl_of(creation: AclCreation) -> Acl:
    """Returns the ACL that a request asks for, unchecked."""
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def filter_of(wanted: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """Returns the filter of a request, unchecked."""
    return AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def check_codes(asked: Iterable[Acl | AclFilter]) -> None:
    """Raises KafkaError INVALID_REQUEST for the whole request if it has the code 0, UNKNOWN. (Kafka closes the connection.) Codes that are
    not declared are refused one by one."""
    for each in asked:
        if not (each.resource_type and each.pattern_type and each.operation and each.permission_type):
            _refuse_unknown()


def _refuse_unknown() -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_REQUEST, "The request contains UNKNOWN elements.")


def described(store: AclStore, acl_filter: AclFilter) -> Generator[None, None, list[DescribeAclsResource]]:
    """Returns the ACLs that the filter selects, by resource pattern, each rule once: those that there are now. Yields after each ACL that
    it has looked at, so that other work may have its turn."""
    by_pattern: dict[tuple[int, str, int], dict[Acl, None]] = {}
    for acl in store.candidates(acl_filter):
        if acl_filter.matches(acl):
            by_pattern.setdefault(acl[:3], {})[acl] = None
        yield
    return [
        DescribeAclsResource(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=pattern_type,
            acls=[
                AclDescription(principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type)
                for acl in acls
            ],
        )
        for (resource_type, name, pattern_type), acls in by_pattern.items()
    ]
