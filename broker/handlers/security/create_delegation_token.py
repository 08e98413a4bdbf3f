"""CreateDelegationToken (key 38). Serves v1–v3.

Behaviour: the active controller makes a token, by which its owner can log in with SCRAM (KIP-48): its id is the name, its HMAC in Base64
the password. It lives for delegation.token.expiry.time.ms, until it is renewed, and at most for delegation.token.max.lifetime.ms or the
shorter time that the request names. Errors:
- DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that is nobody, or logged in by a token (token_requests.py)
- DELEGATION_TOKEN_AUTH_DISABLED without delegation.token.secret.key
- INVALID_PRINCIPAL_TYPE for a renewer that is no User

Version notes: v3 a token for another owner, for who may CREATE_TOKENS of that user (KIP-373).

Source: KafkaApis.handleCreateTokenRequest, DelegationTokenControlManager.createDelegationToken.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.security.token_requests import ERROR_TIMESTAMP_MS, may_ask_for_tokens
from broker.handlers.services import ControllerServices, Handler, Services
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


def build(services: Services | ControllerServices) -> Handler:
    def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | Coroutine[Any, Any, Any]:
        if not may_ask_for_tokens(context.connection):
            return _not_allowed(context, request)
        return services.controller.create_delegation_token(request, context)

    return handle


def _not_allowed(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester_type, _, requester_name = context.connection.principal.partition(":")
    is_for_another = bool(request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=(request.owner_principal_type or "") if is_for_another else requester_type,
        principal_name=(request.owner_principal_name or "") if is_for_another else requester_name,
        issue_timestamp_ms=ERROR_TIMESTAMP_MS,
        expiry_timestamp_ms=ERROR_TIMESTAMP_MS,
        max_timestamp_ms=ERROR_TIMESTAMP_MS,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type, response.token_requester_principal_name = requester_type, requester_name
    return response
