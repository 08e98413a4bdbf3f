"""ScramControlManagerTest's cases, and the order in which Kafka checks."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX
from broker.controller.scram_control import ScramControl
from broker.metadata.cluster_state import ClusterState
from broker.security.credentials.scram_store import ScramKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.stored.metadata_records import (
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.sasl import scram
from protocol.sasl.scram import ScramMechanism

SALTED = bytes(range(32))


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096, salted_password: bytes = SALTED) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted_password)


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(state: ClusterState, *changes: Any) -> tuple[list[Any], AlterUserScramCredentialsResponse]:
    """Does what the controller does with the steps."""
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    steps = ScramControl(state).alter(request)
    records: list[Any] = []
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return records, end.value
        for record in step:
            state.replay(record)
        records.extend(step)


def errors(response: AlterUserScramCredentialsResponse) -> dict[str, int]:
    return {result.user: result.error_code for result in response.results}


def test_the_metadata_gets_the_keys_of_the_salted_password() -> None:
    state = ClusterState()

    records, response = alter(state, upsertion("alice", 1), upsertion("bob", 2, 8192))

    assert errors(response) == {"alice": 0, "bob": 0}
    assert [result.error_message for result in response.results] == [None, None]
    expected = scram.credential_of(ScramMechanism.SCRAM_SHA_512, SALTED, b"salt", 8192)
    assert records[1] == UserScramCredentialRecord(
        name="bob", mechanism=2, salt=b"salt", stored_key=expected.stored_key, server_key=expected.server_key, iterations=8192
    )
    assert state.scram.find_user(ScramMechanism.SCRAM_SHA_512, "bob") == expected


def test_a_credential_is_replaced_and_removed() -> None:
    state = ClusterState()
    alter(state, upsertion("alice", iterations=4096))
    alter(state, upsertion("alice", iterations=8192))
    assert state.scram.find_iterations(ScramKey("alice", 1)) == 8192

    records, response = alter(state, deletion("alice"))

    assert records == [RemoveUserScramCredentialRecord(name="alice", mechanism=1)]
    assert errors(response) == {"alice": 0} and len(state.scram) == 0


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion("a", 2, iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion("a", salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty"),
        (upsertion("", 9), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("a", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("a", 3, 1), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion("a", -1), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion("a"), ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    ],
)
def test_what_is_refused(change: Any, code: ErrorCode, message: str) -> None:
    records, response = alter(ClusterState(), change)

    assert records == []
    (result,) = response.results
    assert (result.error_code, result.error_message) == (code, message)


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_bounds_of_the_rounds_are_inclusive(iterations: int) -> None:
    assert errors(alter(ClusterState(), upsertion("a", iterations=iterations))[1]) == {"a": 0}


def test_a_user_who_is_named_twice_is_not_altered_and_others_are() -> None:
    state = ClusterState()
    alter(state, upsertion("deleted"), upsertion("both"))

    records, response = alter(
        state,
        *(deletion("deleted"), deletion("deleted", 1), deletion("both"), deletion("missing"), deletion("missing", 2)),
        *(upsertion("both"), upsertion("set", 1), upsertion("set", 2), upsertion("set", 1), upsertion("fine")),
    )

    duplicate = ErrorCode.DUPLICATE_RESOURCE
    assert errors(response) == {
        "fine": 0, "deleted": duplicate, "missing": ErrorCode.RESOURCE_NOT_FOUND, "both": duplicate, "set": duplicate,
    }  # fmt: skip
    assert [record.name for record in records] == ["fine"]


def test_a_metadata_version_without_scram_refuses_all() -> None:
    state = ClusterState()
    state.replay(FeatureLevelRecord(name="metadata.version", feature_level=10))

    records, response = alter(state, upsertion("a"), upsertion("", 9), deletion("b"))

    assert records == [] and set(errors(response).values()) == {ErrorCode.UNSUPPORTED_VERSION}
    assert response.results[0].error_message == "The current metadata.version does not support SCRAM"

    state.replay(FeatureLevelRecord(name="metadata.version", feature_level=11))
    assert errors(alter(state, upsertion("a"))[1]) == {"a": 0}


def test_too_many_changes_are_refused_together() -> None:
    with pytest.raises(KafkaError) as refused:
        alter(ClusterState(), *(upsertion(str(index)) for index in range(RECORDS_PER_OPERATION_MAX + 1)))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_what_another_removed_meanwhile_is_not_removed_again() -> None:
    """The request takes several turns, and Kafka's controllers fail at the removal of what is not there."""
    state = ClusterState()
    users = [str(index) for index in range(100)]
    alter(state, *map(upsertion, users))
    steps = ScramControl(state).alter(AlterUserScramCredentialsRequest(deletions=list(map(deletion, users))))

    assert next(steps) == []
    state.replay(RemoveUserScramCredentialRecord(name="0", mechanism=1))
    records = [record for step in steps for record in step]

    assert [record.name for record in records] == users[1:]


def test_a_request_s_text_shows_no_secret() -> None:
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion("alice", salted_password=b"secret")])

    assert "secret" not in repr(request) and "alice" in repr(request)
