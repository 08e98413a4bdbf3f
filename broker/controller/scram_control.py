"""The controller's decisions about SCRAM credentials: AlterUserScramCredentials. Pure.

A request alters a user once, whatever the mechanism; a user who is named again is not altered at all. A request's records are appended
together, as in Kafka. The answers come in the order of the request, refusals last; Kafka's order is that of hash maps.

An empty salted password is UNACCEPTABLE_CREDENTIAL. Kafka's HMAC throws, which it answers with UNKNOWN_SERVER_ERROR.

Source: ScramControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, Pace, Steps
from broker.metadata.cluster_state import ClusterState
from broker.metadata.features import METADATA_VERSION_SCRAM
from broker.security.credentials.scram_store import ScramKey, scram_record
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.stored.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from protocol.sasl import scram
from protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

_MECHANISMS = {mechanism.value: mechanism for mechanism in ScramMechanism}


class ScramControl:
    """Computes the records of changed credentials. Reads `state`, never changes it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def alter(self, request: AlterUserScramCredentialsRequest) -> Steps[AlterUserScramCredentialsResponse]:
        """Each user is altered or refused. Raises KafkaError POLICY_VIOLATION for too many changes at once."""
        changes: list[Change] = [*request.deletions, *request.upsertions]
        if len(changes) > RECORDS_PER_OPERATION_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        accepted: dict[str, Any] = {}
        refused: dict[str, AlterUserScramCredentialsResult] = {}
        pace = Pace()
        for change in changes:
            if change.name not in refused:
                try:
                    accepted[change.name] = self._record(change, accepted)
                except KafkaError as error:
                    accepted.pop(change.name, None)
                    refused[change.name] = _result(change.name, error.code, error.message)
            if pace.is_due():
                yield []
        yield [record for record in accepted.values() if isinstance(record, UserScramCredentialRecord) or _key(record) in self._state.scram]
        results = [_result(user, ErrorCode.NONE, None) for user in accepted]
        return AlterUserScramCredentialsResponse(results=[*results, *refused.values()])

    def _record(self, change: Change, accepted: Mapping[str, Any]) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
        """Returns the record of a change. Raises KafkaError for one that cannot be made; Kafka checks in this order."""
        if change.name in accepted:
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
        if self._state.metadata_version < METADATA_VERSION_SCRAM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
        if not change.name:
            raise _unacceptable("Username must not be empty")
        if change.mechanism not in _MECHANISMS:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, ScramCredentialUpsertion):
            return _new_credential(change)
        if _key(change) not in self._state.scram:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)


def _new_credential(change: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    """Two HMACs and a hash: a few µs."""
    if change.iterations < ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    if not change.salted_password:
        raise _unacceptable("The salted password must not be empty")
    mechanism = _MECHANISMS[change.mechanism]
    credential = scram.credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return scram_record(change.name, mechanism, credential)


def _key(change: Any) -> ScramKey:
    return ScramKey(change.name, change.mechanism)


def _unacceptable(why: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)


def _result(user: str, code: ErrorCode, message: str | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
