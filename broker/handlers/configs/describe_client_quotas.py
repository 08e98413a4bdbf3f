"""DescribeClientQuotas (key 48). Serves v0–v1, on brokers only.

Behaviour: the quotas of users, client ids and IP addresses in the committed metadata, of the entities that match all components. A
component matches a name, the default, or any of its type; a strict filter excludes entities with other parts. No components match all. A
component that cannot be asked for is INVALID_REQUEST, an unknown type of entity UNSUPPORTED_VERSION.

Source: KafkaApis.handleDescribeClientQuotasRequest, ClientQuotasImage.describe (KIP-546).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.security.quotas.client_quotas import ClientQuotas
from broker.security.quotas.quota_filter import QuotaFilter
from protocol.errors import KafkaError
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def build(services: Services) -> Handler:
    quotas = services.metadata.state.client_quotas

    def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> Any:
        return at_once_or_in_turns(_answer(quotas, request))

    return handle


def _answer(quotas: ClientQuotas, request: DescribeClientQuotasRequest) -> Work:
    matching = QuotaFilter(request.components, is_strict=request.strict)
    entries = []
    for entity, values in list(quotas.by_entity.items()):
        if matching.matches(entity):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=part.entity_type, entity_name=part.name) for part in entity],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
        yield
    return DescribeClientQuotasResponse(entries=entries)


def error_response(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
