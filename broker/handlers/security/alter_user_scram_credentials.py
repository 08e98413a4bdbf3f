"""AlterUserScramCredentials (key 51). Serves v0.

Behaviour: the active controller sets and removes SCRAM credentials, of each user once. A client sends a salted password; the metadata has
the keys that follow from it. Each user is altered or refused: DUPLICATE_RESOURCE for one who is named twice, UNACCEPTABLE_CREDENTIAL
without a name or outside 4,096 to 16,384 rounds, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND for a removal of what is not there,
UNSUPPORTED_VERSION below metadata.version 3.5-IV2. The answer is sent when the changes are durable. Connections that are logged in stay.

Source: ControllerApis.handleAlterUserScramCredentials, ScramControlManager (KIP-554).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: AlterUserScramCredentialsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.alter_user_scram_credentials(request, context)

    return handle


def error_response(request: AlterUserScramCredentialsRequest, error: KafkaError) -> Any:
    users = sorted({deletion.name for deletion in request.deletions} | {upsertion.name for upsertion in request.upsertions})
    results = [AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message) for user in users]
    return in_turns_if_many(AlterUserScramCredentialsResponse(results=results), [results])
