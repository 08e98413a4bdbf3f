"""`barnabas quota` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.barnabas.cli.conftest import Command

SEEN_S = 30


def await_quotas(command: Command, quotas: list[dict[str, Any]], *words: str) -> None:
    """Apache Kafka's brokers see a change after the controller's answer."""
    deadline = time.monotonic() + SEEN_S
    while (found := command.done("quota", "list", *words, "-o", "json").data) != quotas:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def test_quotas_are_set_listed_and_deleted(command: Command, topic_name: str) -> None:
    both = ("--user", topic_name, "--client-id", "app")
    command.done("quota", "set", *both, "producer_byte_rate=2000000", "request_percentage=50.5", "--dry-run")
    command.done("quota", "set", *both, "producer_byte_rate=2000000", "request_percentage=50.5")
    command.done("quota", "alter", "--user", topic_name, "--client-id-default", "consumer_byte_rate=7")

    app = {"entity": {"client-id": "app", "user": topic_name}, "quotas": {"producer_byte_rate": 2_000_000.0, "request_percentage": 50.5}}
    default = {"entity": {"client-id": None, "user": topic_name}, "quotas": {"consumer_byte_rate": 7.0}}
    await_quotas(command, [default, app], "--user", topic_name)
    await_quotas(command, [default], "--user", topic_name, "--client-id-default")
    await_quotas(command, [], "--user", topic_name, "--strict")
    table = command.done("quota", "list", *both).out
    assert f"client-id app, user {topic_name}  producer_byte_rate=2000000, request_percentage=50.5" in table
    refused = command("quota", "delete", *both, "producer_byte_rate")
    assert refused.code == 1 and "delete producer_byte_rate=2000000" in refused.err
    command.done("quota", "delete", *both, "producer_byte_rate", "--yes")
    await_quotas(command, [{**app, "quotas": {"request_percentage": 50.5}}], *both)
    command.done("quota", "delete", *both, "--yes")
    await_quotas(command, [], *both)
    assert command("quota", "delete", *both, "--yes").code == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("set", "producer_byte_rate=1"), 2), (("set", "--user", "x", "producer_byte_rate=fast"), 2), (("delete",), 2),
        (("set", "--user", "x", "--user-default", "producer_byte_rate=1"), 2), (("set", "--user", "x", "no_such=1"), 1),
        (("set", "--user", "x"), 2),
    ],
)  # fmt: skip
def test_what_is_refused(command: Command, words: tuple[str, ...], code: int) -> None:
    assert command("quota", *words).code == code
