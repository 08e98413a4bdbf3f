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

    cluster.leader("orders", 0).kill()

    deadline = time.monotonic() + SEEN_S
    while (health := barnabas_command("cluster", "health")).code == 0 or "orders-5" not in health.out or "without leader" in health.out:
        assert time.monotonic() < deadline, health
        time.sleep(0.05)
    assert health.code == 4 and health.out.startswith("unhealthy\nunder replicated: ")
    (listed,) = barnabas_command.done("topic", "list", "orders", "-o", "json").data
    assert (listed["under_replicated"], listed["without_leader"]) == (6, 0)
    assert len(barnabas_command.done("consume", "orders", "-e").out.split()) == listed["records"]
