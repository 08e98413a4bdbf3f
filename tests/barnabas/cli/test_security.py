"""`barnabas acl` and `barnabas user` at Barnabas and at Apache Kafka, and every kind of client properties at a secured broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from tests.barnabas.cli.conftest import Command

SEEN_S = 30


def await_count(command: Command, count: int, *words: str) -> list[dict[str, Any]]:
    """Apache Kafka's brokers see a change after the controller's answer."""
    deadline = time.monotonic() + SEEN_S
    while len(found := command.done(*words, "-o", "json").data) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return list(found)


def test_rules_are_made_found_and_deleted(command: Command, topic_name: str) -> None:
    words = ("--allow-principal", topic_name, "--deny-principal", f"User:{topic_name}", "--deny-host", "10.0.0.1")
    made = command.done(
        "acl", "create", *words, "--operation", "read", "--operation", "DescribeConfigs", "--topic", topic_name, "-o", "json"
    )
    assert len(made.data) == 4

    found = await_count(command, 4, "acl", "list", "--topic", topic_name)
    assert found == sorted(made.data, key=found.index)
    assert {(each["permission"], each["host"]) for each in found} == {("Allow", "*"), ("Deny", "10.0.0.1")}
    assert found[0].keys() == {"principal", "host", "resource_type", "resource_name", "pattern_type", "operation", "permission"}
    assert len(command.done("get", "acls", "--deny-principal", topic_name, "-o", "json").data) == 2
    refused = command("acl", "delete", "--topic", topic_name, "--operation", "read")
    assert refused.code == 1 and f"delete: User:{topic_name} from *: Allow Read on Topic {topic_name}" in refused.err
    command.done("acl", "delete", "--topic", topic_name, "--operation", "read", "--yes")
    await_count(command, 2, "acl", "list", "--topic", topic_name)
    command.done("acl", "delete", "--allow-principal", topic_name, "--yes")
    await_count(command, 0, "acl", "list", "--allow-principal", topic_name)
    assert command("acl", "delete", "--allow-principal", topic_name, "--yes").code == 1


def test_producer_and_consumer_and_prefixes(command: Command, topic_name: str) -> None:
    words = ("--topic", topic_name, "--group", topic_name, "--transactional-id", topic_name, "--pattern-type", "prefixed", "--idempotent")
    command.done("acl", "create", "--allow-principal", topic_name, "--producer", "--consumer", *words)

    found = await_count(command, 8, "acl", "list", "--allow-principal", topic_name)

    assert {(each["resource_type"], each["operation"], each["pattern_type"]) for each in found} == {
        ("Topic", "Write", "Prefixed"), ("Topic", "Describe", "Prefixed"), ("Topic", "Create", "Prefixed"), ("Topic", "Read", "Prefixed"),
        ("Group", "Read", "Prefixed"), ("TransactionalId", "Write", "Prefixed"), ("TransactionalId", "Describe", "Prefixed"),
        ("Cluster", "IdempotentWrite", "Literal"),
    }  # fmt: skip
    covering = command.done(
        "acl", "list", "--topic", f"{topic_name}-1", "--pattern-type", "match", "--operation", "read", "-o", "json"
    ).data
    assert [each["resource_name"] for each in covering] == [topic_name]
    command.done("acl", "delete", "--allow-principal", topic_name, "--yes")


def test_deciding_rule_is_told(command: Command, topic_name: str) -> None:
    command.done(
        "acl", "create", "--allow-principal", topic_name, "--operation", "write", "--topic", topic_name, "--pattern-type", "prefixed"
    )
    command.done("acl", "create", "--deny-principal", "*", "--deny-host", "10.0.0.1", "--operation", "all", "--topic", f"{topic_name}-1")
    await_count(command, 2, "acl", "list", "--topic", topic_name, "--topic", f"{topic_name}-1")

    def asked(who: str, operation: str, *words: str, topic: str = f"{topic_name}-1") -> tuple[int, bool | None, str]:
        result = command("acl", "test", who, operation, f"topic:{topic}", *words, "-o", "json")
        (row,) = result.data
        return result.code, row["is_allowed"], row["why"]

    prefix = f"User:{topic_name} from *: Allow Write on Topic prefix {topic_name}"
    assert asked(topic_name, "write") == asked(f"User:{topic_name}", "describe") == (0, True, prefix)
    assert asked(topic_name, "read") == (1, False, "no rule allows it")
    assert asked(topic_name, "write", "--host", "10.0.0.1") == (1, False, f"User:* from 10.0.0.1: Deny All on Topic {topic_name}-1")
    assert asked("somebody", "write", topic=f"other-{topic_name}")[:2] in ((1, False), (1, None)), "Apache Kafka does not tell the default"
    if command.done("config", "describe", "broker", "1", "super.users", "-o", "json").data[0]["value"]:
        assert asked("ANONYMOUS", "alter") == (0, True, "super.users")
    for words in (("x", "fly", "topic:x"), ("x", "read", "x"), ("x", "read", "topic:"), ("x", "all", "cluster"), ("x", "read")):
        assert command("acl", "test", *words).code == 2


@pytest.mark.parametrize(
    "words",
    [("create",), ("create", "--allow-principal", "x"), ("create", "--allow-principal", "x", "--operation", "fly"), ("delete",)],
)  # fmt: skip
def test_rules_that_say_nothing(command: Command, words: tuple[str, ...]) -> None:
    assert command("acl", *words).code == 2


def test_users_are_made_changed_and_deleted(command: Command, topic_name: str) -> None:
    assert command("user", "create", topic_name, stdin="").code == 2
    command.done("user", "create", topic_name, stdin="secret\n")
    deadline = time.monotonic() + SEEN_S
    while topic_name not in (listed := command.done("user", "list").out):
        assert time.monotonic() < deadline
    assert "SCRAM-SHA-512" in listed and "secret" not in listed

    assert command("user", "create", topic_name, stdin="other\n").code == 1
    generated = command.done("user", "update", topic_name, "--generate", "--mechanism", "scram-sha-256", "--iterations", "5000").out
    assert len(generated.strip()) >= 24
    assert command("user", "set-password", f"{topic_name}-not", "--generate").code == 1

    def own() -> list[tuple[str, int]]:
        return [
            (each["mechanism"], each["iterations"])
            for each in command.done("user", "list", "-o", "json").data
            if each["user"] == topic_name
        ]

    while own() != [("SCRAM-SHA-256", 5_000), ("SCRAM-SHA-512", 4_096)]:
        assert time.monotonic() < deadline
    assert command("user", "delete", topic_name).code == 1
    command.done("user", "delete", topic_name, "--yes")
    while own():
        assert time.monotonic() < deadline
    assert command("user", "delete", topic_name, "--yes").code == 1


def test_read_only_context_refuses_changes(command: Command, topic_name: str) -> None:
    command.done("context", "add", "mine", "-b", command.bootstrap, "--read-only")

    for words in (
        ("acl", "create", "--allow-principal", "x", "--operation", "read", "--topic", topic_name), ("acl", "delete", "--all", "--yes"),
        ("user", "create", topic_name, "--generate"), ("user", "set-password", topic_name, "--generate"),
        ("user", "delete", topic_name, "--yes"),
    ):  # fmt: skip
        refused = command(*words, "--context", "mine")
        assert refused.code == 1 and "read-only" in refused.err


@pytest.fixture(scope="module")
def secure() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(secure=True, topics={"orders": 1}) as broker:
        yield broker


def write(path: Path, properties: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def java_properties(broker: barnabas.Broker, password: str) -> dict[str, str]:
    given = broker.client_config()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "ssl.truststore.type": "PEM", "ssl.truststore.location": broker.ca_file,
        "sasl.jaas.config": f'{module} required username="{given["sasl.username"]}" password="{password}";',
    }  # fmt: skip


def test_secured_broker_by_the_file_of_either_kind(barnabas_command: Command, secure: barnabas.Broker, tmp_path: Path) -> None:
    of_librdkafka = write(tmp_path / "librdkafka.conf", secure.client_config())
    of_java = write(tmp_path / "java.properties", java_properties(secure, secure.client_config()["sasl.password"]))

    barnabas_command.done("produce", "orders", "-F", of_librdkafka, stdin="one\n")
    barnabas_command.done("context", "add", "secured", "-F", of_java)

    assert barnabas_command.done("consume", "orders", "-e", "--context", "secured").out == "one\n"
    for how in (("-F", of_librdkafka), ("-F", of_java), ("--context", "secured")):
        (row,) = barnabas_command.done("topic", "list", "-o", "json", *how).data
        assert row["records"] == 1 and row["size_bytes"] > 0, "the second is told on the wire"
    assert barnabas_command.done("config", "describe", "broker", "1", "node.id", "--context", "secured").code == 0


def test_broker_that_does_not_let_us_in_is_no_broker_that_is_not_there(
    barnabas_command: Command, secure: barnabas.Broker, tmp_path: Path
) -> None:
    wrong = write(tmp_path / "wrong.properties", java_properties(secure, "guessed"))

    for words in (("topic", "list"), ("config", "describe", "broker", "1")):
        refused = barnabas_command(*words, "-F", wrong)
        assert refused.code == 1 and "guessed" not in refused.err and refused.err.count("\n") == 1, refused
    plain = barnabas_command("topic", "list", "-b", secure.bootstrap_servers, "--timeout", "2")
    assert plain.code in (1, 3) and plain.err.count("\n") == 1
