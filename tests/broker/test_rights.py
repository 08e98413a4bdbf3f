"""What clients with these or those rights are answered, by a node in this process: nobody gets in without a right, nobody who has all is
denied, and each API asks what the table of rights has for it, no more and no less."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.dispatch import KafkaApis
from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.security.authorizer.access import REFUSALS
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.server import server
from config.loading import load_server_config
from config.server import STANDARD_AUTHORIZER
from protocol import codec
from protocol.apis import APIS, DECLARED
from protocol.framing import skip_tags
from protocol.messages.create_acls import CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message
from tests.peers.odd_request import committing, topic
from tests.peers.rights_requests import AT_BROKERS, GROUP, TOPIC, TRANSACTION, RightsRequest
from tests.peers.rights_settings import CLIENT_HOST, EVERYBODY, SETTINGS, Setting, concerned, creation, rights_of
from tests.support.asked_rights import NotedAccess, noted
from tests.support.wire import frame

ADMIN = "User:admin"
ATTEMPTS_MAX = 100

FILTERED = {"ListGroups", "ListTransactions", "DescribeCluster"}
"""Their answers have no error for what is left out; so have those to requests for all topics."""

TOLD_BEFORE = {"SyncGroup without a protocol"}
"""What is wrong with them everybody is told, as in Kafka."""

DENIALS = set(REFUSALS.values())


class Node:
    """A broker that is its own controller. Requests go to its dispatch, from connections of whoever it is said."""

    def __init__(self, broker: server.Broker, apis: KafkaApis) -> None:
        self.broker = broker
        self.topic_id = bytes(16)
        self.made: list[NotedAccess] = []
        self._apis = apis

    async def ask(self, message: Any, version: int, *, principal: str = ADMIN, is_checked: bool = True) -> Any:
        """The answer. `is_checked`: AssertionError unless the client's rights were asked for."""
        key = next(key for key, api in DECLARED.items() if api.request_class is type(message))
        facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), CLIENT_HOST)
        facts.principal = principal
        self.made.clear()
        outcome = self._apis.handle(memoryview(bytearray(frame(key, version, codec.encode(message, version)))), facts)
        if isinstance(outcome, Deferred):
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            outcome.when_done(answered.set_result)
            outcome = await asyncio.wait_for(answered, 30)
        if isinstance(outcome, Exception):
            raise outcome
        for access in self.made if is_checked else ():
            access.check(is_of_controller=False)
        data = memoryview(b"".join(bytes(chunk) for chunk in outcome))
        api = DECLARED[key]
        position = skip_tags(data, 8) if api.response_header_version(version) >= 1 else 8
        return codec.decode(api.response_class, version, data, position)[0]

    async def until_ready(self, message: Any, version: int) -> Any:
        for _ in range(ATTEMPTS_MAX):
            answer = await self.ask(message, version)
            if not error_codes(answer) & {3, 14, 15, 16}:
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"the node is not ready: {answer}")

    async def apply(self, setting: Setting) -> None:
        """Give the client these rights and no others."""
        every = DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
            operation=1, permission_type=1,
        )  # fmt: skip
        assert error_codes(await self.ask(DeleteAclsRequest(filters=[every]), 3)) == {0}
        assert error_codes(await self.ask(CreateAclsRequest(creations=[creation(acl) for acl in setting.acls()]), 3)) == {0}


def error_codes(value: Any) -> set[int]:
    if isinstance(value, Message):
        own = {getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)}
        return (own or {0}).union(*(error_codes(getattr(value, name)) for name in value.__slots__))
    return set[int]().union(*map(error_codes, value)) if isinstance(value, list) else set()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    config = load_server_config(
        None,
        {},
        [
            f"log.dirs={tmp_path}",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "barnabas.auto.format=true",
            f"authorizer.class.name={STANDARD_AUTHORIZER}",
            f"super.users={ADMIN}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.num.partitions=1",
        ],
    )
    broker = server.Broker(config)
    await broker.start()
    try:
        assert broker._clients is not None and broker._clients._apis is not None
        node = Node(broker, broker._clients._apis)
        monkeypatch.setattr(KafkaApis, "_access", noted(node.made))
        await node.until_ready(CreateTopicsRequest(topics=[topic(TOPIC)]), 7)
        await node.until_ready(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        await node.until_ready(FindCoordinatorRequest(coordinator_keys=[TRANSACTION], key_type=1), 4)
        await node.until_ready(committing(GROUP, TOPIC, (0, 3)), 9)
        await node.until_ready(InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=1000), 4)
        told = await node.until_ready(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 10)
        node.topic_id = told.topics[0].topic_id
        yield node
    finally:
        await broker.stop()


def has_no_place_for_a_denial(request: RightsRequest) -> bool:
    return request.api in FILTERED or " of all" in request.name or request.name in {*TOLD_BEFORE, "DescribeLogDirs v1"}


@pytest.mark.long
async def test_rights_are_asked_for_and_heeded(node: Node) -> None:
    """One node for all settings: its start takes longer than all requests."""
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
    *("DescribeQuorum", "AddRaftVoter"),  # their answers differ from node to node
}


def test_each_api_that_asks_has_a_request() -> None:
    untold = {
        "ApiVersions",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
        "DescribeQuorum",
        "AddRaftVoter",
        "SaslHandshake",
        "SaslAuthenticate",
    }

    assert {api.name for api in APIS.values()} - {request.api for request in AT_BROKERS} == untold
