"""What clients with these or those rights are answered, by a node in this process: nobody gets in without a right, nobody who has all is
denied, and each API asks what the table of rights has for it, no more and no less."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.network.context import CloseConnection
from broker.security.authorizer.access import REFUSALS
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.authorizer.rights import CLIENT_RIGHTS
from protocol.apis import APIS
from protocol.messages.list_groups import ListGroupsRequest
from tests.broker.authorized_node import Node, error_codes, started
from tests.peers.rights_requests import AT_BROKERS, RightsRequest
from tests.peers.rights_settings import EVERYBODY, SETTINGS, concerned, rights_of

ADMIN = "User:admin"
ATTEMPTS_MAX = 100

FILTERED = {"ListGroups", "ListTransactions", "DescribeCluster"}
"""Their answers have no error for what is left out; so have those to requests for all topics."""

TOLD_BEFORE = {"SyncGroup without a protocol"}
"""What is wrong with them everybody is told, as in Kafka."""

DENIALS = set(REFUSALS.values())


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with started(tmp_path) as node:
        yield node


def has_no_place_for_a_denial(request: RightsRequest) -> bool:
    return request.api in FILTERED or " of all" in request.name or request.name in {*TOLD_BEFORE, "DescribeLogDirs v1"}


@pytest.mark.long
async def test_rights_are_asked_for_and_heeded(node: Node) -> None:
    """One node for all settings: its start takes longer than all requests.
    CVE-2026-41115: an API asked for another right than was documented. CVE-2023-50976 of Redpanda: transactions asked for none."""
    asked: dict[str, set[tuple[AclOperation, ResourceType]]] = {}
    for setting in SETTINGS:
        await node.apply(setting)
        for request in concerned(setting, AT_BROKERS):
            where = f"{request.name}, {setting}"
            is_checked = request.name not in TOLD_BEFORE
            codes = error_codes(await node.ask(request.make(node.topic_id), request.version, principal=EVERYBODY, is_checked=is_checked))
            asked.setdefault(request.api, set()).update((each.operation, each.resource) for access in node.made for each in access.asked)
            if setting.kind == "everything":
                assert not codes & DENIALS or request.name == "AddPartitionsToTxn of several", where
            elif setting.kind == "nobody":
                assert codes & DENIALS or has_no_place_for_a_denial(request), where
    missing = {(api, right) for api in {each.api for each in AT_BROKERS} for right in rights_of(api) - asked[api]}

    assert missing == NEVER_ASKED


NEVER_ASKED = {
    ("InitProducerId", (AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)),  # in a version that is not stable
    ("DescribeTransactions", (AclOperation.DESCRIBE, ResourceType.TOPIC)),  # there is no transaction
    ("ConsumerGroupDescribe", (AclOperation.DESCRIBE, ResourceType.TOPIC)),  # there is no member
    ("IncrementalAlterConfigs", (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)),  # of a controller's loggers
    ("DescribeCluster", (AclOperation.ALTER, ResourceType.CLUSTER)),  # of controllers
}


WITHOUT_A_REQUEST = {
    *("ApiVersions", "GetTelemetrySubscriptions", "PushTelemetry", "SaslHandshake", "SaslAuthenticate"),  # they need no right
    "AddRaftVoter",  # its answer differs from node to node
    *(f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")),  # not over plain connections
}


def test_each_api_that_asks_has_a_request() -> None:
    assert {api.name for api in APIS.values()} - {request.api for request in AT_BROKERS} == WITHOUT_A_REQUEST


async def test_an_api_without_a_line_is_not_served(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds an API has to say who may use it."""
    monkeypatch.delitem(CLIENT_RIGHTS, "ListGroups")

    with pytest.raises(CloseConnection):
        await node.ask(ListGroupsRequest(), 4)
