"""Rights to delegation tokens: who may make them for others (KIP-373), and who sees others' (KIP-48)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.cluster.envelope import in_envelope, take_out
from broker.handlers.security import describe_delegation_token
from broker.network.context import ConnectionFacts, ListenerFacts, RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.controller.test_authorized_controller import BROKER, Node
from tests.broker.handlers.security.test_delegation_tokens import ENABLED
from tests.broker.metadata.room import open_room

CREATE, RENEW, DESCRIBE = 38, 39, 41
FOR_BOB = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob", max_lifetime_ms=-1)
FOR_ONESELF = CreateDelegationTokenRequest(max_lifetime_ms=-1)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    room = await open_room(tmp_path, ENABLED)
    yield Node(room)
    await room.close()


async def created_both_ways(node: Node, request: CreateDelegationTokenRequest) -> list[CreateDelegationTokenResponse]:
    """In the process of the broker that was asked, and by an Envelope."""
    client = node.client(CREATE, 3)
    direct = await node.controller.create_delegation_token(request, client)
    return [direct, take_out(await node.send(in_envelope(request, client)), client)]


async def test_everybody_may_make_tokens_for_oneself(node: Node) -> None:
    assert [response.error_code for response in await created_both_ways(node, FOR_ONESELF)] == [0, 0]


async def test_a_token_for_another_needs_the_right_to_that_user_s(node: Node) -> None:
    await node.allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:carol")
    denied = await created_both_ways(node, FOR_BOB)
    await node.allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    allowed = await created_both_ways(node, FOR_BOB)

    for response in denied:
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (response.principal_name, response.token_requester_principal_name) == ("bob", "client")
        assert (response.hmac, response.token_id, response.max_timestamp_ms) == (b"", "", -1)
    assert [response.error_code for response in allowed] == [0, 0]
    assert len(node.room.cache.state.tokens.by_id) == 2


async def test_who_logged_in_by_a_token_makes_none_by_an_envelope_either(node: Node) -> None:
    client = node.client(CREATE, 3)
    client.connection.is_token_authenticated = True

    response = take_out(await node.send(in_envelope(FOR_ONESELF, client)), client)

    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert not node.room.cache.state.tokens.by_id


async def test_a_super_user_does_not_renew_what_is_not_his(node: Node) -> None:
    """Kafka asks the token, not the authorizer."""
    token, _ = await created_both_ways(node, FOR_ONESELF)
    super_user = node.client(RENEW, 2, principal=BROKER)

    response = await node.controller.renew_delegation_token(RenewDelegationTokenRequest(hmac=token.hmac), super_user)

    assert response.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_others_tokens_are_seen_by_who_may_describe_them_or_their_owner(node: Node) -> None:
    """DelegationTokenManager.filterToken"""
    ids = {}
    for name in ("alice", "bob", "client"):
        owner = node.client(CREATE, 3, principal=f"User:{name}")
        ids[name] = (await node.controller.create_delegation_token(FOR_ONESELF, owner)).token_id

    def seen() -> set[str]:
        asking = node.client(DESCRIBE, 3)
        facts = ConnectionFacts(1, ListenerFacts("SASL", security_protocol="SASL_SSL"), asking.connection.client_host)
        facts.principal = asking.connection.principal
        context = RequestContext(DESCRIBE, 3, 1, "c", facts, 0, asking.access)
        answer = describe_delegation_token.build(node.room.services)(context, DescribeDelegationTokenRequest(owners=None))
        return {token.token_id for token in answer.tokens}

    assert seen() == {ids["client"]}
    await node.allow(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, ids["alice"])
    assert seen() == {ids["client"], ids["alice"]}
    await node.allow(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
    assert seen() == set(ids.values())
