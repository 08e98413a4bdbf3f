"""`barnabas config` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import time
from typing import Any

from tests.barnabas.cli.conftest import Command

SEEN_S = 30


def settings(command: Command, *words: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in command.done("config", "describe", *words, "-o", "json").data}


def await_value(command: Command, value: str | None, *words: str) -> None:
    """Apache Kafka's brokers apply an alteration after they have answered it."""
    deadline = time.monotonic() + SEEN_S
    while settings(command, *words).get(words[2], {}).get("value") != value:
        assert time.monotonic() < deadline, settings(command, *words)
        time.sleep(0.05)


def test_topic_s_settings_have_source_default_and_documentation(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    command.done("config", "set", "topic", topic_name, "max.message.bytes=1000", "--append", "cleanup.policy=compact")
    await_value(command, "1000", "topic", topic_name, "max.message.bytes")

    found = settings(command, "topics", topic_name)

    changed = found["max.message.bytes"]
    assert (changed["value"], changed["source"], changed["default"]) == ("1000", "topic", "1048588")
    assert "argest record batch" in changed["documentation"] and found["cleanup.policy"]["value"] == "delete,compact"
    assert (found["flush.ms"]["source"], found["flush.ms"]["value"]) == ("default", found["flush.ms"]["default"])
    own = settings(command, "topic", topic_name, "--changed")
    assert {name for name, each in own.items() if each["source"] == "topic"} == {"max.message.bytes", "cleanup.policy"}
    assert "DOCUMENTATION" in command.done("config", "get", "topic", topic_name, "flush.ms", "--documentation").out
    listed = {each["name"]: each["settings"] for each in command.done("config", "list", "topics", "-o", "json").data}
    assert listed[topic_name] == {"max.message.bytes": "1000", "cleanup.policy": "delete,compact"}


def test_setting_is_deleted_after_the_question(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-c", "retention.ms=1000", "-c", "flush.ms=7")

    refused = command("config", "delete", "topic", topic_name, "retention.ms")
    assert refused.code == 1 and "delete retention.ms=1000" in refused.err
    command.done("config", "delete", "topic", topic_name, "--all", "--yes")
    await_value(command, "604800000", "topic", topic_name, "retention.ms")

    assert settings(command, "topic", topic_name, "flush.ms")["flush.ms"]["source"] == "default"


def test_brokers_one_and_all(command: Command) -> None:
    (broker, default) = [each["name"] for each in command.done("config", "list", "brokers", "-o", "json").data]
    assert (broker, default) == ("1", "default")

    command.done("config", "set", "broker", "default", "message.max.bytes=2000000")
    await_value(command, "2000000", "broker", broker, "message.max.bytes")
    command.done("config", "alter", "broker", broker, "message.max.bytes=3000000")
    await_value(command, "3000000", "broker", broker, "message.max.bytes")
    both = settings(command, "broker", broker)
    assert (both["message.max.bytes"]["source"], both["message.max.bytes"]["default"]) == ("broker", "1048588")
    assert both["node.id"]["source"] == "server.properties" and both["node.id"]["is_read_only"]
    for name in (broker, "default"):
        command.done("config", "delete", "broker", name, "message.max.bytes", "--yes")
    await_value(command, "1048588", "broker", broker, "message.max.bytes")


def test_groups_and_client_metrics(command: Command, topic_name: str) -> None:
    for kind, setting, value in (("group", "consumer.session.timeout.ms", "50000"), ("client-metrics", "interval.ms", "1000")):
        command.done("config", "set", kind, topic_name, f"{setting}={value}")
        await_value(command, value, kind, topic_name, setting)
        listed = {each["name"]: each["settings"] for each in command.done("config", "list", kind, "-o", "json").data}
        assert listed[topic_name] == {setting: value}
        command.done("config", "delete", kind, topic_name, setting, "--yes")


def test_loggers_of_a_broker(command: Command) -> None:
    """The Apache Kafka of these tests has no logger but the root, whose level cannot be deleted."""
    before = settings(command, "broker-logger", "1")
    logger = "kafka.controller" if "kafka.controller" in before else "root"
    command.done("config", "set", "broker-logger", "1", f"{logger}=ERROR")
    found = settings(command, "broker-logger", "1", logger)[logger]
    assert (found["value"], found["source"], found["default"]) == ("ERROR", "logger", None)
    asked = command("config", "delete", "broker-loggers", "1", logger, "--dry-run")
    assert f"delete {logger}=ERROR of broker-logger 1" in asked.out + asked.err
    assert command("config", "delete", "broker-logger", "1", logger, "--yes").code == (1 if logger == "root" else 0)
    command.done("config", "set", "broker-logger", "1", f"{logger}={before[logger]['value']}")

    assert "INVALID_CONFIG" in command("config", "set", "broker-logger", "1", "no.such=INFO", "--dry-run").err
    for words in (("list", "broker-logger"), ("describe", "broker-logger", "default"), ("delete", "broker-logger", "1", "--all", "--yes")):
        assert command("config", *words).code == 2


def test_what_is_refused(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)

    assert "INVALID_CONFIG" in command("config", "set", "topic", topic_name, "no.such=1").err
    assert "INVALID_CONFIG" in command("config", "set", "topic", topic_name, "retention.ms=long", "--dry-run").err
    assert "UNKNOWN_TOPIC" in command("config", "describe", "topic", f"{topic_name}-not").err
    assert command("config", "describe", "topic", topic_name, "no.such").code == 1
    assert command("config", "describe", "broker", "first").code == 2
    assert command("config", "describe", "nonsense", "x").code == 2
    assert command("config", "set", "topic", topic_name).code == 2
    assert command("config", "delete", "topic", topic_name, "-y").code == 2
    command.done("config", "set", "topic", topic_name, "retention.ms=5", "--dry-run")
    assert settings(command, "topic", topic_name, "retention.ms")["retention.ms"]["source"] == "default"
    command.done("context", "add", "mine", "-b", command.bootstrap, "--read-only")
    assert command("config", "set", "topic", topic_name, "retention.ms=5", "--context", "mine").code == 1
