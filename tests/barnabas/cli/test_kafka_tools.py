"""Apache Kafka's tools by their names, at servers of both kinds: output and exit codes are those of Kafka's own tools (4.3.1)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.uuids import uuid_to_text
from storage.meta_properties import MetaProperties, write_meta_properties
from tests.barnabas.cli.conftest import Command, Tool
from tests.clients.topics import eventually
from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost
from tests.support.kafka import KafkaServer, java_tool
from tests.support.ports import free_ports
from tests.support.process import ServerProcess, checkout

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"


def test_topics(tool: Tool, topic_name: str) -> None:
    dotted = f"{topic_name}.dotted"
    created = tool("topics", "--create", "--topic", topic_name, "--partitions", "2", "--config", "retention.ms=1000000")
    assert created == (0, f"Created topic {topic_name}.\n", "")
    again = tool("topics", "--create", "--topic", topic_name)
    assert again == (1, f"Error while executing topic command : Topic '{topic_name}' already exists.\n", "")
    assert tool("topics", "--create", "--topic", topic_name, "--if-not-exists") == (0, "", "")
    assert tool("topics", "--create", "--topic", dotted)[1].startswith("WARNING: Due to limitations in metric names, topics with a period")
    assert tool("topics", "--list", "--topic", f"{topic_name}.*") == (0, f"{topic_name}\n{dotted}\n", "")
    assert tool("topics", "--alter", "--topic", topic_name, "--partitions", "3") == (0, "", "")

    ours, kafka_s = (
        tool("topics", "--describe", "--topic", topic_name),
        java_tool(TOPIC_COMMAND, *tool.address, "--describe", "--topic", topic_name),
    )
    assert (ours[0], ours[1]) == (kafka_s.returncode, kafka_s.stdout) and ours[1].count("\n") == 4

    either = ("--describe", "--topic", topic_name, "--at-min-isr-partitions", "--unavailable-partitions")
    assert tool("topics", *either)[1] == java_tool(TOPIC_COMMAND, *tool.address, *either).stdout != ""
    assert tool("topics", "--describe", "--topic", topic_name, "--under-min-isr-partitions") == (0, "", "")

    missing = f"Error while executing topic command : Topic 'none-{topic_name}' does not exist as expected\n"
    assert tool("topics", "--describe", "--topic", f"none-{topic_name}")[:2] == (1, missing)
    assert tool("topics", "--delete", "--topic", f"none-{topic_name}")[:2] == (1, missing)
    assert tool("topics", "--delete", "--topic", f"none-{topic_name}", "--if-exists")[:2] == (0, "")
    assert tool("topics", "--delete", "--topic", dotted) == (0, "", "")
    assert tool("topics")[0] == 1


def test_topic_is_described_by_its_id(java_host: JavaHost, tool: Tool, topic_name: str) -> None:
    tool("topics", "--create", "--topic", topic_name, "--partitions", "3")
    topic_id = tool("topics", "--describe", "--topic", topic_name)[1].split()[3]
    own, unknown = ("--describe", "--topic-id", topic_id), ("--describe", "--topic-id", uuid_to_text(bytes(range(16))))

    for words in (own, (*own, "--under-min-isr-partitions"), unknown, (*unknown, "--if-exists")):
        code, out, _ = tool("topics", *words)
        theirs = java_host.tool("TopicCommand", *tool.address, *words, expected_status=None)
        assert (code, out) == (theirs.status, theirs.stdout)
    code, out, _ = tool("topics", "--describe", "--topic-id", "short")
    assert code == 1 and out.startswith("Error while executing topic command : ")
    pages = tool("topics", "--describe", "--topic", topic_name, "--partition-size-limit-per-response", "1", "--delete-config", "a")
    assert pages[1] == tool("topics", "--describe", "--topic", topic_name)[1] and "no longer supported" in pages[2]
    assert tool("topics", "--version")[1].startswith("4.3.1 (barnabas ")


def test_groups(java_host: JavaHost, tool: Tool, topic_name: str) -> None:
    tool("topics", "--create", "--topic", topic_name, "--partitions", "1")
    tool("console-producer", "--topic", topic_name, stdin="a\nb\nc\n")
    group = f"group-{topic_name}"
    assert tool("console-consumer", "--topic", topic_name, "--from-beginning", "--group", group, "--max-messages", "2")[1] == "a\nb\n"

    assert group in tool("consumer-groups", "--list")[1].splitlines()
    code, out, err = tool("consumer-groups", "--describe", "--group", group)
    assert (code, err) == (0, f"\nConsumer group '{group}' has no active members.\n")
    kafka_s = java_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *tool.address, "--describe", "--group", group)
    assert [line.rstrip() for line in out.splitlines()] == [line.rstrip() for line in kafka_s.stdout.splitlines()]
    assert out.splitlines()[-1].split() == [group, topic_name, "0", "2", "3", "1", "-", "-", "-"]
    assert tool("consumer-groups", "--delete", "--group", group)[:2] == (
        0,
        f"Deletion of requested consumer groups ('{group}') was successful.\n",
    )
    missing = tool("consumer-groups", "--describe", "--group", group)
    assert (missing[0], missing[1]) == compared(java_host, tool, "--describe", "--group", group)


def compared(java_host: JavaHost, tool: Tool, *words: str) -> tuple[int, str]:
    """Exit code and output of Kafka's own tool."""
    done = java_host.tool("consumer.group.ConsumerGroupCommand", *tool.address, *words, expected_status=None)
    return done.status, done.stdout


def same(java_host: JavaHost, tool: Tool, *words: str) -> str:
    """What both tools print; the order of partitions and spaces at the end of lines are Java's own."""
    code, out, _ = tool("consumer-groups", *words)
    kafka_code, kafka_out = compared(java_host, tool, *words)
    assert code == kafka_code and sorted(map(str.rstrip, out.splitlines())) == sorted(map(str.rstrip, kafka_out.splitlines())), words
    return out


@pytest.fixture
def group(tool: Tool, topic_name: str) -> str:
    """Four records a partition, at 1970-01-01T00:00:01 and so on; committed are offset 1 of partition 0, and 4, the end, of partition 1."""
    tool("topics", "--create", "--topic", topic_name, "--partitions", "3", "--config", "retention.ms=-1")
    fill_at(tool.command, topic_name)
    consumer = Consumer({"bootstrap.servers": tool.command.bootstrap, "group.id": f"of-{topic_name}"})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 1), TopicPartition(topic_name, 1, 4)], asynchronous=False)
    consumer.close()
    return f"of-{topic_name}"


def fill_at(command: Command, topic: str) -> None:
    lines = [f'{{"value": "x", "partition": {number % 2}, "timestamp": {1_000 + number // 2 * 1_000}}}' for number in range(8)]
    command.done("produce", topic, "--json", stdin="\n".join(lines))


def test_offsets_are_reset_by_every_option(java_host: JavaHost, tool: Tool, group: str, topic_name: str, tmp_path: Path) -> None:
    own = ("--reset-offsets", "--group", group)
    plan, plan_of_groups = tmp_path / "plan.csv", tmp_path / "groups.csv"
    plan.write_text(f'"{topic_name}",0,3\n"{topic_name}",1,99\n')
    plan_of_groups.write_text(f'{group},"{topic_name}",0,2\nanother,"{topic_name}",1,2\n')
    everything, named, some = ("--all-topics",), ("--topic", topic_name), ("--topic", f"{topic_name}:0,2")
    for words in (
        ("--to-earliest", *named), ("--to-latest", *everything), ("--to-current", *some), ("--to-offset", "2", *named),
        ("--to-offset", "99", *some), ("--to-offset", "-1", *everything), ("--to-datetime", "1970-01-01T00:00:02.500", *named),
        ("--to-datetime", "1970-01-01T01:00:02.500+01:00", *everything), ("--by-duration", "PT1H", *some),
        ("--shift-by", "-1", *everything), ("--shift-by", "10", *everything),
    ):  # fmt: skip
        same(java_host, tool, *own, *words, "--dry-run")
    assert same(java_host, tool, *own, "--from-file", str(plan), "--dry-run").split()[-4:] == [group, topic_name, "1", "4"]
    for words in (("--from-file", str(plan_of_groups)), ("--from-file", str(plan_of_groups), "--group", "third")):
        same(java_host, tool, *own, "--group", "another", *words, "--export", "--dry-run")
    exported = same(java_host, tool, *own, "--to-latest", "--topic", topic_name, "--export")
    assert exported.splitlines()[0] == f'"{topic_name}",0,4'
    same(java_host, tool, *own, "--to-current", "--all-topics", "--export")
    same(java_host, tool, "--reset-offsets", "--group", "new", "--to-earliest", "--topic", f"{topic_name}:1", "--timeout", "20000")

    executed = tool("consumer-groups", *own, "--to-offset", "2", "--topic", f"{topic_name}:1", "--execute")

    assert executed[:2] == (
        0,
        f"\n{'GROUP':{len(group)}} {'TOPIC':{len(topic_name)}} PARTITION  NEW-OFFSET\n{group} {topic_name} 1          2\n",
    )
    assert same(java_host, tool, "--describe", "--group", group).split()[-8:-3] == [topic_name, "1", "2", "4", "2"]
    everyone = tool("consumer-groups", "--reset-offsets", "--all-groups", "--all-topics", "--to-current", "--export", "--dry-run")
    assert everyone[0] == 0 and f'"{group}","{topic_name}",1,2' in everyone[1].splitlines()


def test_what_cannot_be_reset_is_told_as_kafka_does(java_host: JavaHost, tool: Tool, group: str, topic_name: str) -> None:
    own = ("--reset-offsets", "--group", group)
    same(java_host, tool, *own, "--to-earliest", "--topic", f"{topic_name}:7")
    same(java_host, tool, *own, "--to-earliest", "--topic", "none-such")
    for words in (
        (*own, "--to-earliest"), (*own, "--all-topics"), (*own, "--all-topics", "--to-earliest", "--to-latest"),
        (*own, "--all-topics", "--to-earliest", "--execute", "--dry-run"), ("--reset-offsets", "--to-earliest", "--all-topics"),
        (*own, "--topic", topic_name, "--shift-by", "1"), (*own, "--topic", f"{topic_name}:x", "--to-earliest"), ("--list", "--describe"),
        ("--describe", "--group", group, "--members", "--offsets"), ("--delete-offsets", "--group", group), ("--list", "--state", "odd"),
        ("--delete", "--group", group, "--topic", topic_name),
    ):  # fmt: skip
        code, out, err = tool("consumer-groups", *words)
        assert (code, out.strip()) == (1, "") and compared(java_host, tool, *words)[0] == 1, (words, err)
        assert err.splitlines()[-1]


def test_groups_with_members_are_listed_described_and_keep_their_offsets(
    java_host: JavaHost, tool: Tool, group: str, topic_name: str
) -> None:
    member = Consumer({"bootstrap.servers": tool.command.bootstrap, "group.id": group, "client.id": "reader", "enable.auto.commit": False})
    member.subscribe([topic_name])
    while len(member.assignment()) < 3:
        member.poll(0.1)

    assert "Stable" in same(java_host, tool, "--describe", "--group", group, "--state")
    assert "reader" in same(java_host, tool, "--describe", "--group", group, "--members")
    same(java_host, tool, "--describe", "--group", group, "--offsets")
    for words in (("--state",), ("--members",), ()):
        same(java_host, tool, "--describe", "--verbose", "--group", group, *words)
    active = same(java_host, tool, "--reset-offsets", "--group", group, "--to-earliest", "--all-topics", "--execute")
    assert "can only be reset if the group" in active
    assert "Error" in same(java_host, tool, "--delete-offsets", "--group", group, "--topic", topic_name)
    for words in (("--state",), ("--type",), ("--state", "stable"), ("--type", "classic", "--state", "Empty,Stable")):
        listed = same(java_host, tool, "--list", *words)
        assert group in listed
    assert group not in same(java_host, tool, "--list", "--type", "consumer")
    member.close()
    assert "Successful" in same(java_host, tool, "--delete-offsets", "--group", group, "--topic", f"{topic_name}:0")
    same(java_host, tool, "--delete-offsets", "--group", group, "--topic", f"{topic_name}:7", "--topic", "none-such")
    same(java_host, tool, "--delete-offsets", "--group", "none-such", "--topic", topic_name)


def test_groups_of_both_protocols_are_described_with_their_epochs(java_host: JavaHost, tool: Tool, group: str, topic_name: str) -> None:
    """A group's offsets have the leader's epoch, a KIP-848 group and its members epochs of their own; an empty group has neither."""
    name, own = f"new-{topic_name}", {"bootstrap.servers": tool.command.bootstrap, "client.id": "reader", "enable.auto.commit": False}
    member = Consumer({**own, "group.id": name, "group.protocol": "consumer", "auto.offset.reset": "earliest"})
    member.subscribe([topic_name])
    while len(member.assignment()) < 3:
        member.poll(0.1)
    member.commit(offsets=[TopicPartition(topic_name, 1, 3, leader_epoch=0)], asynchronous=False)

    members = same(java_host, tool, "--describe", "--verbose", "--members", "--group", name)
    assert f"{topic_name}:0,1,2" in members and "TARGET-EPOCH" in members
    assert "GROUP-EPOCH" in same(java_host, tool, "--describe", "--verbose", "--state", "--group", name)
    assert "LEADER-EPOCH" in same(java_host, tool, "--describe", "--verbose", "--group", name)
    member.close()
    for words in (("--members", "--verbose"), ("--members",), ("--state", "--verbose"), ("--verbose",)):
        same(java_host, tool, "--describe", "--group", group, *words)


def test_regular_expressions_are_judged_without_a_broker(barnabas_command: Command, java_host: JavaHost) -> None:
    for text in ("orders-.*", "[a", "(a", "*a", "a\\", "a**", "(?=a)", "(?i)a|b", "[b-a]", "\\8"):
        words = ("--validate-regex", text)
        done = barnabas_command("kafka-tool", "kafka-consumer-groups.sh", *words)
        assert (done.code, done.out) == (0, java_host.tool("consumer.group.ConsumerGroupCommand", *words).stdout)
    assert barnabas_command("kafka-tool", "kafka-consumer-groups.sh", "--list").code == 1


def test_configs(tool: Tool, topic_name: str) -> None:
    tool("topics", "--create", "--topic", topic_name, "--partitions", "1")
    altered = tool("configs", "--alter", "--topic", topic_name, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]")
    assert altered == (0, f"Completed updating config for topic {topic_name}.\n", "")

    ours = tool("configs", "--describe", "--topic", topic_name)[1]
    kafka_s = java_tool("kafka.admin.ConfigCommand", *tool.address, "--describe", "--topic", topic_name)
    ours_sorted, kafka_sorted = (re.sub(r"synonyms=.*", "", text).splitlines() for text in (ours, kafka_s.stdout))
    assert sorted(ours_sorted) == sorted(kafka_sorted) and len(ours_sorted) == 3
    tool("configs", "--alter", "--entity-type", "topics", "--entity-name", topic_name, "--delete-config", "retention.ms,cleanup.policy")
    assert tool("configs", "--describe", "--entity-type", "topics", "--entity-name", topic_name)[1].count("\n") == 1


def test_offsets(java_host: JavaHost, tool: Tool, topic_name: str) -> None:
    tool("topics", "--create", "--topic", topic_name, "--partitions", "12")
    tool("console-producer", "--topic", topic_name, "--property", "parse.key=true", stdin="k\ta\nk\tb\n")

    for words in (
        ("--topic", topic_name), ("--topic", topic_name, "--time", "earliest"), ("--topic", topic_name, "--time", "-1"),
        ("--topic", topic_name, "--time", "-3"), ("--topic", topic_name, "--partitions", "2,11"), ("--topic", topic_name, "--time", "1"),
        ("--topic-partitions", f"{topic_name}:3,{topic_name}:9-11,none:1"), ("--topic-partitions", f"{topic_name}:10-,{topic_name}.?:-2"),
        ("--topic-partitions", f"{topic_name}:"), ("--topic-partitions", f"{topic_name}:1:2"), ("--topic", topic_name, "--partitions", "x"),
        ("--topic-partitions", "a", "--topic", "a"), ("--topic", "none-such"), ("--topic", topic_name, "--time", "soon"),
    ):  # fmt: skip
        code, out, err = tool("get-offsets", *words)
        theirs = java_host.tool("GetOffsetShell", *tool.address, *words, expected_status=None)
        assert (code, out) == (theirs.status, theirs.stdout), words
        assert (code, err == "") in ((0, True), (1, False))
    assert tool("get-offsets", "--topic", "(")[0] == 1 and tool("topics", "--describe", "--topic", "(")[0] == 1


@pytest.mark.parametrize("kind", [BrokerProcess, KafkaServer])
def test_acls(kind: type[ServerProcess], barnabas_command: Command, tmp_path: Path) -> None:
    """At servers of their own, since others have no authorizer. What is listed is compared with Kafka's tool, resource by resource."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    server = kind(tmp_path, {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"})
    server.start()
    try:
        barnabas_command.bootstrap = server.bootstrap
        tool = Tool(barnabas_command)
        orders = "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)"
        read = "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
        added = tool("acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
        assert added == (0, f"Adding ACLs for resource `{orders}`: \n \t{read}\n\n", "")
        pattern = ("--topic", "or", "--resource-pattern-type", "prefixed")
        assert tool("acls", "--add", "--allow-principal", "User:bob", "--producer", *pattern)[0] == 0
        eventually(lambda: tool("acls", "--list")[1].count("operation=") == 4)
        kafka_s = java_tool("org.apache.kafka.tools.AclCommand", *tool.address, "--list")
        assert sorted(tool("acls", "--list")[1].splitlines()) == sorted(kafka_s.stdout.splitlines())
        assert tool("acls", "--list", "--topic", "orders")[1] == f"Current ACLs for resource `{orders}`:\n\t{read}\n\n"
        assert tool("acls", "--list", "--principal", "User:carol") == (0, "", "")
        assert tool("acls", "--remove", "--topic", "orders", stdin="n\n")[0] == 0
        assert read in tool("acls", "--list")[1]
        assert tool("acls", "--remove", "--force", "--topic", "orders") == (0, "", "")
        eventually(lambda: read not in tool("acls", "--list")[1])
        assert tool("acls")[0] == 1
    finally:
        server.kill()


def test_quorum(tool: Tool) -> None:
    """What moves on by itself is left out: the log of the metadata may grow between two commands."""
    tool_s, command = "org.apache.kafka.tools.MetadataQuorumCommand", tool("metadata-quorum", "describe", "--status")
    kafka_s = java_tool(tool_s, *tool.address, "describe", "--status")
    ours, theirs = (re.sub(r"(HighWatermark:\s+)\d+", r"\1", text) for text in (command[1], kafka_s.stdout))
    assert (command[0], ours) == (0, theirs)
    lines = tool("metadata-quorum", "describe", "--replication")[1].splitlines()
    assert lines[0].split() == ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
    assert lines[1].split()[0] == "1" and lines[1].split()[-1] == "Leader" and len(lines) == 2


QUORUM_COMMAND = "MetadataQuorumCommand"
CONTROLLER = {
    "node.id": "7",
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER, inside",
    "listeners": "CONTROLLER://:9093,INSIDE://10.0.0.7:9094",
    "advertised.listeners": "INSIDE://[::1]:9095",
}


def quorum_told(java_host: JavaHost, tool: Tool, *words: str) -> tuple[int, str, str]:
    """What both tools print, and end with: of an error the first line, since Kafka's has a trace of Java's besides."""
    done = tool.command("kafka-tool", "kafka-metadata-quorum.sh", *tool.address, *words)
    theirs = java_host.tool(QUORUM_COMMAND, *tool.address, *words, expected_status=None)
    assert (done.code, done.out, done.err.split("\n")[0]) == (theirs.status, theirs.stdout, theirs.stderr.split("\n")[0]), words
    return done.code, done.out, done.err


def properties_of_controller(folder: Path, **changed: str | None) -> str:
    """A controller's file; its metadata log directory is formatted."""
    directory = folder / "metadata"
    directory.mkdir(exist_ok=True)
    write_meta_properties(directory, MetaProperties("3Db5QLSqSZieL3rJBUUegA", 7, bytes(range(16))))
    settings = {
        **CONTROLLER,
        "log.dirs": f"{directory},{folder / 'other'}",
        **{key.replace("_", "."): each for key, each in changed.items()},
    }
    path = folder / "controller.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value is not None))
    return str(path)


def test_changes_of_controllers_are_told_and_refused_in_kafkas_words(java_host: JavaHost, tool: Tool, tmp_path: Path) -> None:
    """Neither server has its voters in its log: what is not a dry run is refused by both."""
    own_id = uuid_to_text(bytes(range(16)))
    for changed in (
        {"node_id": None}, {"node_id": "-7"}, {"process_roles": "broker"}, {"log_dirs": None}, {"log_dirs": str(tmp_path / "none")},
        {"controller_listener_names": None}, {"controller_listener_names": "OTHER"}, {"metadata_log_dir": str(tmp_path)},
    ):  # fmt: skip
        file = properties_of_controller(tmp_path, **changed)
        code, out, _ = quorum_told(java_host, tool, "--command-config", file, "add-controller", "--dry-run")
        assert (code, out) == (1, "")
    file = ("--command-config", properties_of_controller(tmp_path, controller_listener_names="CONTROLLER,inside"))
    added = quorum_told(java_host, tool, *file, "add-controller", "--dry-run")
    where = "CONTROLLER://localhost:9093, INSIDE://[::1]:9095"
    assert added == (0, f"DRY RUN of adding controller 7 with directory id {own_id} and endpoints: {where}\n", "")
    removed = quorum_told(java_host, tool, "remove-controller", "-i", "7", "-d", own_id, "--dry-run")
    assert removed == (0, f"DRY RUN of removing  KRaft controller 7 with directory id {own_id}\n", "")
    assert "UnsupportedVersionException" in quorum_told(java_host, tool, *file, "add-controller")[2]
    assert "UnsupportedVersionException" in quorum_told(java_host, tool, "remove-controller", "-i", "7", "-d", own_id)[2]
    quorum_told(java_host, tool, "add-controller")
    quorum_told(java_host, tool, "remove-controller", "--controller-id", "-7", "--controller-directory-id", own_id)
    for words in ((), ("--status", "--replication"), ("--status", "--human-readable")):
        quorum_told(java_host, tool, "describe", *words)
    for words in (("remove-controller", "-i", "7"), ("remove-controller", "-i", "x", "-d", own_id), ("add",)):
        code, out, _ = tool("metadata-quorum", *words)
        assert (code, out) == (1, "")
    assert tool("metadata-quorum", "remove-controller", "-i", "7", "-d", "short")[0] == 1


def test_replication_is_told_by_how_long_ago(java_host: JavaHost, tool: Tool) -> None:
    words = ("describe", "--replication", "--human-readable")
    code, out, _ = tool("metadata-quorum", *words)
    theirs = java_host.tool(QUORUM_COMMAND, *tool.address, *words).stdout
    ours, kafka_s = ([re.sub(r"\d+( ms ago)?", r"N\1", line).split() for line in text.splitlines()] for text in (out, theirs))
    assert (code, ours) == (0, kafka_s) and "N ms ago" in " ".join(ours[1])


def test_api_versions_and_no_broker(tool: Tool) -> None:
    code, out, _ = tool("broker-api-versions")
    assert code == 0 and re.match(r"\S+:\d+ \(id: \d+ rack: null isFenced: false\) -> \(\n\tProduce\(0\): 0 to 13 \[usable: 13\],\n", out)
    assert out.endswith(")\n")
    tool.address = ("--bootstrap-server", "localhost:1")
    assert tool("topics", "--list")[0] == 1 and tool("broker-api-versions")[0] == 1


@pytest.fixture(scope="module")
def two_listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker whose plain listener is advertised at a port that nothing listens on, and the address of its SASL listener."""
    server = BrokerProcess(tmp_path_factory.mktemp("listeners"))
    outside, inside, login = free_ports(3)
    server.port = inside
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a secret";'
    server.settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{inside},SASL_PLAINTEXT://127.0.0.1:{login}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside},SASL_PLAINTEXT://127.0.0.1:{login}",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
    }
    server.start()
    yield server, f"127.0.0.1:{login}"
    server.kill()


def test_health_check_at_a_listener_that_is_advertised_for_the_outside(
    barnabas_command: Command, two_listeners: tuple[BrokerProcess, str]
) -> None:
    """A published port, as in Apache Kafka's own compose files: its tool names the broker that it cannot reach there, and ends with 0."""
    barnabas_command.bootstrap = two_listeners[0].bootstrap

    code, out, err = Tool(barnabas_command)("broker-api-versions")

    assert (code, err) == (0, "")
    assert re.match(r"127.0.0.1:\d+ \(id: \d+ rack: null isFenced: false\) -> ERROR: no broker answers: .*refused", out)


@pytest.mark.parametrize(
    "words", [("topic", "list"), ("cluster", "quorum"), ("kafka-tool", "kafka-topics.sh", "--list", "--bootstrap-server")]
)
def test_broker_that_wants_a_login_says_so(
    barnabas_command: Command, two_listeners: tuple[BrokerProcess, str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """It closes the connection at the first request; neither client has an error for that."""
    is_tool = words[0] == "kafka-tool"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", two_listeners[1])

    refused = barnabas_command(*words, *((two_listeners[1],) if is_tool else ()))

    assert (refused.code, refused.out, refused.err.count("\n")) == (1 if is_tool else 3, "", 1)
    assert "no broker answers" in refused.err and "wants a login or TLS; --command-config says how" in refused.err


def test_storage_is_looked_at_as_by_kafkas_tool(barnabas_command: Command, java_host: JavaHost, tmp_path: Path) -> None:
    """An init container formats what is not formatted: kafka-storage.sh info || kafka-storage.sh format."""
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "server.properties"
    roles = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\nlisteners=P://:9092,C://:9093\n"
    quorum = (
        "controller.quorum.voters=1@localhost:9093\nlistener.security.protocol.map=P:PLAINTEXT,C:PLAINTEXT\ninter.broker.listener.name=P\n"
    )
    file.write_text(f"{roles}{quorum}log.dirs={first},{second}\n")

    def told() -> tuple[int, str]:
        done = barnabas_command("kafka-tool", "kafka-storage.sh", "info", "--config", str(file))
        theirs = java_host.tool("kafka.tools.StorageTool", "info", "--config", str(file), expected_status=None)
        # Of a file that it cannot take, Kafka's tool has a trace on stdout besides.
        lines = [line for line in theirs.stdout.splitlines(keepends=True) if not line.startswith(("\t", "java.lang.", "Caused by: "))]
        assert (done.code, done.out) == (theirs.status, "".join(lines))
        return done.code, done.out

    assert told()[0] == 1
    second.write_text("")
    assert f"{second} is not a directory" in told()[1]
    second.unlink()
    for directory in (first, second):
        directory.mkdir()
    assert f"{first} is not formatted." in told()[1]
    for directory, cluster, node in ((first, "a" * 22, 1), (second, "a" * 22, 1), (second, "a" * 22, 2), (second, "b" * 22, 1)):
        write_meta_properties(directory, MetaProperties(cluster, node, bytes(range(16))))
        assert told()[0] == (0 if (directory, cluster, node) == (second, "a" * 22, 1) else 1)
    for text in ("version=1\nnode.id=1\n", "version=1\ncluster.id=a\n", "version=1\ncluster.id=a\nnode.id=x\n", "broker.id=1\n"):
        (first / "meta.properties").write_text(text)
        assert told()[0] == 1


def test_a_link_to_the_script_is_a_tool(tmp_path: Path) -> None:
    """As in the image: the link's name says which."""
    program, link = tmp_path / "barnabas", tmp_path / "kafka-storage.sh"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    program.chmod(0o755)
    link.symlink_to(checkout() / "config" / "kafka-tool.sh")
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    made = subprocess.run([link, "random-uuid"], env=environ, cwd=checkout(), capture_output=True, text=True, check=True)

    assert re.fullmatch(r"[\w-]{22}\n", made.stdout)
    unknown = subprocess.run(
        [program, "kafka-tool", "kafka-mirror.sh"], env=environ, cwd=checkout(), capture_output=True, text=True, check=False
    )
    assert unknown.returncode == 1 and "there is no kafka-mirror" in unknown.stderr
