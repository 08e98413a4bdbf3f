"""`barnabas cluster info` and `health`, and the other commands at a cluster of several brokers, one of which dies."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import barnabas
from tests.barnabas.cli.conftest import Command

SEEN_S = 60


def test_cluster_tells_its_brokers_and_its_health(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "3")

    facts = command.done("cluster", "info", "-o", "json").data

    (broker,) = facts["brokers"]
    assert (broker["id"], f"{broker['host']}:{broker['port']}") == (1, command.bootstrap)
    assert facts["partitions"] == broker["leaders"] == broker["replicas"] >= 3 and len(facts["cluster_id"]) == 22
    assert f"cluster {facts['cluster_id']}: 1 brokers" in command.done("get", "brokers").out
    assert command.done("cluster", "health").out == "healthy\n"
    assert command.done("cluster", "health", "-o", "json").data == {"is_healthy": True, "without_leader": [], "under_replicated": []}


@pytest.fixture(scope="module")
def cluster() -> Iterator[barnabas.Cluster]:
    with barnabas.Cluster(topics={"orders": 6}) as cluster:
        yield cluster


def test_each_partition_is_asked_at_its_leader(
    barnabas_command: Command, cluster: barnabas.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", cluster.bootstrap_servers.split(",")[0])
    lines = "".join(f'{{"value": "{number}", "partition": {number % 6}}}\n' for number in range(60))

    barnabas_command.done("produce", "orders", "--json", stdin=lines)

    assert sorted(map(int, barnabas_command.done("consume", "orders", "-e").out.split())) == [*range(60)]
    (listed,) = barnabas_command.done("topic", "list", "orders", "-o", "json").data
    assert (listed["records"], listed["replicas"], listed["under_replicated"]) == (60, 3, 0) and listed["size_bytes"] > 3 * 60
    leaders = {each["leader"] for each in barnabas_command.done("topic", "describe", "orders", "-o", "json").data[0]["partitions"]}
    assert len(leaders) == 3
    barnabas_command.done("group", "reset", "readers", "--to", "start", "--topic", "orders", "--yes")
    assert barnabas_command.done("group", "describe", "readers", "-o", "json").data[0]["lag"] == 60
    barnabas_command.done("topic", "trim", "orders", "--before", "4", "--yes")
    assert barnabas_command.done("topic", "list", "orders", "-o", "json").data[0]["records"] == 36
    assert len(barnabas_command.done("transaction", "producers", "orders", "-o", "json").data) == 6
    for broker in leaders:
        assert barnabas_command.done("config", "describe", "broker", str(broker), "node.id", "-o", "json").data[0]["value"] == str(broker)


def test_cluster_without_one_of_its_brokers_is_unhealthy(
    barnabas_command: Command, cluster: barnabas.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    assert barnabas_command("cluster", "health").code == 0

    killed = barnabas_command.done("topic", "describe", "orders", "-o", "json").data[0]["partitions"][0]["leader"]
    cluster.leader("orders", 0).kill()

    deadline = time.monotonic() + SEEN_S
    while (health := barnabas_command("cluster", "health")).code == 0 or "orders-5" not in health.out or "without leader" in health.out:
        assert time.monotonic() < deadline, health
        time.sleep(0.05)
    assert health.code == 4 and health.out.startswith("unhealthy\nunder replicated: ")
    (listed,) = barnabas_command.done("topic", "list", "orders", "-o", "json").data
    assert (listed["under_replicated"], listed["without_leader"]) == (6, 0)
    for each in barnabas_command.done("topic", "describe", "orders", "-o", "json").data[0]["partitions"]:
        assert each["lags"] == [None if replica == killed else 0 for replica in each["replicas"]]
    assert len(barnabas_command.done("consume", "orders", "-e").out.split()) == listed["records"]


def test_log_directories_are_shown_and_cordoned(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "2")

    (row,) = command.done("cluster", "log-dirs", "--topic", topic_name, "-o", "json").data

    assert (row["broker"], row["state"], row["replicas"], row["moving"]) == (1, "online", 2, 0) and row["total_bytes"] >= row[
        "usable_bytes"
    ]
    assert [(each["topic"], each["partition"], each["offset_lag"]) for each in row["partitions"]] == [
        (topic_name, 0, 0),
        (topic_name, 1, 0),
    ]
    assert f"{topic_name}          0" in command.done("cluster", "log-dirs", "1", "-t", topic_name).out
    assert [command("cluster", *words).code for words in (("log-dirs", "7"), ("cordon", "7"), ("cordon", "1", "/nowhere"))] == [1, 3, 1]
    command.done("cluster", "features", "upgrade", "--metadata", "4.3-IV0", "--yes")
    command.done("cluster", "cordon", "1", "--dry-run")
    assert command.done("cluster", "cordon", "1").out == f"broker 1: {row['log_dir']} cordoned\n"
    seen_as(command, "cordoned")
    command.done("cluster", "uncordon", "1", row["log_dir"])
    seen_as(command, "online")


def seen_as(command: Command, state: str) -> None:
    """Apache Kafka applies an alteration after its answer."""
    deadline = time.monotonic() + SEEN_S
    while command.done("cluster", "log-dirs", "-o", "json").data[0]["state"] != state:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_quorum_of_one_is_shown(command: Command) -> None:
    facts = command.done("cluster", "quorum", "-o", "json").data

    (leader,) = facts["replicas"]
    assert (facts["leader_id"], leader["id"], leader["role"], leader["lag"]) == (1, 1, "leader", 0) and facts["high_watermark"] > 0
    assert command.done("cluster", "quorum", "describe").out.startswith("leader 1 in epoch ")
    assert command("cluster", "quorum", "remove-voter", "7", "--yes").code == 1
    last = command("cluster", "quorum", "remove-voter", "1", "--yes")
    assert last.code == 1 and "0 of 1 voters remain" in last.err and last.err.count("\n") == 2


def test_features_are_shown_and_changed(command: Command) -> None:
    def level(name: str) -> int:
        return next(each["level"] for each in command.done("cluster", "features", "-o", "json").data if each["feature"] == name)

    assert "metadata.version" in command.done("cluster", "features", "describe", "--output", "wide").out
    newest = level("metadata.version")
    refused = command("cluster", "features", "downgrade", "--feature", "transaction.version=1")
    assert refused.code == 1 and "transaction.version: from 2 to 1" in refused.err
    changed = command.done("cluster", "features", "downgrade", "--feature", "transaction.version=1", "--yes", "-o", "json").data
    assert changed == [{"feature": "transaction.version", "outcome": "level 1", "is_done": True}]
    command.done("cluster", "features", "upgrade", "-f", "transaction.version=2", "--yes")
    assert (level("transaction.version"), level("metadata.version")) == (2, newest)
    assert "nothing was done" in command.done("cluster", "features", "upgrade", "--release-version", "4.3", "--dry-run").err
    impossible = command("cluster", "features", "upgrade", "-f", "metadata.version=999", "--yes")
    assert impossible.code == 1 and "metadata.version" in impossible.err
    for words in ((), ("--release-version", "9.9"), ("-f", "x"), ("-f", "x=y"), ("--release-version", "4.0", "-f", "x=1")):
        assert command("cluster", "features", "upgrade", *words).code == 2


def test_features_that_keep_our_nodes_out_of_a_cluster_of_kafka_are_lowered(command: Command) -> None:
    """As docs/moving.md has it. Apache Kafka finalizes both; ours has neither."""

    def levels() -> dict[str, int]:
        told = command.done("cluster", "features", "-o", "json").data
        return {each["feature"]: each["level"] for each in told if each["feature"] in ("share.version", "streams.version")}

    both = ("--feature", "share.version=0", "--feature", "streams.version=0")
    before = levels()
    assert before in ({}, {"share.version": 1, "streams.version": 1})

    if before:
        command.done("cluster", "features", "downgrade", *both, "--yes")

    assert set(levels().values()) <= {0}


def test_single_broker_has_nobody_to_move_to_or_to_forget(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "2")

    assert command.done("topic", "reassign", topic_name, "--yes").out == "nothing to move\n"
    assert command.done("topic", "reassign", topic_name, "--yes", "-o", "json").data == []
    assert "2 replicas need as many brokers" in command("topic", "reassign", topic_name, "-r", "2").err
    assert command.done("cluster", "reassign", "status", "-o", "json").data == []
    assert command.done("cluster", "reassign", "cancel", "--yes").out == "nothing is being moved\n"
    assert "no partition needs an election" in command.done("cluster", "elect-leaders").out
    assert command("cluster", "unregister", "7", "--yes").code == 1
    assert "it is alive" in command.done("cluster", "unregister", "1", "--dry-run").err
