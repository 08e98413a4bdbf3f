"""AlterUserScramCredentials and DescribeUserScramCredentials there and back; what is decided is in tests/broker/controller."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.security import alter_user_scram_credentials, describe_user_scram_credentials
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from protocol.sasl.scram import ScramMechanism
from tests.broker.controller.test_scram_control import upsertion
from tests.broker.metadata.room import Room, context, open_room
from tests.broker.metadata.test_scram_of_state import credential
from tests.support.turns import finished


def over_the_wire(message: Any) -> Any:
    decoded, _ = decode(type(message), 0, encode(message, 0))
    return decoded


async def alter(room: Room, *upsertions: Any, deletions: tuple[ScramCredentialDeletion, ...] = ()) -> dict[str, int]:
    request = over_the_wire(AlterUserScramCredentialsRequest(upsertions=list(upsertions), deletions=list(deletions)))
    answer = over_the_wire(await alter_user_scram_credentials.build(room.services)(context(0), request))
    return {result.user: result.error_code for result in answer.results}


def describe(room: Room, users: list[str] | None) -> dict[str, Any]:
    """The mechanisms and rounds of each user, or the error and its message."""
    names = None if users is None else [UserName(name=user) for user in users]
    request = over_the_wire(DescribeUserScramCredentialsRequest(users=names))
    answer = over_the_wire(describe_user_scram_credentials.build(room.services)(context(0), request))
    assert isinstance(answer, DescribeUserScramCredentialsResponse) and answer.error_code == 0
    return {
        result.user: (result.error_code, result.error_message)
        if result.error_code
        else {info.mechanism: info.iterations for info in result.credential_infos}
        for result in answer.results
    }


@pytest.mark.parametrize("everybody", [None, []])
async def test_credentials_are_set_described_and_removed(tmp_path: Path, everybody: list[str] | None) -> None:
    """AlterUserScramCredentialsRequestTest, DescribeUserScramCredentialsRequestTest"""
    room = await open_room(tmp_path)
    assert describe(room, everybody) == {}

    assert await alter(room, upsertion("alice", 1), upsertion("bob", 2, 8192)) == {"alice": 0, "bob": 0}
    assert await alter(room, upsertion("alice", 2, 16384)) == {"alice": 0}
    assert describe(room, everybody) == {"alice": {1: 4096, 2: 16384}, "bob": {2: 8192}}
    assert room.cache.credentials.find_user(ScramMechanism.SCRAM_SHA_512, "bob") is not None

    assert await alter(room, deletions=(ScramCredentialDeletion(name="alice", mechanism=1),)) == {"alice": 0}
    assert describe(room, ["alice"]) == {"alice": {2: 16384}}


async def test_users_without_a_credential_and_users_named_twice_are_errors(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await alter(room, upsertion("alice"))

    assert describe(room, ["alice", "nobody", "twice", "twice", ""]) == {
        "alice": {1: 4096},
        "nobody": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: nobody"),
        "twice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: twice",
        ),
        "": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: "),
    }


async def test_many_users_are_described_in_turns(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.cache.apply_committed([credential(str(index)) for index in range(2000)])

    work = describe_user_scram_credentials.build(room.services)(context(0), DescribeUserScramCredentialsRequest())

    assert len(finished(work).results) == 2000


async def test_changes_are_logged_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = await open_room(tmp_path)

    with caplog.at_level(logging.DEBUG):
        await alter(room, upsertion("alice", salted_password=b"secret"))
        await alter(room, upsertion("bob", 9), deletions=(ScramCredentialDeletion(name="alice", mechanism=1),))

    lines = [record.getMessage() for record in caplog.records if "SCRAM" in record.getMessage()]
    assert [line.split(" principal=")[0] for line in lines] == [
        "SCRAM credential set user=alice",
        "SCRAM credential removed user=alice",
        'SCRAM credential not changed user=bob error=UNSUPPORTED_SASL_MECHANISM reason="Unknown SCRAM mechanism"',
    ]
    assert "secret" not in caplog.text


def test_errors_of_the_whole_request() -> None:
    error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    altered = alter_user_scram_credentials.error_response(
        AlterUserScramCredentialsRequest(upsertions=[upsertion("b"), upsertion("a"), upsertion("a")]), error
    )
    described = describe_user_scram_credentials.error_response(DescribeUserScramCredentialsRequest(users=None), error)

    assert [(result.user, result.error_code) for result in altered.results] == [("a", error.code), ("b", error.code)]
    assert described.error_code == error.code and described.results == []
