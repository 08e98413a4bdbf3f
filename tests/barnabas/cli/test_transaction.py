"""`barnabas transaction`, and `barnabas cluster info` and `health`, at Barnabas and at Apache Kafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from barnabas.cli.connection import Connection
from tests.barnabas.cli.conftest import Command

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


def test_what_is_not_there(command: Command, topic_name: str) -> None:
    assert "TRANSACTIONAL_ID_NOT_FOUND" in command("transaction", "describe", topic_name).err
    assert command("transaction", "producers", topic_name).code == 1
    assert command("transaction", "list", "--state", "Sleeping").code == 2
    assert command("transaction", "list", "--longer-than", "long").code == 2
    command.done("topic", "create", topic_name)
    assert command("transaction", "producers", topic_name, "-p", "3").code == 2


def test_cluster_tells_its_brokers_and_its_health(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "3")

    facts = command.done("cluster", "info", "-o", "json").data

    (broker,) = facts["brokers"]
    assert (broker["id"], f"{broker['host']}:{broker['port']}") == (1, command.bootstrap)
    assert facts["partitions"] == broker["leaders"] == broker["replicas"] >= 3 and len(facts["cluster_id"]) == 22
    assert f"cluster {facts['cluster_id']}: 1 brokers" in command.done("get", "brokers").out
    assert command.done("cluster", "health").out == "healthy\n"
    assert command.done("cluster", "health", "-o", "json").data == {"is_healthy": True, "without_leader": [], "under_replicated": []}


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_unhealthy_cluster_is_an_exit_code_of_its_own(command: Command, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command.done("topic", "create", topic_name, "-p", "2")
    metadata = Connection.metadata

    def without_leader(connection: Connection) -> object:
        told = metadata(connection)
        told.topics[topic_name].partitions[1].leader = -1
        return told

    monkeypatch.setattr(Connection, "metadata", without_leader)

    unhealthy = command("cluster", "health")

    assert (unhealthy.code, unhealthy.out) == (4, f"unhealthy\nwithout leader: {topic_name}-1\n")
