"""DescribeDelegationToken (key 41). Serves v1–v3, on brokers only.

Behaviour: the tokens of the committed metadata that the named principals own, have asked for or may renew; all tokens, if the list is null;
none, if it is empty. A client sees its own tokens and those that it may renew, and others if it may DESCRIBE the token or DESCRIBE_TOKENS
of its owner; the rest is left out. A token comes with its HMAC, which is its password. A token whose time is over is told until the
active controller has removed it. Errors as those of CreateDelegationToken.

Version notes: v3 tells who has asked for the token.

Not done: Kafka's controllers declare this API and do not serve it (UNKNOWN_SERVER_ERROR); ours do not declare it.

Source: KafkaApis.handleDescribeTokensRequest, DelegationTokenManager.filterToken (KIP-48).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.security.token_requests import may_ask_for_tokens
from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.security.credentials.token_hmacs import TokenHmacs
from broker.security.credentials.token_store import TokenStore, is_of
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.messages.stored.metadata_records import DelegationTokenRecord

REQUESTERS_SINCE = 3


def build(services: Services) -> Handler:
    tokens = services.metadata.state.tokens
    secret_key = services.config.delegation_token_secret_key
    hmacs = TokenHmacs(secret_key) if secret_key else None

    def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> Any:
        if not may_ask_for_tokens(context.connection):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if hmacs is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return at_once_or_in_turns(_answer(tokens, hmacs, context, request))

    return handle


def _answer(tokens: TokenStore, hmacs: TokenHmacs, context: RequestContext, request: DescribeDelegationTokenRequest) -> Work:
    owners = None if request.owners is None else {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    described = []
    for token in list(tokens.by_id.values()):
        if (owners is None or _is_of_any(token, owners)) and _may_see(context, token):
            described.append(_described(token, hmacs.of(token.token_id), context.api_version))
        yield
    return DescribeDelegationTokenResponse(tokens=described)


def _is_of_any(token: DelegationTokenRecord, owners: set[str]) -> bool:
    return not owners.isdisjoint((token.owner, token.requester, *token.renewers))


def _may_see(context: RequestContext, token: DelegationTokenRecord) -> bool:
    if is_of(token, context.connection.principal):
        return True
    if context.access.allows(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id):
        return True
    return context.access.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)


def _described(token: DelegationTokenRecord, token_hmac: bytes, version: int) -> DescribedDelegationToken:
    kind, _, name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[_renewer(renewer) for renewer in token.renewers],
    )
    if version >= REQUESTERS_SINCE:
        described.token_requester_principal_type, _, described.token_requester_principal_name = token.requester.partition(":")
    return described


def _renewer(principal: str) -> DescribedDelegationTokenRenewer:
    kind, _, name = principal.partition(":")
    return DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
