"""`barnabas.Broker(secure=True)`: TLS and SASL for a test, with users that are made when they are named."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer

import barnabas
from tests.barnabas.test_import import modules_after

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(secure=True, topics={"orders": 1}) as running:
        yield running


def send(config: dict[str, str], topic: str = "orders") -> int | None:
    """The error of a record; None if it was acknowledged."""
    errors: list[KafkaError | None] = []
    producer = Producer({**config, "log_level": 0, "message.timeout.ms": 20_000})
    producer.produce(topic, b"v", on_delivery=lambda error, message: errors.append(error))
    producer.flush(30)
    (error,) = errors
    return None if error is None else error.code()


def test_a_user_is_made_at_the_first_call_and_is_the_same_after_a_restart(broker: barnabas.Broker) -> None:
    config = broker.client_config("alice")
    assert send(config) is None

    broker.kill()
    broker.start()

    assert broker.client_config("alice") == config
    assert broker.client_config("bob")["sasl.password"] != config["sasl.password"]
    assert send(config) is None


def test_what_an_acl_is_about_is_for_those_that_it_names(broker: barnabas.Broker) -> None:
    acl = AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.WRITE, AclPermissionType.ALLOW
    )
    admin = AdminClient(broker.client_config())
    for future in admin.create_acls([acl]).values():
        future.result(30)

    assert send(broker.client_config("alice")) is None
    assert send(broker.client_config("bob")) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_nobody_comes_in_by_a_wrong_password_or_without_tls(broker: barnabas.Broker) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**broker.client_config("alice"), "sasl.password": "guessed", "error_cb": errors.append, "log_level": 0})
    deadline_s = time.monotonic() + 30
    while not errors and time.monotonic() < deadline_s:
        producer.poll(0.1)

    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]
    with socket.create_connection((broker.host, broker.port), 10) as plain:
        plain.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff")
        assert b"\0\x12" not in plain.recv(100)  # TLS's alert


def test_other_clients_trust_it_by_its_file(broker: barnabas.Broker) -> None:
    config = broker.client_config("alice")
    assert send(config) is None

    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_cafile=broker.ca_file,
        sasl_mechanism=config["sasl.mechanism"],
        sasl_plain_username="alice",
        sasl_plain_password=config["sasl.password"],
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    record = next(consumer)
    consumer.close()

    assert record.value == b"v"


def test_secrets_are_in_one_private_file_and_in_no_log_or_command_line(broker: barnabas.Broker) -> None:
    passwords = [broker.client_config(user)["sasl.password"] for user in (None, "alice")]
    path = Path(broker.data_dir) / "barnabas-secure.json"

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(broker.data_dir).st_mode) == 0o700
    secrets = [*passwords, json.loads(path.read_text())["key"].splitlines()[1]]
    command_line = Path(f"/proc/{broker.pid}/cmdline").read_text()
    assert [secret for secret in secrets if secret in broker.log or secret in command_line] == []


def test_an_async_broker_is_the_same() -> None:
    async def make() -> int | None:
        async with barnabas.AsyncBroker(secure=True, topics=["orders"]) as broker:
            config = await broker.client_config("alice")
            return await asyncio.to_thread(send, config)

    assert asyncio.run(make()) is None


def test_a_plain_broker_has_no_users() -> None:
    with barnabas.Broker() as broker:
        assert broker.client_config() == {"bootstrap.servers": broker.bootstrap_servers}
        with pytest.raises(barnabas.BrokerError, match="not secure"):
            broker.client_config("alice")


@pytest.mark.parametrize("config", [{"listeners": "PLAINTEXT://:0"}, {"log.dirs": "/tmp/x"}])
def test_settings_that_would_open_it_are_refused(config: dict[str, object]) -> None:
    with pytest.raises(barnabas.BrokerError, match="a secure broker has"):
        barnabas.Broker(config, secure=True)


def test_openssl_is_loaded_for_a_secure_broker_only() -> None:
    loaded = modules_after("import barnabas; barnabas.Broker")

    assert "barnabas._broker" in loaded
    assert not loaded & {"ssl", "_ssl"}
