"""DelegationTokenControlManagerTest's cases, and Kafka's rules about who may renew and what a token's times are."""

from __future__ import annotations

import hashlib
import hmac
import random
from typing import Any

import pytest

from broker.controller.token_control import (
    REMOVED_AT_ONCE_MAX,
    RENEWERS_MAX,
    RENEWERS_SIZE_MAX,
    TOKENS_OF_REQUESTER_MAX,
    TokenControl,
)
from broker.metadata.cluster_state import ClusterState
from config.server import LONG_MAX, ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.messages.stored.metadata_records import DelegationTokenRecord, FeatureLevelRecord, RemoveDelegationTokenRecord

NOW_MS = 1_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


def make_control(state: ClusterState | None = None, **settings: Any) -> TokenControl:
    config = ServerConfig(**{"delegation_token_secret_key": "a-secret", **settings})
    return TokenControl(ClusterState() if state is None else state, config, random.Random(3))


def creation(*renewers: str, **fields: Any) -> CreateDelegationTokenRequest:
    named = [CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in (each.partition(":") for each in renewers)]
    return CreateDelegationTokenRequest(renewers=named, **{"max_lifetime_ms": -1, **fields})


class Tokens:
    """A state, and the controller's decisions about it, replayed."""

    def __init__(self, **settings: Any) -> None:
        self.state = ClusterState()
        self.control = make_control(self.state, **settings)

    def create(self, request: CreateDelegationTokenRequest, requester: str = ALICE, version: int = 3) -> CreateDelegationTokenResponse:
        result = self.control.create(request, requester, version, NOW_MS)
        self._replay(result.records)
        return result.response

    def renew(self, token_hmac: bytes, requester: str = ALICE, period_ms: int = -1, now_ms: int = NOW_MS) -> tuple[int, int]:
        result = self.control.renew(RenewDelegationTokenRequest(hmac=token_hmac, renew_period_ms=period_ms), requester, now_ms)
        self._replay(result.records)
        return result.response.error_code, result.response.expiry_timestamp_ms

    def expire(self, token_hmac: bytes, requester: str = ALICE, period_ms: int = -1, now_ms: int = NOW_MS) -> tuple[int, int]:
        result = self.control.expire(ExpireDelegationTokenRequest(hmac=token_hmac, expiry_time_period_ms=period_ms), requester, now_ms)
        self._replay(result.records)
        return result.response.error_code, result.response.expiry_timestamp_ms

    def remove_expired(self, now_ms: int) -> list[list[Any]]:
        steps = []
        for step in self.control.remove_expired(now_ms):
            self._replay(step)
            steps.append(list(step))
        return steps

    def _replay(self, records: Any) -> None:
        for record in records:
            self.state.replay(record)


def test_a_token_is_of_who_asks_and_lives_for_the_configured_times() -> None:
    tokens = Tokens()

    response = tokens.create(creation(BOB))

    assert response.error_code == 0
    assert (response.principal_type, response.principal_name) == ("User", "alice")
    assert (response.token_requester_principal_type, response.token_requester_principal_name) == ("User", "alice")
    assert response.hmac == hmac.new(b"a-secret", response.token_id.encode(), hashlib.sha512).digest()
    times = (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms)
    assert times == (NOW_MS, NOW_MS + DAY_MS, NOW_MS + 7 * DAY_MS)
    assert list(tokens.state.tokens.by_id.values()) == [
        DelegationTokenRecord(
            owner=ALICE,
            requester=ALICE,
            renewers=[BOB],
            issue_timestamp=NOW_MS,
            max_timestamp=NOW_MS + 7 * DAY_MS,
            expiration_timestamp=NOW_MS + DAY_MS,
            token_id=response.token_id,
        )
    ]


def test_each_token_has_another_id() -> None:
    tokens = Tokens()

    assert len({tokens.create(creation()).token_id for _ in range(10)}) == 10


def test_a_token_may_be_for_another_owner() -> None:
    tokens = Tokens()

    response = tokens.create(creation(owner_principal_type="User", owner_principal_name="bob"))

    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
    assert [(token.owner, token.requester) for token in tokens.state.tokens.by_id.values()] == [(BOB, ALICE)]


def test_before_version_3_nothing_is_said_of_the_requester() -> None:
    assert Tokens().create(creation(), version=2).token_requester_principal_name == ""


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expiry_ms"),
    [(0, 7 * DAY_MS, DAY_MS), (HOUR_MS, HOUR_MS, HOUR_MS), (3 * DAY_MS, 3 * DAY_MS, DAY_MS), (LONG_MAX, 7 * DAY_MS, DAY_MS)],
)
def test_the_longest_life_is_the_shorter_of_what_is_asked_and_configured(asked_ms: int, max_ms: int, expiry_ms: int) -> None:
    response = Tokens().create(creation(max_lifetime_ms=asked_ms))

    assert (response.max_timestamp_ms - NOW_MS, response.expiry_timestamp_ms - NOW_MS) == (max_ms, expiry_ms)


def test_times_do_not_overflow() -> None:
    response = Tokens(delegation_token_max_lifetime_ms=LONG_MAX, delegation_token_expiry_time_ms=LONG_MAX).create(creation())

    assert (response.max_timestamp_ms, response.expiry_timestamp_ms) == (LONG_MAX, LONG_MAX)


def test_a_renewer_is_a_user() -> None:
    assert Tokens().create(creation(BOB, "Group:g")).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_an_owner_has_a_type() -> None:
    with pytest.raises(KafkaError) as refused:
        Tokens().create(creation(owner_principal_type=None, owner_principal_name="bob"))

    assert refused.value.code is ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_secret_key_there_are_no_tokens(key: str | None) -> None:
    tokens = Tokens(delegation_token_secret_key=key)

    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    response = tokens.create(creation())
    assert (response.error_code, response.principal_name, response.hmac) == (disabled, "alice", b"")
    assert tokens.renew(b"x") == tokens.expire(b"x") == (disabled, 0)
    assert not tokens.state.tokens.by_id


def test_an_old_metadata_version_has_no_tokens() -> None:
    tokens = Tokens()
    tokens.state.replay(FeatureLevelRecord(name="metadata.version", feature_level=13))

    assert tokens.create(creation()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert tokens.renew(b"x")[0] == tokens.expire(b"x")[0] == ErrorCode.UNSUPPORTED_VERSION


def test_owner_and_renewers_may_renew_and_expire_and_nobody_else() -> None:
    """Not even who asked for the token of another owner."""
    tokens = Tokens()
    token = tokens.create(creation(CAROL, owner_principal_type="User", owner_principal_name="bob")).hmac

    for requester in (BOB, CAROL):
        assert tokens.renew(token, requester)[0] == tokens.expire(token, requester, HOUR_MS)[0] == 0
    for requester in (ALICE, "Group:bob"):
        assert tokens.renew(token, requester) == tokens.expire(token, requester) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)


def test_an_unknown_hmac_is_no_token() -> None:
    tokens = Tokens()
    token = tokens.create(creation())

    for unknown in (b"", token.hmac[:-1], token.token_id.encode()):
        assert tokens.renew(unknown)[0] == tokens.expire(unknown)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(("period_ms", "end_ms"), [(-1, DAY_MS), (0, DAY_MS), (HOUR_MS, HOUR_MS), (LONG_MAX, DAY_MS)])
def test_a_renewal_is_for_the_shorter_of_what_is_asked_and_configured(period_ms: int, end_ms: int) -> None:
    tokens = Tokens()
    token = tokens.create(creation()).hmac
    later_ms = NOW_MS + HOUR_MS

    assert tokens.renew(token, period_ms=period_ms, now_ms=later_ms) == (0, later_ms + end_ms)

    assert [each.expiration_timestamp for each in tokens.state.tokens.by_id.values()] == [later_ms + end_ms]


def test_no_renewal_is_beyond_the_longest_life() -> None:
    tokens = Tokens()
    created = tokens.create(creation(max_lifetime_ms=DAY_MS + HOUR_MS))

    assert tokens.renew(created.hmac, now_ms=NOW_MS + 2 * HOUR_MS) == (0, created.max_timestamp_ms)


@pytest.mark.parametrize(("period_ms", "end_ms"), [(0, NOW_MS), (HOUR_MS, NOW_MS + HOUR_MS), (LONG_MAX, NOW_MS + 7 * DAY_MS)])
def test_an_expiry_sets_when_the_token_ends(period_ms: int, end_ms: int) -> None:
    tokens = Tokens()

    assert tokens.expire(tokens.create(creation()).hmac, period_ms=period_ms) == (0, end_ms)


def test_a_negative_time_removes_the_token() -> None:
    tokens = Tokens()
    token = tokens.create(creation()).hmac

    assert tokens.expire(token) == (0, NOW_MS)

    assert not tokens.state.tokens.by_id
    assert tokens.renew(token)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_whose_time_is_over_can_only_be_removed() -> None:
    tokens = Tokens()
    token = tokens.create(creation()).hmac
    at_the_end_ms = NOW_MS + DAY_MS

    assert tokens.renew(token, now_ms=at_the_end_ms + 1) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.expire(token, period_ms=HOUR_MS, now_ms=at_the_end_ms + 1) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.renew(token, now_ms=at_the_end_ms)[0] == 0
    assert tokens.expire(token, now_ms=NOW_MS + 30 * DAY_MS) == (0, NOW_MS + 30 * DAY_MS)
    assert not tokens.state.tokens.by_id


def test_tokens_whose_time_is_over_are_removed_in_batches() -> None:
    tokens = Tokens()
    for number in range(REMOVED_AT_ONCE_MAX + 2):
        tokens.create(creation(max_lifetime_ms=HOUR_MS), (ALICE, BOB)[number % 2])
    left = tokens.create(creation())

    assert [len(step) for step in tokens.remove_expired(NOW_MS + HOUR_MS)] == []
    assert [len(step) for step in tokens.remove_expired(NOW_MS + HOUR_MS + 1)] == [REMOVED_AT_ONCE_MAX, 2]
    assert list(tokens.state.tokens.by_id) == [left.token_id]


def test_a_token_that_is_removed_between_two_batches_is_not_removed_again() -> None:
    tokens = Tokens()
    requesters = [(ALICE, BOB)[number % 2] for number in range(REMOVED_AT_ONCE_MAX + 2)]
    ids = [tokens.create(creation(max_lifetime_ms=HOUR_MS), requester).token_id for requester in requesters]
    steps = tokens.control.remove_expired(NOW_MS + DAY_MS)

    next(steps)
    tokens.state.replay(RemoveDelegationTokenRecord(token_id=ids[-1]))

    assert next(steps) == [RemoveDelegationTokenRecord(token_id=ids[-2])]


def test_no_text_shows_the_hmac() -> None:
    response = Tokens().create(creation())

    assert response.token_id in repr(response) and repr(response.hmac)[2:20] not in repr(response)
    for request in (RenewDelegationTokenRequest(hmac=b"secret"), ExpireDelegationTokenRequest(hmac=b"secret")):
        assert "secret" not in repr(request)


def test_nobody_has_tokens_or_renewers_without_end() -> None:
    """A token for oneself needs no right: by 15 MB of renewers a request any user could fill all nodes' memory."""
    tokens = Tokens()
    for _ in range(TOKENS_OF_REQUESTER_MAX):
        assert tokens.create(creation()).error_code == ErrorCode.NONE

    assert tokens.create(creation()).error_code == ErrorCode.POLICY_VIOLATION
    assert tokens.create(creation(), BOB).error_code == ErrorCode.NONE
    assert tokens.create(creation(*[ALICE] * RENEWERS_MAX), BOB).error_code == ErrorCode.NONE
    assert tokens.create(creation(*[ALICE] * (RENEWERS_MAX + 1)), BOB).error_code == ErrorCode.POLICY_VIOLATION
    assert tokens.create(creation("User:" + "r" * (RENEWERS_SIZE_MAX + 1)), BOB).error_code == ErrorCode.POLICY_VIOLATION
