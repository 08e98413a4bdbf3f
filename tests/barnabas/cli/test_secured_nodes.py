"""The verbs that need several nodes or a moment, over SASL_SSL at three nodes: by an administrator, and by a user without rights.

`make test` runs them at nodes of ours; with BARNABAS_TEST_SERVER=kafka they are Apache Kafka's.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from config.loading import read_properties
from tests.barnabas.cli.conftest import Command
from tests.barnabas.cli.test_secured_verbs import NODES, add_context
from tests.support.secured_cluster import SecuredCluster

TOPIC, GROUP, TRANSACTIONAL_ID, MEMBER = "orders", "dashboard", "payments", "host-7"
SETTINGS = {"auto.leader.rebalance.enable": "false", "replica.fetch.max.bytes": "1000"}
SEEN_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(
        tmp_path_factory.mktemp("nodes"), 3, kind=os.environ.get("BARNABAS_TEST_SERVER", "barnabas"), settings=SETTINGS
    ) as cluster:
        yield cluster


@pytest.fixture
def admin(barnabas_command: Command, cluster: SecuredCluster) -> Command:
    add_context(barnabas_command, cluster.directory / "client.properties")
    return barnabas_command


def until(command: Command, *words: str, has: str) -> None:
    deadline = time.monotonic() + SEEN_S
    while has not in command.done(*words, "-o", "json").out:
        assert time.monotonic() < deadline, (words, has)


def quorum(command: Command) -> dict[int, dict[str, Any]]:
    return {each["id"]: each for each in command.done("cluster", "quorum", "-o", "json").data["replicas"]}


def change(command: Command, node_id: int, *words: str, to: str) -> None:
    """Ask until the node has that role. On a busy machine the leader may change during a request, or the observer may be behind."""
    deadline = time.monotonic() + SEEN_S
    while (found := quorum(command).get(node_id, {}).get("role")) != to:
        result = command(*words)
        assert time.monotonic() < deadline, (words, found, result.err)


def listener_of(command: Command, node_id: int) -> str:
    (found,) = quorum(command)[node_id]["endpoints"]
    return str(found)


def test_replicas_and_leaders_move(admin: Command) -> None:
    admin.done("topic", "create", TOPIC, "-r", "1", "-p", "2")
    for _ in range(3):  # each in a batch of its own: the throttle lets one of them through
        admin.done("produce", TOPIC, "-p", "0", stdin="x" * 50_000)
    described = admin.done("topic", "describe", TOPIC, "-o", "json").data[0]["partitions"]
    leader = int(described[0]["leader"])

    admin.done("topic", "reassign", TOPIC, "--to-brokers", str(leader % 3 + 1), "--throttle", "1", "--yes")
    assert "cancelled" in admin.done("cluster", "reassign", "cancel", TOPIC, "--yes").out
    admin.done("cluster", "reassign", "status", "--wait", "--clear-throttles")
    admin.done("topic", "reassign", TOPIC, "-r", "3", "--wait", "--yes")
    replicas = admin.done("topic", "describe", TOPIC, "-o", "json").data[0]["partitions"][0]["replicas"]
    plan = {"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [*reversed(replicas)]}]}
    admin.done("topic", "reassign", "--from", "-", "--wait", "--yes", stdin=json.dumps(plan))
    while admin.done("topic", "describe", TOPIC, "-o", "json").data[0]["partitions"][0]["replicas"] == replicas:
        pass
    assert admin.done("cluster", "elect-leaders", "-t", f"{TOPIC}:0", "-o", "json").data[0]["outcome"] == "elected"
    assert TOPIC in admin.done("top", "--once", "--interval", "0.05").out


def test_who_has_no_rights_is_refused_by_each_of_them(barnabas_command: Command, cluster: SecuredCluster) -> None:
    cluster.add_user("nobody")
    add_context(barnabas_command, cluster.directory / "nobody.properties")
    words_by_verb: dict[tuple[str, ...], tuple[str, ...]] = {
        ("transaction", "describe"): (TRANSACTIONAL_ID,),
        ("transaction", "abort"): (TOPIC, "-p", "0", "--start-offset", "0", "--yes"),
        ("group", "remove-member"): (GROUP, "--all", "--yes"),
        ("cluster", "reassign", "cancel"): ("--yes",),
        ("cluster", "elect-leaders"): ("--topic", TOPIC),
        ("cluster", "cordon"): ("1",),
        ("cluster", "uncordon"): ("1",),
        ("cluster", "unregister"): ("3", "--yes"),
        ("cluster", "quorum", "add-voter"): ("3", "--listener", "CONTROLLER://localhost:1", "--yes"),
        ("cluster", "quorum", "remove-voter"): ("3", "--yes"),
        ("cluster", "features", "upgrade"): ("--metadata", "4.1", "--yes"),
        ("cluster", "features", "downgrade"): ("--feature", "transaction.version=1", "--yes"),
    }

    for verb, words in words_by_verb.items():
        result = barnabas_command(*verb, *words)
        assert result.code == 1, (verb, result)
        said = result.err.splitlines()[-1]  # what it would do comes before it
        assert re.fullmatch(rf"barnabas {' '.join(verb)}: .*(AUTHORIZATION_FAILED|there is no topic).*", said), (verb, result)
    assert {*words_by_verb, ("top",)} == NODES
    assert TOPIC not in barnabas_command.done("top", "--once", "--interval", "0.05").out


def test_member_transaction_and_features(admin: Command, cluster: SecuredCluster) -> None:
    client = cluster.administrator().librdkafka()
    member = Consumer({**client, "group.id": GROUP, "group.instance.id": MEMBER, "enable.auto.commit": False})
    member.subscribe([TOPIC])
    while not member.assignment():
        member.poll(0.1)
    assert "removed" in admin.done("group", "remove-member", GROUP, "--instance", MEMBER, "--yes").out
    member.close()
    producer = Producer({**client, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(SEEN_S)
    producer.begin_transaction()
    producer.produce(TOPIC, "y", partition=1)
    producer.flush(SEEN_S)
    assert admin.done("transaction", "describe", TRANSACTIONAL_ID, "-o", "json").data[0]["state"] == "Ongoing"
    assert "aborted" in admin.done("transaction", "abort", TOPIC, "-p", "1", "--start-offset", "0", "--yes").out

    admin.done("cluster", "features", "upgrade", "--metadata", "4.3-IV0", "--yes")
    until(admin, "cluster", "features", has="4.3-IV0")
    admin.done("cluster", "cordon", "2")
    until(admin, "cluster", "log-dirs", "2", has='"cordoned"')
    admin.done("cluster", "uncordon", "2")
    until(admin, "cluster", "log-dirs", "2", has='"online"')
    admin.done("cluster", "features", "downgrade", "--feature", "group.version=0", "--yes")


def add_and_remove_by_kafkas_tool(admin: Command, cluster: SecuredCluster, node_id: int, where: str) -> None:
    """The file of add-controller is the node's, whose keys and trust count, and has the administrator's login besides."""
    login, file = cluster.directory / "client.properties", cluster.directory / "of-the-controller.properties"
    own = cluster.directory / f"node-{node_id}" / "server.properties"
    of_login = [f"{key}={value}\n" for key, value in read_properties(login).items() if not key.startswith("ssl.")]
    file.write_text("\n".join((own.read_text(), *of_login)))
    address = cluster.administrator().bootstrap
    by_tool = ("kafka-tool", "kafka-metadata-quorum.sh", "--bootstrap-server", address, "--command-config")

    remove = ("remove-controller", "-i", str(node_id), "-d", quorum(admin)[node_id]["directory_id"])
    change(admin, node_id, *by_tool, str(login), *remove, to="observer")
    assert admin.done(*by_tool, str(file), "add-controller", "--dry-run").out.endswith(f" and endpoints: {where}\n")
    change(admin, node_id, *by_tool, str(file), "add-controller", to="voter")


def test_voters_change_and_a_broker_is_forgotten(admin: Command, cluster: SecuredCluster) -> None:
    moved = next(node_id for node_id, each in quorum(admin).items() if each["role"] == "voter")
    where = listener_of(admin, moved)

    change(admin, moved, "cluster", "quorum", "remove-voter", str(moved), "--yes", to="observer")
    change(admin, moved, "cluster", "quorum", "add-voter", str(moved), "--listener", where, "--yes", to="voter")
    add_and_remove_by_kafkas_tool(admin, cluster, moved, where)
    cluster.nodes[moved - 1].kill()
    assert admin.done("cluster", "unregister", str(moved), "--yes").out == f"broker {moved} is forgotten\n"
