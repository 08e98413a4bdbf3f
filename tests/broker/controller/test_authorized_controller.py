"""A client's rights count on the active controller, for its own principal and address: also in the process of the broker that it asked, and
in an Envelope, which only who acts for the cluster may send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.envelope import in_envelope, take_out
from broker.controller.authorized_controller import AuthorizedController
from broker.dispatch import KafkaApis
from broker.handlers.services import ControllerServices
from broker.loop.deferred import Deferred
from broker.loop.turns import Turns
from broker.network.context import ConnectionFacts, ListenerFacts, RequestContext
from broker.observability.metrics import Metrics
from broker.security.authorizer.access import OPEN_ACCESS, Access
from broker.security.authorizer.acl import Acl
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from broker.security.authorizer.authorizer_log import AuthorizerLog
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from protocol import codec
from protocol.apis import ListenerKind
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.default_principal_data import DefaultPrincipalData
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tests.broker.metadata.room import Room, creation, open_room
from tests.support.wire import frame

CREATE_TOPICS, ELECT_LEADERS, CREATE_ACLS, ENVELOPE = 19, 43, 30, 58
BROKER, CLIENT, CLIENT_HOST = "User:broker", "User:client", "10.1.2.3"


class Node:
    """An active controller with an authorizer, and its controller listener."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.authorizer = StandardAuthorizer(room.cache.state.acls, super_users={BROKER})
        self.authorizer.is_loaded = True
        self.controller = AuthorizedController(room.local, has_authorizer=True)
        services = ControllerServices(
            room.clock,
            Metrics(),
            room.cache,
            self.controller,
            lambda: room.local.is_active,
            room.quorum.handle_request,
            lambda frame, facts: self._apis.handle(frame, facts),
            room.quorum,
            room.config,
            self.authorizer,
        )
        self._apis = KafkaApis(services, Turns(asyncio.get_running_loop().call_soon, room.clock.monotonic_us), ListenerKind.CONTROLLER)

    def client(self, key: int, version: int, *, principal: str = CLIENT, host: str = CLIENT_HOST) -> RequestContext:
        """A client of the broker in this process."""
        facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), host)
        facts.principal = principal
        access = Access(self.authorizer, AuthorizerLog(self.room.clock), principal, host, "CreateTopics")
        return RequestContext(key, version, 77, "someone", facts, 0, access)

    async def send(self, envelope: EnvelopeRequest, *, principal: str = BROKER) -> EnvelopeResponse:
        """What the controller listener answers to an envelope."""
        facts = ConnectionFacts(2, ListenerFacts("CONTROLLER", ListenerKind.CONTROLLER), "127.0.0.1")
        facts.principal = principal
        outcome: Any = self._apis.handle(memoryview(frame(ENVELOPE, 0, codec.encode(envelope, 0))), facts)
        if isinstance(outcome, Deferred):
            waiting = asyncio.get_running_loop().create_future()
            outcome.when_done(waiting.set_result)
            outcome = await waiting
        answer = b"".join(bytes(chunk) for chunk in outcome)
        return codec.decode(EnvelopeResponse, 0, memoryview(answer), 9)[0]

    async def allow(self, operation: AclOperation, resource_type: ResourceType, name: str, host: str = "*") -> None:
        acl = Acl(resource_type, name, PatternType.LITERAL, CLIENT, host, operation, AclPermissionType.ALLOW)
        rule = AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        await self.controller.create_acls(CreateAclsRequest(creations=[rule]), self.client(CREATE_ACLS, 3, principal=BROKER))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    room = await open_room(tmp_path)
    yield Node(room)
    await room.close()


def errors_of(response: CreateTopicsResponse) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


async def test_a_client_of_this_process_has_no_more_rights_than_another(node: Node) -> None:
    client = node.client(CREATE_TOPICS, 7)

    direct = await node.controller.create_topics(creation("a"), client)
    forwarded = take_out(await node.send(in_envelope(creation("a"), client)), client)

    assert errors_of(direct) == errors_of(forwarded) == {"a": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert "a" not in node.room.cache.topics


async def test_the_address_that_counts_is_the_client_s(node: Node) -> None:
    await node.allow(AclOperation.CREATE, ResourceType.TOPIC, "a", host=CLIENT_HOST)
    elsewhere, there = node.client(CREATE_TOPICS, 7, host="10.9.9.9"), node.client(CREATE_TOPICS, 7)

    refused = take_out(await node.send(in_envelope(creation("a"), elsewhere)), elsewhere)
    created = take_out(await node.send(in_envelope(creation("a"), there)), there)

    assert errors_of(refused) == {"a": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert errors_of(created) == {"a": ErrorCode.NONE}


async def test_who_may_create_a_topic_may_not_therefore_see_its_configs(node: Node) -> None:
    await node.allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)

    response = await node.controller.create_topics(creation("a", 2, 1), node.client(CREATE_TOPICS, 7))

    (told,) = response.topics
    assert (told.error_code, told.topic_config_error_code) == (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (told.num_partitions, told.replication_factor, told.configs) == (-1, -1, [])
    assert len(node.room.cache.topics["a"].partitions) == 2


async def test_a_right_on_the_cluster_is_needed_in_this_process_too(node: Node) -> None:
    with pytest.raises(KafkaError) as refused:
        await node.controller.elect_leaders(ElectLeadersRequest(topic_partitions=None), node.client(ELECT_LEADERS, 2))
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    await node.allow(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)

    response = await node.controller.elect_leaders(ElectLeadersRequest(topic_partitions=None), node.client(ELECT_LEADERS, 2))
    assert response.error_code == ErrorCode.NONE


async def test_who_may_not_act_for_the_cluster_sends_no_envelope(node: Node) -> None:
    """It would be anyone, from anywhere."""
    envelope = in_envelope(creation("a"), node.client(CREATE_TOPICS, 7, principal=BROKER))

    answer = await node.send(envelope, principal=CLIENT)

    assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    assert "a" not in node.room.cache.topics


@pytest.mark.parametrize("size", [0, 3, 5, 15])
async def test_an_envelope_needs_an_address(node: Node, size: int) -> None:
    envelope = in_envelope(creation("a"), node.client(CREATE_TOPICS, 7, principal=BROKER))
    envelope.client_host_address = bytes(size)

    assert (await node.send(envelope)).error_code == ErrorCode.INVALID_REQUEST


def test_a_client_without_an_address_is_not_forwarded_under_another() -> None:
    facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "somewhere")
    client = RequestContext(CREATE_TOPICS, 7, 77, "someone", facts, 0, OPEN_ACCESS)

    with pytest.raises(KafkaError) as refused:
        in_envelope(creation("a"), client)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_envelope_says_that_a_client_logged_in_by_a_token() -> None:
    facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), CLIENT_HOST)
    facts.principal, facts.is_token_authenticated = "User:a:b", True

    made = in_envelope(creation("a"), RequestContext(CREATE_TOPICS, 7, 77, "someone", facts, 0, OPEN_ACCESS))

    assert made.request_principal is not None and made.request_principal[:2] == b"\x00\x00"
    told, _ = codec.decode(DefaultPrincipalData, 0, made.request_principal, 2)
    assert (told.type, told.name, told.token_authenticated) == ("User", "a:b", True)


async def test_a_node_that_does_not_lead_looks_at_no_right(node: Node) -> None:
    """Its rules may be old."""
    node.room.quorum.resign(node.room.quorum.epoch)
    for _ in range(20):
        await asyncio.sleep(0)

    for ask in (
        node.controller.create_topics(creation("a"), node.client(CREATE_TOPICS, 7)),
        node.controller.elect_leaders(ElectLeadersRequest(topic_partitions=None), node.client(ELECT_LEADERS, 2)),
    ):
        with pytest.raises(KafkaError) as refused:
            await ask
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert node.authorizer.denied_count == 0
