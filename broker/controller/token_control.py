"""The controller's decisions about delegation tokens (KIP-48): CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, and the
removal of tokens whose time is over. Pure; the time is the wall clock's.

A token lives until the earlier of its expiry, which its owner and its renewers may put off, and the end of its longest life. Who asked for
a token for another owner may neither renew nor expire it, as in Kafka.

Source: DelegationTokenControlManager.
"""

from __future__ import annotations

import random

from broker.controller.controller_result import ControllerResult, Steps
from broker.metadata.cluster_state import ClusterState
from broker.metadata.features import METADATA_VERSION_DELEGATION_TOKENS
from broker.security.credentials.token_hmacs import TokenHmacs
from broker.security.credentials.token_store import is_expired
from config.server import LONG_MAX, ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from protocol.messages.stored.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from protocol.uuids import random_uuid, uuid_to_text

USER_TYPE = "User"
OWNERS_SINCE = 3
"""The version of CreateDelegationToken with an owner in the request and the requester in the response."""
TOKENS_OF_REQUESTER_MAX = 1_000
"""Tokens that one principal may have asked for and that are not removed yet. Kafka has no bound."""
RENEWERS_MAX, RENEWERS_SIZE_MAX = 100, 16_384
"""Of one token: their number, and the characters of their names. Kafka has no bound."""
REMOVED_AT_ONCE_MAX = 1000
"""Tokens that are removed by one batch of records (MAX_RECORDS_PER_EXPIRATION)."""


class TokenControl:
    """Computes the records of changed tokens. Reads `state`, never changes it. `random_source` draws ids, which are no secrets."""

    def __init__(self, state: ClusterState, config: ServerConfig, random_source: random.Random) -> None:
        self._state = state
        self._config = config
        self._random = random_source
        self._hmacs = TokenHmacs(config.delegation_token_secret_key) if config.delegation_token_secret_key else None

    def create(
        self, request: CreateDelegationTokenRequest, requester: str, version: int, now_ms: int
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        """`requester` is the principal of the client, `version` that of its request."""
        owner = owner_of(request, requester)
        response = described_owners(owner, requester, version)
        try:
            # Kafka's brokers check this before they forward the request, its controllers after the others.
            if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
                raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
            hmacs = self._checked_hmacs()
            self._check_bounds(request, requester)
        except KafkaError as error:
            response.error_code = error.code
            return ControllerResult([], response)
        longest = self._config.delegation_token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            longest = min(longest, request.max_lifetime_ms)
        record = DelegationTokenRecord(
            owner=owner,
            requester=requester,
            renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=_later(now_ms, longest),
            expiration_timestamp=_later(now_ms, min(longest, self._config.delegation_token_expiry_time_ms)),
            token_id=self._new_id(),
        )
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms = record.expiration_timestamp
        response.max_timestamp_ms = record.max_timestamp
        response.token_id = record.token_id
        response.hmac = hmacs.of(record.token_id)
        return ControllerResult([record], response)

    def _check_bounds(self, request: CreateDelegationTokenRequest, requester: str) -> None:
        """Raises KafkaError POLICY_VIOLATION. A token for oneself needs no right at all, and every node has all tokens in memory."""
        if sum(len(renewer.principal_name) for renewer in request.renewers) > RENEWERS_SIZE_MAX or len(request.renewers) > RENEWERS_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if sum(1 for token in self._state.tokens.by_id.values() if token.requester == requester) >= TOKENS_OF_REQUESTER_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)

    def renew(self, request: RenewDelegationTokenRequest, requester: str, now_ms: int) -> ControllerResult[RenewDelegationTokenResponse]:
        try:
            token = self._find(request.hmac)
            if is_expired(token, now_ms):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            _check_may_renew(token, requester)
        except KafkaError as error:
            return ControllerResult([], RenewDelegationTokenResponse(error_code=error.code))
        period_ms = self._config.delegation_token_expiry_time_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        record = _ending(token, _later(now_ms, period_ms))
        return ControllerResult([record], RenewDelegationTokenResponse(expiry_timestamp_ms=record.expiration_timestamp))

    def expire(self, request: ExpireDelegationTokenRequest, requester: str, now_ms: int) -> ControllerResult[ExpireDelegationTokenResponse]:
        """A negative period removes the token at once, also one whose time is over."""
        try:
            token = self._find(request.hmac)
            _check_may_renew(token, requester)
            if request.expiry_time_period_ms < 0:
                removal = RemoveDelegationTokenRecord(token_id=token.token_id)
                return ControllerResult([removal], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
            if is_expired(token, now_ms):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        except KafkaError as error:
            return ControllerResult([], ExpireDelegationTokenResponse(error_code=error.code))
        record = _ending(token, _later(now_ms, request.expiry_time_period_ms))
        return ControllerResult([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=record.expiration_timestamp))

    def remove_expired(self, now_ms: int) -> Steps[None]:
        """Removes the tokens whose time is over."""
        tokens = self._state.tokens.by_id
        expired = [token_id for token_id, token in tokens.items() if is_expired(token, now_ms)]
        for start in range(0, len(expired), REMOVED_AT_ONCE_MAX):
            ids = expired[start : start + REMOVED_AT_ONCE_MAX]
            # One may have been renewed, or removed, while others had their turn.
            yield [RemoveDelegationTokenRecord(token_id=each) for each in ids if each in tokens and is_expired(tokens[each], now_ms)]

    def _find(self, token_hmac: bytes) -> DelegationTokenRecord:
        token = self._checked_hmacs().find(self._state.tokens, token_hmac)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    def _checked_hmacs(self) -> TokenHmacs:
        """Raises KafkaError where there are no tokens: without a secret key, or at an old metadata.version."""
        if self._hmacs is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if self._state.metadata_version < METADATA_VERSION_DELEGATION_TOKENS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return self._hmacs

    def _new_id(self) -> str:
        while True:
            token_id = uuid_to_text(random_uuid(self._random.getrandbits))
            if token_id not in self._state.tokens.by_id:
                return token_id


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """The principal whose token is asked for: who asks, unless the request names another. Raises KafkaError INVALID_PRINCIPAL_TYPE for a
    name without a type, which makes Kafka answer UNKNOWN_SERVER_ERROR."""
    if not request.owner_principal_name:
        return requester
    if request.owner_principal_type is None:
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def described_owners(owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    """Returns a response that names owner and requester, and no token."""
    kind, _, name = owner.partition(":")
    response = CreateDelegationTokenResponse(principal_type=kind, principal_name=name)
    if version >= OWNERS_SINCE:
        response.token_requester_principal_type, _, response.token_requester_principal_name = requester.partition(":")
    return response


def _check_may_renew(token: DelegationTokenRecord, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _ending(token: DelegationTokenRecord, end_ms: int) -> DelegationTokenRecord:
    """The token with another expiry, which is not after the end of its longest life."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=min(token.max_timestamp, end_ms),
        token_id=token.token_id,
    )


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, LONG_MAX)
