"""SCRAM users and delegation tokens on a listener, by stock clients and Kafka's own tools."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost
from tests.support.ports import HOST, free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKENS = "DelegationTokenCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PATIENCE_S = 20.0


class Served:
    """A broker with a listener of SCRAM, whose cluster began with the user alice."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, plain_port = free_ports(2)
        self.broker = BrokerProcess(
            directory / "broker",
            {
                "node.id": "1",
                "listeners": f"SASL://{HOST}:{self.port},PLAINTEXT://{HOST}:{plain_port}",
                "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
                "delegation.token.secret.key": "a-secret-of-the-nodes",
            },
        )
        self.broker.port = plain_port

    def log_in(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> bool:
        """Whether librdkafka gets in."""
        failures: list[Any] = []
        admin = AdminClient(
            {
                "bootstrap.servers": f"{HOST}:{self.port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": password,
                "error_cb": failures.append,
            }
        )
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                return bool(admin.list_topics(timeout=1).brokers)
            except KafkaException:
                admin.poll(0)
                if any("authentication" in str(failure).lower() for failure in failures):
                    return False
        raise AssertionError(f"neither in nor refused: {failures}")

    def command_config(self, user: str, password: str, *, is_token: bool = False) -> str:
        """A file for Kafka's tools."""
        path = self.directory / f"{re.sub('[^a-z]', '', user.lower())}.properties"
        token = " tokenauth=true" if is_token else ""
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}"{token};\n'
        )
        return str(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("credentials"))
    served.broker.format(CLUSTER_ID, "--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]")
    served.broker.start()
    yield served
    served.broker.stop()


def test_who_was_added_by_format_logs_in_and_others_do_not(served: Served) -> None:
    assert served.log_in("alice", "alice-secret")
    assert not served.log_in("alice", "guessed")
    assert not served.log_in("nobody", "alice-secret")
    assert not served.log_in("alice", "alice-secret", "SCRAM-SHA-512")  # she has none for it


def test_a_user_is_added_changed_and_removed_by_kafka_configs_and_is_there_after_a_kill(served: Served, java_host: JavaHost) -> None:
    def alter(*words: str) -> None:
        java_host.tool(CONFIGS, "--bootstrap-server", served.broker.bootstrap, "--entity-type", "users", "--entity-name", "bob", *words)

    alter("--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=first]")
    assert served.log_in("bob", "first", "SCRAM-SHA-512")

    alter("--alter", "--add-config", "SCRAM-SHA-512=[password=second]")
    assert not served.log_in("bob", "first", "SCRAM-SHA-512")
    served.broker.kill()
    served.broker.start()
    assert served.log_in("bob", "second", "SCRAM-SHA-512")

    alter("--alter", "--delete-config", "SCRAM-SHA-512")
    assert not served.log_in("bob", "second", "SCRAM-SHA-512")


def test_a_token_is_made_used_renewed_and_removed_by_kafka_s_tool(served: Served, java_host: JavaHost) -> None:
    alice = served.command_config("alice", "alice-secret")

    def tool(*words: str, config: str = alice, expected_status: int | None = 0) -> str:
        server = ("--bootstrap-server", f"{HOST}:{served.port}", "--command-config", config)
        result = java_host.tool(TOKENS, *server, *words, expected_status=expected_status)
        return result.stdout + result.stderr

    def topics(config: str) -> int:
        words = ("--bootstrap-server", f"{HOST}:{served.port}", "--command-config", config, "--list")
        return java_host.tool("TopicCommand", *words, expected_status=None).status

    created = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    (row,) = [line.split() for line in created.splitlines() if "User:alice" in line]
    token_id, token_hmac = row[0], row[1]
    by_token = served.command_config(token_id, token_hmac, is_token=True)

    assert token_id in tool("--describe", "--owner-principal", "User:alice")
    assert topics(by_token) == 0
    assert topics(served.command_config("wrong", token_hmac, is_token=True)) != 0
    assert "not allowed" in tool("--create", "--max-life-time-period", "-1", config=by_token, expected_status=None)
    assert "Completed renew" in tool("--renew", "--renew-time-period", "-1", "--hmac", token_hmac)
    assert "Completed expire" in tool("--expire", "--expiry-time-period", "-1", "--hmac", token_hmac)
    assert token_id not in tool("--describe", "--owner-principal", "User:alice")
    assert topics(by_token) != 0


def test_no_secret_is_in_the_log(served: Served) -> None:
    """Of the tests before, in whatever order."""
    served.log_in("alice", "a-wrong-password")

    text = served.broker.log_path.read_text()

    assert not any(secret in text for secret in ("alice-secret", "a-wrong-password", "a-secret-of-the-nodes"))
