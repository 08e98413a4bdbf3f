"""Odd but legal requests about ACLs, SCRAM credentials and producers. See odd_requests.py."""

from __future__ import annotations

from typing import Any

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
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


def setting(name: str, mechanism: int = 1, iterations: int = 4096, salted: bytes = b"salted") -> AlterUserScramCredentialsRequest:
    upsertion = ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted)
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def removing(*names: str, mechanism: int = 1) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name=name, mechanism=mechanism) for name in names])


def telling(*names: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


SCRAM: list[Row] = [
    ("describe all of none", DescribeUserScramCredentialsRequest(users=None), 0),
    *((f"set mechanism {mechanism}", setting("a", mechanism), 0) for mechanism in (1, 2, 0, 3, -1)),
    *((f"set {rounds} rounds", setting("a", 1, rounds), 0) for rounds in (-1, 0, 4095, 8192, 16384, 16385)),
    ("set without a name", setting(""), 0),
    ("set without a name nor a mechanism", setting("", 9), 0),
    ("set an empty salted password", setting("b", salted=b""), 0),
    (
        "set without a salt",
        AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion(name="saltless", mechanism=1, iterations=4096, salted_password=b"p")]
        ),
        0,
    ),
    ("set twice", AlterUserScramCredentialsRequest(upsertions=[*setting("c", 1).upsertions, *setting("c", 2).upsertions]), 0),
    ("set and remove", AlterUserScramCredentialsRequest(upsertions=setting("a").upsertions, deletions=removing("a").deletions), 0),
    ("alter nothing", AlterUserScramCredentialsRequest(), 0),
    ("remove who has none", removing("nobody"), 0),
    ("remove who has none, twice", removing("nobody", "nobody"), 0),
    ("remove twice", removing("a", "a"), 0),
    ("remove three times", removing("a", "a", "a"), 0),
    ("remove without a name", removing(""), 0),
    ("remove mechanism 7", removing("a", mechanism=7), 0),
    ("describe one", telling("a"), 0),
    ("describe who has none", telling("nobody"), 0),
    ("describe nobody", telling(""), 0),
    ("describe one twice", telling("a", "a"), 0),
    ("describe one who has none three times", telling("nobody", "nobody", "nobody"), 0),
    ("remove the saltless", removing("saltless"), 0),
    ("describe all", telling(), 0),
    ("remove", removing("a"), 0),
    ("describe what is left", telling("a"), 0),
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
