"""`barnabas transaction` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from protocol.errors import ErrorCode
from tests.barnabas.cli.conftest import Command
from tests.support.raw_transactions import produce
from tests.support.wire import WireClient

SEEN_S = 30


def test_open_transaction_is_listed_described_and_found_in_its_topic(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": topic_name, "transaction.timeout.ms": 50_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, "x")
    producer.flush(30)

    (listed,) = [each for each in command.done("txn", "list", "-o", "json").data if each["transactional_id"] == topic_name]
    (described,) = command.done("transaction", "describe", topic_name, "-o", "json").data
    (open_one,) = command.done("txn", "describe-producers", topic_name, "--open", "-o", "json").data

    assert listed == {"transactional_id": topic_name, "coordinator": 1, "producer_id": described["producer_id"], "state": "Ongoing"}
    assert described["partitions"] == [f"{topic_name}-0"] and described["timeout_ms"] == 50_000 and described["open_for_ms"] >= 0
    assert (open_one["partition"], open_one["producer_id"], open_one["transaction_start_offset"]) == (0, described["producer_id"], 0)
    assert topic_name in command.done("transaction", "list", "--state", "Ongoing").out
    assert topic_name not in command.done("transaction", "list", "--longer-than", "1h").out
    producer.abort_transaction(30)
    deadline = time.monotonic() + SEEN_S
    while command.done("transaction", "producers", topic_name, "-p", "0", "--open", "-o", "json").data:  # Kafka writes markers later
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_hanging_transaction_is_aborted_in_its_partition(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, "x")
    producer.flush(30)
    where = (topic_name, "-p", "0", "--start-offset")

    assert command("transaction", "abort", *where, "1", "--yes").code == 1
    assert command("transaction", "abort", *where, "0").code == 1
    command.done("txn", "abort", *where, "0", "--yes")

    assert command.done("transaction", "producers", topic_name, "--open", "-o", "json").data == []
    command.done("produce", topic_name, stdin="after\n")
    assert command.done("consume", topic_name, "-e").out == "after\n"


def test_transaction_that_no_coordinator_knows_is_found(command: Command, topic_name: str) -> None:
    """As they came from bugs before transactions were verified (KIP-890)."""
    verified = "transaction.partition.verification.enable"
    command.done("topic", "create", topic_name)
    command.done("config", "set", "broker", "1", f"{verified}=false")
    producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, "known")
    producer.flush(30)
    host, _, port = command.bootstrap.rpartition(":")
    deadline = time.monotonic() + SEEN_S
    with WireClient(host, int(port)) as client:
        while produce(client.request, "hung", (4711, 0), topic_name, age_ms=3_600_000) is not ErrorCode.NONE:  # Kafka hears of it later
            assert time.monotonic() < deadline
            time.sleep(0.02)

    assert command.done("txn", "find-hanging", topic_name, "--older-than", "2h", "-o", "json").data == []
    (found,) = command.done("transaction", "find-hanging", topic_name, "--older-than", "0s", "-o", "json").data

    assert (found["topic"], found["partition"], found["start_offset"], found["producer_id"]) == (topic_name, 0, 1, 4711)
    assert command.done("transaction", "find-hanging", topic_name, "--broker", "7", "-o", "json").data == []
    assert command("transaction", "find-hanging", topic_name, "-p", "3").code == 2
    assert command("transaction", "find-hanging", "-p", "3").code == 2
    command.done("txn", "abort", topic_name, "-p", "0", "--start-offset", "1", "--yes")
    assert command.done("transaction", "find-hanging", topic_name, "-o", "json").data == []
    producer.abort_transaction(30)
    command.done("config", "delete", "broker", "1", verified, "--yes")


def test_what_is_not_there(command: Command, topic_name: str) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in command("transaction", "describe", topic_name).err
    assert command("transaction", "producers", topic_name).code == 1
    assert command("transaction", "list", "--state", "Sleeping").code == 2
    assert command("transaction", "list", "--longer-than", "long").code == 2
    command.done("topic", "create", topic_name)
    assert command("transaction", "producers", topic_name, "-p", "3").code == 2
