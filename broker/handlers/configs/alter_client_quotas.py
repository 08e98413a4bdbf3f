"""AlterClientQuotas (key 49). Serves v0–v1.

Behaviour: the active controller sets and removes quotas of users, client ids, both together, and IP addresses; a null name is the default
of its type. Each entity is altered completely or refused with INVALID_REQUEST. The answer, one entry for each entity, is sent when the
changes are durable. With validate_only nothing is changed.

Not done: no client is throttled yet.

Source: ControllerApis.handleAlterClientQuotas, ClientQuotaControlManager (KIP-546).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, AlterClientQuotasResponseEntryData


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: AlterClientQuotasRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.alter_client_quotas(request, context)

    return handle


def error_response(request: AlterClientQuotasRequest, error: KafkaError) -> Any:
    entries = [
        AlterClientQuotasResponseEntryData(error_code=error.code, error_message=error.message, entity=entry.entity)
        for entry in request.entries
    ]
    return in_turns_if_many(AlterClientQuotasResponse(entries=entries), [entries])
