"""Replicas that move, leaders, voters and brokers that change: `topic reassign`, `cluster …` at three nodes whose quorum is in its log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.uuids import uuid_to_text
from storage.meta_properties import read_meta_properties
from tests.barnabas.cli.conftest import AUTHORIZER, Command, Result, fill
from tests.support.java_host import JavaHost
from tests.support.quorum import CLUSTER_ID, DynamicQuorum, dynamic_quorum

SEEN_S = 60
SLOW = "1"
"""Bytes a second: a move lasts until it is ended."""


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamicQuorum]:
    settings = AUTHORIZER | {
        "offsets.topic.replication.factor": "1",
        "auto.leader.rebalance.enable": "false",
        "replica.fetch.max.bytes": "1000",
    }
    with dynamic_quorum(tmp_path_factory.mktemp("quorum"), dict.fromkeys((1, 2, 3), "broker,controller"), settings) as made:
        yield made


@pytest.fixture
def at_three(barnabas_command: Command, quorum: DynamicQuorum, monkeypatch: pytest.MonkeyPatch) -> Command:
    barnabas_command.bootstrap = ",".join(node.bootstrap for node in quorum.nodes.values() if node.is_running)
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", barnabas_command.bootstrap)
    return barnabas_command


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SEEN_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def replicas(command: Command, topic: str) -> list[list[int]]:
    return [each["replicas"] for each in command.done("topic", "describe", topic, "-o", "json").data[0]["partitions"]]


def directory_id(data_dir: Path) -> str:
    identity = read_meta_properties(data_dir)
    assert identity is not None and identity.directory_id is not None
    return uuid_to_text(identity.directory_id)


def test_replicas_move_as_the_plan_says(at_three: Command, topic_name: str, tmp_path: Path) -> None:
    at_three.done("topic", "create", topic_name, "-p", "2", "--replication-factor", "1")
    fill(at_three, topic_name, [(0, "a"), (1, "b")])
    before = replicas(at_three, topic_name)
    saved = str(tmp_path / "before.json")

    planned = at_three.done(
        "topic", "reassign", topic_name, "--replication-factor", "3", "--dry-run", "-o", "json", "--save-current", saved
    )
    assert [(row["partition"], row["replicas"]) for row in planned.data] == [*enumerate(before)]
    assert all({*row["new_replicas"]} == {1, 2, 3} and len(row["adding"]) == 2 and row["copy_bytes"] > 0 for row in planned.data)
    refused = at_three("topic", "reassign", topic_name, "--replication-factor", "3")
    assert refused.code == 1 and f"move {topic_name}-0 from " in refused.err and "--yes" in refused.err
    assert replicas(at_three, topic_name) == before
    moved = at_three.done("topic", "reassign", topic_name, "-r", "3", "--wait", "--yes")

    assert moved.out == f"PARTITION{' ' * (len(topic_name) - 7)}  OUTCOME\n{topic_name}-0  moved\n{topic_name}-1  moved\n"
    until(lambda: [row["new_replicas"] for row in planned.data] == replicas(at_three, topic_name))
    assert at_three.done("topic", "move", topic_name, "--yes").out == "nothing to move\n"
    at_three.done("topic", "reassign", "--reassignment-json-file", saved, "--wait", "--yes")
    until(lambda: replicas(at_three, topic_name) == before)
    assert sorted(at_three.done("consume", topic_name, "-e").out.split()) == ["a", "b"]


def test_slow_move_is_shown_and_cancelled_and_its_throttle_removed(at_three: Command, java_host: JavaHost, topic_name: str) -> None:
    at_three.done("topic", "create", topic_name, "-p", "1", "--replication-factor", "1")
    fill(at_three, topic_name, [(0, "x" * 50_000)] * 3)
    ((leader,),) = replicas(at_three, topic_name)
    other = leader % 3 + 1

    started = at_three.done("topic", "reassign", topic_name, "--to-brokers", str(other), "--throttle", SLOW, "--yes", "-o", "json").data

    assert started == [{"partition": f"{topic_name}-0", "outcome": "moving", "is_done": True}]
    (moving,) = at_three.done("cluster", "reassign", "status", topic_name, "-o", "json").data
    assert (moving["adding"], moving["removing"]) == ([other], [leader]) and moving["copied_bytes"] < moving["copy_bytes"]
    assert f"{topic_name} " in at_three.done("cluster", "reassign").out
    described = ("--bootstrap-server", at_three.bootstrap, "--describe", "--topic", topic_name)
    told, theirs = at_three.done("kafka-tool", "kafka-topics.sh", *described).out, java_host.tool("TopicCommand", *described).stdout
    # The order of the settings in the first line is Java's own.
    assert told.splitlines()[1:] == theirs.splitlines()[1:] and f"Adding Replicas: {other}\tRemoving Replicas: {leader}\t" in told
    assert "ReplicationFactor: 1\t" in told and "ReplicationFactor: 1\t" in theirs
    assert at_three.done("kafka-tool", "kafka-topics.sh", *described, "--under-replicated-partitions").out == ""
    assert "nothing was done" in at_three.done("cluster", "reassign", "cancel", topic_name, "--dry-run").err
    assert at_three("cluster", "reassign", "status", "--clear-throttles").code == 1
    cancelled = at_three.done("topic", "reassign", topic_name, "--cancel", "--yes")
    assert cancelled.out.endswith(f"{topic_name}-0  cancelled\n") and f"it stays on {leader}" in cancelled.err
    assert at_three.done("cluster", "reassign", "status", "--wait", "--clear-throttles").out == "nothing is being moved\n"
    until(lambda: replicas(at_three, topic_name) == [[leader]])

    def throttles(*resource: str) -> list[str]:
        own = at_three.done("config", "describe", *resource, "-o", "json").data
        return [each["name"] for each in own if "throttled" in each["name"] and each["source"] in ("topic", "broker")]

    until(lambda: not throttles("topic", topic_name) and not throttles("broker", str(leader)))


def test_what_cannot_be_a_plan_is_refused(at_three: Command, topic_name: str, tmp_path: Path) -> None:
    at_three.done("topic", "create", topic_name, "--replication-factor", "1")
    plan = tmp_path / "plan.json"

    def planned(**entry: Any) -> tuple[int, str]:
        plan.write_text(json.dumps({"partitions": [{"topic": topic_name, "partition": 0, "replicas": [1], **entry}]}))
        result = at_three("topic", "reassign", "--from", str(plan), "--yes")
        return result.code, result.err

    assert at_three("topic", "reassign").code == 2
    assert at_three("topic", "reassign", topic_name, "--from", str(plan)).code == 2
    assert at_three("topic", "reassign", topic_name, "--to-brokers", "one").code == 2
    assert at_three("topic", "reassign", topic_name, "--throttle", "fast").code == 2
    assert at_three("topic", "reassign", "--from", "no-such-file").code == 2
    assert at_three("topic", "reassign", topic_name, "--to-brokers", "7").code == 1
    assert "4 replicas need as many brokers" in at_three("topic", "reassign", topic_name, "-r", "4").err
    assert planned(partition=7) == (1, f"barnabas topic reassign: there is no partition {topic_name}-7\n")
    assert planned(topic="none-such")[0] == planned(replicas=[9])[0] == 1
    assert planned(replicas=[])[0] == 2
    code, why = planned(replicas=[1], log_dirs=["/nowhere"])
    assert code == 1 and "LOG_DIR_NOT_FOUND" in why


def test_preferred_leaders_are_elected(at_three: Command, topic_name: str) -> None:
    at_three.done("topic", "create", topic_name, "-p", "3", "--replication-factor", "3")

    def swapped() -> int:
        plan = {"partitions": [{"topic": topic_name, "partition": 1, "replicas": [*reversed(replicas(at_three, topic_name)[1])]}]}
        at_three.done("topic", "reassign", "--from", "-", "--wait", "--yes", stdin=json.dumps(plan))
        until(lambda: replicas(at_three, topic_name)[1] == plan["partitions"][0]["replicas"])
        return int(replicas(at_three, topic_name)[1][0])

    assert "no partition needs an election" in at_three.done("cluster", "elect-leaders", "-t", topic_name).out
    preferred = swapped()
    assert f"{topic_name}-1, leader" in at_three.done("cluster", "elect-leaders", "--topic", f"{topic_name}:1", "--dry-run").err
    assert at_three.done("cluster", "elect-leaders", "-t", topic_name, "-o", "json").data == [
        {"partition": f"{topic_name}-1", "outcome": "elected", "is_done": True}
    ]
    until(lambda: at_three.done("topic", "describe", topic_name, "-o", "json").data[0]["partitions"][1]["leader"] == preferred)
    assert "no partition needs an election" in at_three.done("cluster", "elect-leaders", "--unclean", "-t", topic_name, "--yes").out


def test_voter_is_added_and_removed(at_three: Command, quorum: DynamicQuorum) -> None:
    node = quorum.add(4, "controller")
    node.start()
    where = f"CONTROLLER://127.0.0.1:{node.controller_port}"

    def roles() -> dict[int, str]:
        return {each["id"]: each["role"] for each in at_three.done("cluster", "quorum", "-o", "json").data["replicas"]}

    def voters() -> list[int]:
        return sorted(each for each, role in roles().items() if role in ("voter", "leader"))

    def changed(to: list[int], *words: str) -> bool:
        """Ask until the voters are these. On a busy machine the leader may change during a request: the command ends with an error then,
        and the change may be made, or may be shown and lost again."""
        if voters() != to:
            at_three("cluster", "quorum", *words, "--yes")
        return voters() == to

    until(lambda: roles().get(4) == "observer")
    refused = at_three("cluster", "quorum", "add-voter", "4", "--listener", where)
    assert refused.code == 1 and f"let node 4 vote, directory {directory_id(node.data_dir)}, at {where}" in refused.err
    until(lambda: changed([1, 2, 3, 4], "add-voter", "4", "--listener", where))
    assert at_three("cluster", "quorum", "add-voter", "4", "--listener", where, "--yes").code == 1
    assert at_three("cluster", "quorum", "add-voter", "5", "--listener", "nowhere", "--yes").code == 2
    assert "3 of 4 voters remain" in at_three("cluster", "quorum", "remove-voter", "4").err
    until(lambda: changed([1, 2, 3], "remove-controller", "4"))
    assert at_three("cluster", "quorum", "remove-voter", "4", "--yes").code == 1
    node.stop()


def test_controller_is_added_and_removed_by_kafkas_tool(at_three: Command, quorum: DynamicQuorum) -> None:
    """By a broker and by a controller that does not lead; the file of the node itself says all that there is to tell."""
    node = quorum.add(5, "controller")
    node.start()
    file, own_id = str(node.write_properties()), directory_id(node.data_dir)
    not_leading = next(each for each in quorum.nodes.values() if each.node_id not in (quorum.describe().leader_id, 4, 5))
    by_broker, by_controller = (
        ("--bootstrap-server", at_three.bootstrap),
        ("--bootstrap-controller", f"127.0.0.1:{not_leading.controller_port}"),
    )

    def tool(*words: str) -> Result:
        return at_three("kafka-tool", "kafka-metadata-quorum.sh", *words)

    def is_voter() -> bool:
        lines = tool(*by_controller, "describe", "--replication").out.splitlines()
        return any(line.split()[::6] == ["5", "Follower"] and line.split()[1] == own_id for line in lines)

    def changed(to: bool, *words: str) -> bool:
        """As in the test above: ask until node 5 votes, or does not vote any more."""
        if is_voter() != to:
            tool(*words)
        return is_voter() == to

    until(lambda: changed(True, *by_controller, "--command-config", file, "add-controller"))
    again = tool(*by_broker, "--command-config", file, "add-controller")
    assert again.code == 1 and again.err.startswith("org.apache.kafka.common.errors.DuplicateVoterException: ")
    status = tool(*by_controller, "describe", "--status").out
    endpoint = f'"directoryId": "{own_id}", "endpoints": ["CONTROLLER://127.0.0.1:{node.controller_port}"]'
    assert f'{{"id": 5, {endpoint}}}' in status and f"ClusterId:              {CLUSTER_ID}\n" in status
    remove = ("remove-controller", "-i", "5", "-d", own_id)
    assert tool(*by_broker, *remove, "--dry-run").out == f"DRY RUN of removing  KRaft controller 5 with directory id {own_id}\n"
    assert is_voter()
    until(lambda: changed(False, *by_broker, *remove))
    gone = tool(*by_controller, *remove)
    assert gone.code == 1 and gone.err.startswith("org.apache.kafka.common.errors.VoterNotFoundException: ")
    node.stop()


def test_loggers_of_a_controller_are_set_by_a_controller(at_three: Command, quorum: DynamicQuorum) -> None:
    """KIP-919: the address is of one controller, the loggers are another's."""
    by_controller = ("--bootstrap-controller", f"127.0.0.1:{quorum.nodes[1].controller_port}")

    def tool(*words: str) -> Result:
        return at_three("kafka-tool", "kafka-configs.sh", *by_controller, *words)

    altered = tool("--alter", "--broker-logger", "2", "--add-config", "kafka.controller=ERROR")
    assert (altered.code, altered.out) == (0, "Completed updating config for broker-logger 2.\n")
    told = [tool("--describe", "--entity-type", "broker-loggers", "--entity-name", each).out.splitlines() for each in ("2", "3")]
    assert ["  kafka.controller=ERROR sensitive=false synonyms={}" in lines for lines in told] == [True, False]
    tool("--alter", "--broker-logger", "2", "--delete-config", "kafka.controller")
    assert "doesn't exist" in tool("--describe", "--broker-logger", "77").out
    needs_broker = tool("--describe", "--entity-type", "topics")
    assert (needs_broker.code, needs_broker.err) == (1, "controllers do not answer that: --bootstrap-server HOST:PORT of a broker\n")
    assert (
        at_three(
            "kafka-tool", "kafka-configs.sh", "--bootstrap-controller", quorum.nodes[1].bootstrap, "--describe", "--broker-logger", "1"
        ).code
        == 1
    )


def test_acls_are_listed_and_changed_by_a_controller(at_three: Command, quorum: DynamicQuorum) -> None:
    def tool(*words: str) -> Result:
        where = ("--bootstrap-controller", f"127.0.0.1:{quorum.nodes[2].controller_port}")
        return at_three("kafka-tool", "kafka-acls.sh", *where, *words)

    added = tool("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert added.code == 0 and "principal=User:alice, host=*, operation=READ" in added.out
    until(lambda: "User:alice" in tool("--list", "--topic", "orders").out)
    assert tool("--remove", "--force", "--topic", "orders").code == 0
    until(lambda: tool("--list").out == "")


def test_broker_that_is_gone_is_forgotten(at_three: Command, quorum: DynamicQuorum) -> None:
    quorum.nodes[3].stop()

    until(lambda: len(at_three.done("cluster", "info", "-o", "json").data["brokers"]) == 2)
    assert "forget broker 3" in at_three("cluster", "unregister", "3").err
    assert at_three.done("cluster", "unregister", "3", "--yes").out == "broker 3 is forgotten\n"
    again = at_three("cluster", "unregister", "3", "--yes")
    assert again.code == 1 and "there is no broker 3" in again.err
