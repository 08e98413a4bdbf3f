"""Odd but legal requests about ACLs and producers. See odd_requests.py."""

from __future__ import annotations

from typing import Any

from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.peers.odd_request import Row


def describing(kind: int = 2, name: str | None = "one", pattern: int = 3, operation: int = 3, permission: int = 3) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=operation,
        permission_type=permission,
    )


def creating(**fields: Any) -> AclCreation:
    given = {"resource_type": 2, "resource_name": "one", "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    return AclCreation(**(given | fields))


def deleting(**fields: Any) -> DeleteAclsFilter:
    given = {"resource_type_filter": 2, "resource_name_filter": "one", "operation": 3, "permission_type": 3}
    return DeleteAclsFilter(**(given | fields))


ACLS: list[Row] = [
    *((f"describe v{version}", describing(), version) for version in (1, 2, 3)),
    ("describe any", describing(1, None, 1, 1, 1), 3),
    ("describe users", describing(7), 3),
    *((f"describe resource type {kind}", describing(kind), 3) for kind in (0, 8, 99, -1)),
    *((f"describe pattern {pattern}", describing(pattern=pattern), 3) for pattern in (0, 4, 5)),
    *((f"describe operation {operation}", describing(operation=operation), 3) for operation in (0, 12, 15, 16)),
    *((f"describe permission {permission}", describing(permission=permission), 3) for permission in (0, 4)),
    *((f"create v{version}", CreateAclsRequest(creations=[creating(), creating()]), version) for version in (1, 2, 3)),
    ("create nothing", CreateAclsRequest(), 3),
    ("create of no kind", CreateAclsRequest(creations=[creating(), creating(resource_type=0)]), 3),
    *((f"delete v{version}", DeleteAclsRequest(filters=[deleting(), deleting()]), version) for version in (1, 2, 3)),
    ("delete nothing", DeleteAclsRequest(), 3),
    ("delete of no kind", DeleteAclsRequest(filters=[deleting(operation=0)]), 3),
]

PRODUCERS: list[Row] = [
    (
        "of known and unknown",
        DescribeProducersRequest(
            topics=[
                TopicRequest(name="one", partition_indexes=[0, 0, 9, -1]),
                TopicRequest(name="missing", partition_indexes=[0]),
                TopicRequest(name="a/b", partition_indexes=[0]),
                TopicRequest(name="", partition_indexes=[0]),
                TopicRequest(name="three", partition_indexes=[]),
                TopicRequest(name="__cluster_metadata", partition_indexes=[0]),
            ]
        ),
        0,
    ),
    ("of nothing", DescribeProducersRequest(), 0),
]
