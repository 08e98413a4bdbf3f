"""Users and delegation tokens outlive a change of the server in both directions, as what they are for: Kafka's own client logs in by them.

Apache Kafka formats the directory with a user, and makes a token; Barnabas takes the directory over and makes another; Kafka takes it back.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.broker import OnKafkasProperties
from tests.support.java_host import JavaHost
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.ports import HOST, free_ports

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class KafkaWithUsers(KafkaServer):
    format_arguments = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]")


class Client:
    """Kafka's tools, at a listener of SASL."""

    def __init__(self, java_host: JavaHost, directory: Path, port: int) -> None:
        self._java_host = java_host
        self._directory = directory
        self._server = ("--bootstrap-server", f"{HOST}:{port}", "--command-config")

    def is_let_in(self, user: str, password: str, *, is_token: bool = False) -> bool:
        words = (*self._server, self._config(user, password, is_token), "--list")
        return self._java_host.tool("TopicCommand", *words, expected_status=None).status == 0

    def make_token(self) -> tuple[str, str]:
        """Id and password of a token of alice."""
        words = (*self._server, self._config("alice", "alice-secret", is_token=False), "--create", "--max-life-time-period", "-1")
        printed = self._java_host.tool("DelegationTokenCommand", *words).stdout
        (row,) = [line.split() for line in printed.splitlines() if "User:alice" in line]
        return row[0], row[1]

    def _config(self, user: str, password: str, is_token: bool) -> str:
        path = self._directory / "client.properties"
        token = " tokenauth=true" if is_token else ""
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\ndefault.api.timeout.ms=20000\nrequest.timeout.ms=10000\n"
            f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}"{token};\n'
        )
        return str(path)


def settings(port: int, plain_port: int, controller_port: int) -> dict[str, str]:
    return {
        "listeners": f"SASL://{HOST}:{port},PLAINTEXT://{HOST}:{plain_port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "delegation.token.secret.key": "a-secret-of-the-nodes",
    }


def test_users_and_tokens_go_from_kafka_to_us_and_back(tmp_path: Path, java_host: JavaHost) -> None:
    kafka_jars()
    ports = free_ports(3)
    client = Client(java_host, tmp_path, ports[0])
    kafka = KafkaWithUsers(tmp_path / "kafka", settings(*ports))
    kafka.port = ports[1]
    kafka.start()
    by_kafka = client.make_token()
    kafka.stop()

    ours = OnKafkasProperties(kafka.directory)
    ours.port = ports[1]
    ours.start()
    taken_over = (client.is_let_in("alice", "alice-secret"), client.is_let_in(*by_kafka, is_token=True))
    refused = client.is_let_in(by_kafka[0], "guessed", is_token=True)
    by_us = client.make_token()
    ours.stop()

    kafka.start()
    given_back = [client.is_let_in(*token, is_token=True) for token in (by_kafka, by_us)]
    kafka.kill()

    assert taken_over == (True, True) and not refused
    assert given_back == [True, True]
