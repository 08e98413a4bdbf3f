"""The four APIs of delegation tokens there and back; what is decided is in tests/broker/controller."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.security import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from broker.handlers.security.token_requests import may_ask_for_tokens
from broker.network.context import ConnectionFacts, ListenerFacts, RequestContext
from broker.security.authorizer.access import OPEN_ACCESS
from config.server import ServerConfig
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.metadata.room import Room, open_room

ALICE = "User:alice"
ENABLED = ServerConfig(offsets_topic_replication_factor=1, delegation_token_secret_key="a-secret")
HOUR_MS = 3_600_000


def connection(protocol: str = "SASL_PLAINTEXT", principal: str = ALICE) -> ConnectionFacts:
    facts = ConnectionFacts(1, ListenerFacts("L", security_protocol=protocol), "127.0.0.1")
    facts.principal = principal
    return facts


def over_the_wire(message: Any, version: int) -> Any:
    decoded, _ = decode(type(message), version, encode(message, version))
    return decoded


class Client:
    """Asks a room's handlers as `principal`."""

    def __init__(self, room: Room, principal: str = ALICE, protocol: str = "SASL_PLAINTEXT") -> None:
        self._services = room.services
        self.connection = connection(protocol, principal)

    async def create(self, version: int = 3, **fields: Any) -> CreateDelegationTokenResponse:
        return await self._ask(create_delegation_token, CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields}), version)

    async def renew(self, token_hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=token_hmac, renew_period_ms=period_ms)
        answer = await self._ask(renew_delegation_token, request, version)
        return answer.error_code, answer.expiry_timestamp_ms

    async def expire(self, token_hmac: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period_ms=period_ms)
        answer = await self._ask(expire_delegation_token, request, version)
        return answer.error_code, answer.expiry_timestamp_ms

    async def describe(self, owners: list[str] | None = None, version: int = 3) -> list[DescribedDelegationToken]:
        named = None if owners is None else [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
        answer = await self._ask(describe_delegation_token, DescribeDelegationTokenRequest(owners=named), version)
        return list(answer.tokens)

    async def _ask(self, module: Any, request: Any, version: int) -> Any:
        context = RequestContext(0, version, 1, "client", self.connection, 0, OPEN_ACCESS)
        outcome = module.build(self._services)(context, over_the_wire(request, version))
        return over_the_wire(await outcome if hasattr(outcome, "__await__") else outcome, version)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_token_is_created_described_renewed_and_removed(tmp_path: Path, version: int) -> None:
    """DelegationTokenRequestsTest"""
    room = await open_room(tmp_path, ENABLED)
    alice = Client(room)
    bob = CreatableRenewers(principal_type="User", principal_name="bob")

    created = await alice.create(version, renewers=[bob], max_lifetime_ms=HOUR_MS)
    assert (created.error_code, created.principal_name, len(created.hmac)) == (0, "alice", 64)
    assert created.token_requester_principal_name == ("alice" if version >= 3 else "")

    (described,) = await alice.describe(None, version)
    assert (described.token_id, described.hmac, described.principal_name) == (created.token_id, created.hmac, "alice")
    assert [renewer.principal_name for renewer in described.renewers] == ["bob"]
    assert (described.issue_timestamp, described.max_timestamp) == (created.issue_timestamp_ms, created.max_timestamp_ms)
    assert described.token_requester_principal_name == created.token_requester_principal_name

    version = min(version, 2)
    assert await Client(room, "User:bob").renew(created.hmac, 1000, version) == (0, created.issue_timestamp_ms + 1000)
    assert await alice.expire(created.hmac, -1, version) == (0, created.issue_timestamp_ms)
    assert await alice.describe() == []


async def test_owners_are_looked_for(tmp_path: Path) -> None:
    room = await open_room(tmp_path, ENABLED)
    alice = Client(room)
    bob = CreatableRenewers(principal_type="User", principal_name="bob")
    own = await alice.create(renewers=[bob])
    other = await alice.create(owner_principal_type="User", owner_principal_name="carol")

    async def ids(owners: list[str] | None) -> list[str]:
        return [token.token_id for token in await alice.describe(owners)]

    assert await ids(None) == await ids(["alice"]) == [own.token_id, other.token_id]  # Alice has asked for both
    assert await ids(["bob"]) == [own.token_id]
    assert await ids(["carol", "nobody"]) == [other.token_id]
    assert await ids(["nobody"]) == await ids([]) == []


@pytest.mark.parametrize(
    ("protocol", "principal", "is_token", "may"),
    [
        ("PLAINTEXT", "User:ANONYMOUS", False, False),
        ("SSL", "User:ANONYMOUS", False, False),
        ("SSL", "User:CN=alice", False, True),
        ("SASL_SSL", ALICE, False, True),
        ("SASL_PLAINTEXT", ALICE, False, True),
        ("SASL_PLAINTEXT", ALICE, True, False),
        ("SASL_SSL", ALICE, True, False),
        ("SSL", "User:CN=alice", True, False),
    ],
)
def test_who_may_ask(protocol: str, principal: str, is_token: bool, may: bool) -> None:
    facts = connection(protocol, principal)
    facts.is_token_authenticated = is_token

    assert may_ask_for_tokens(facts) is may


@pytest.mark.parametrize("is_token", [False, True])
def test_what_a_broker_has_forwarded_is_judged_by_the_principal_alone(is_token: bool) -> None:
    facts = connection("PLAINTEXT")
    facts.is_forwarded = True
    facts.is_token_authenticated = is_token

    assert may_ask_for_tokens(facts) is not is_token


@pytest.mark.parametrize("version", [1, 3])
async def test_who_may_not_ask_learns_nothing(tmp_path: Path, version: int) -> None:
    room = await open_room(tmp_path, ENABLED)
    token = await Client(room).create()
    anonymous = Client(room, "User:ANONYMOUS", "PLAINTEXT")

    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    created = await anonymous.create(version)
    assert (created.error_code, created.principal_name, created.max_timestamp_ms, created.hmac) == (not_allowed, "ANONYMOUS", -1, b"")
    assert await anonymous.renew(token.hmac) == await anonymous.expire(token.hmac) == (not_allowed, -1)
    with pytest.raises(KafkaError) as refused:
        await anonymous.describe()
    assert refused.value.code is not_allowed
    assert len(await Client(room).describe()) == 1


async def test_without_a_secret_key_tokens_are_disabled(tmp_path: Path) -> None:
    alice = Client(await open_room(tmp_path))

    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (await alice.create()).error_code == disabled
    assert (await alice.renew(b"x"))[0] == (await alice.expire(b"x"))[0] == disabled
    with pytest.raises(KafkaError) as refused:
        await alice.describe()
    assert refused.value.code is disabled


async def test_the_active_controller_removes_tokens_whose_time_is_over(tmp_path: Path) -> None:
    room = await open_room(tmp_path, ENABLED)
    alice = Client(room)
    await alice.create(max_lifetime_ms=1000)
    left = await alice.create(max_lifetime_ms=2 * HOUR_MS)

    room.clock.advance(HOUR_MS)
    await asyncio.sleep(0)  # the removal's first step
    await room.local.wait_first_records_committed()  # after all that was appended before

    assert list(room.cache.state.tokens.by_id) == [left.token_id]


async def test_changes_are_logged_without_the_hmac(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path, ENABLED)
    alice = Client(room)

    with caplog.at_level(logging.DEBUG):
        token = await alice.create()
        await Client(room, "User:eve").renew(token.hmac)
        await alice.expire(token.hmac)

    lines = [record.getMessage().split(" principal=")[0] for record in caplog.records if "delegation token" in record.getMessage()]
    assert lines == [
        f"delegation token created token_id={token.token_id} owner=User:alice",
        "delegation token not renewed error=DELEGATION_TOKEN_OWNER_MISMATCH",
        f"delegation token expired token_id={token.token_id}",
    ]
    assert "hmac" not in caplog.text.lower()
