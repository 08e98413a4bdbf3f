"""SCRAM credentials outlive a change of the server in both directions: Apache Kafka formatted and wrote them, Barnabas took the directory
over and changed them, and Kafka took it back."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.support.broker import OnKafkasProperties
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.quorum import until
from tests.support.wire import WireClient


class KafkaWithUsers(KafkaServer):
    format_arguments = (
        *("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"),
        *("--add-scram", "SCRAM-SHA-512=[name=bob,password=bob-secret,iterations=8192]"),
    )


def described(server: ServerProcess) -> dict[str, dict[int, int]]:
    """The rounds of each user's credentials by mechanism."""
    with WireClient(server.host, server.port) as client:
        answer = client.request(DescribeUserScramCredentialsRequest(users=None), 0)
    return {result.user: {info.mechanism: info.iterations for info in result.credential_infos} for result in answer.results}


def alter(server: ServerProcess, *, sets: str, removes: str = "") -> None:
    upsertion = ScramCredentialUpsertion(name=sets, mechanism=1, iterations=4097, salt=b"salt", salted_password=b"salted")
    deletions = [ScramCredentialDeletion(name=removes, mechanism=1)] if removes else []
    with WireClient(server.host, server.port) as client:
        answer = client.request(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[upsertion]), 0)
    assert {result.error_code for result in answer.results} == {0}


def test_credentials_go_from_kafka_to_us_and_back(tmp_path: Path) -> None:
    kafka_jars()
    kafka = KafkaWithUsers(tmp_path)
    kafka.start()
    alter(kafka, sets="carol")
    kafka.stop()

    ours = OnKafkasProperties(tmp_path)
    ours.port = kafka.port
    ours.start()
    taken_over = described(ours)
    alter(ours, sets="dave", removes="alice")
    ours.stop()

    kafka.start()
    left = {"bob": {2: 8192}, "carol": {1: 4097}, "dave": {1: 4097}}
    try:
        until(lambda: described(kafka) == left, "Kafka knows the users")
    finally:
        kafka.kill()

    assert taken_over == {"alice": {1: 4096}, "bob": {2: 8192}, "carol": {1: 4097}}
