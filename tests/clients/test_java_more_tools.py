"""More of Kafka's tools: those that check a broker, and those that look into its groups and internal topics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.clients.adapters import ConfluentKafka
from tests.clients.members import ConfluentConsumerProtocolMember, ConfluentMember, poll_until, share_all
from tests.clients.topics import create_topic
from tests.support.java_host import TOOLS, JavaHost
from tests.support.kafka import java_tool
from tests.support.messages import Message
from tests.support.process import ServerProcess

TESTER_TIMEOUT_S = 120.0
CONSUMER_TIMEOUT_MS = "5000"


def objects_of(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, which need not have lines of their own."""
    while text := text.lstrip():
        found, end = json.JSONDecoder().raw_decode(text)
        yield found
        text = text[end:]


def test_groups_command_lists_groups_of_both_protocols(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name, partitions=2)
    classic = ConfluentMember(server, topic_name, f"{topic_name}-classic")
    modern = ConfluentConsumerProtocolMember(server, topic_name, f"{topic_name}-consumer")
    poll_until([classic], lambda _: share_all([classic], 2))
    poll_until([modern], lambda _: share_all([modern], 2))

    def listed(*more: str) -> dict[str, list[str]]:
        """The words of each group of this test, by its name."""
        lines = java_host.tool("GroupsCommand", "--bootstrap-server", server.bootstrap, "--list", *more).lines
        words = [line.split() for line in lines if line.startswith(topic_name)]
        return {group: rest for group, *rest in words}

    every, consumers = listed(), listed("--group-type", "consumer")
    by_protocol, shares = listed("--protocol", "consumer"), listed("--share")
    for member in (classic, modern):
        member.close()

    assert every == {f"{topic_name}-classic": ["Classic", "consumer"], f"{topic_name}-consumer": ["Consumer", "consumer"]}
    assert list(consumers) == [f"{topic_name}-consumer"]
    assert by_protocol == every
    assert shares == {}


def test_client_compatibility_test_finds_all_it_expects(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    """KIP-97's check of what a client finds at a broker: ids, times, ACLs (none, without an authorizer), configs, large records."""
    create_topic(server, topic_name)
    supported = ("offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs", "idempotent-producer")
    words = [word for name in supported for word in (f"--{name}-supported", "True")]
    more = ["--expect-record-too-large-exception", "False", "--num-cluster-nodes", "1"]

    printed = java_tool(
        f"{TOOLS}.ClientCompatibilityTest", "--bootstrap-server", server.bootstrap, "--topic", topic_name, *words, *more, timeout=120
    )

    assert printed.returncode == 0, printed.stdout + printed.stderr
    assert "SUCCESS" in printed.stdout


def test_log_compaction_tester_finds_the_last_value_of_each_key(make_server: Callable[[dict[str, str]], ServerProcess]) -> None:
    """Kafka's own check of a compacted topic: what is left are the last records of the keys, without those that were deleted."""
    eager = {"log.roll.ms": "200", "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    server = make_server(eager)
    words = ["--bootstrap-server", server.bootstrap, "--messages", "50000", "--duplicates", "10", "--percent-deletes", "10"]

    done = java_tool(f"{TOOLS}.LogCompactionTester", *words, "--sleep", "4", "--compression-type", "lz4", timeout=TESTER_TIMEOUT_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 mismatches" in done.stdout
    produced, consumed = (int(found) for found in re.findall(r"(\d+) rows of data", done.stdout))
    assert consumed < produced == 50_000


def test_console_consumer_formats_the_records_of_groups(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"v")] * 3)
    member = ConfluentMember(server, topic_name, topic_name)
    poll_until([member], lambda read: len(read) >= 3)
    member.commit()
    member.close()
    words = [
        "--bootstrap-server",
        server.bootstrap,
        "--topic",
        "__consumer_offsets",
        "--from-beginning",
        "--timeout-ms",
        CONSUMER_TIMEOUT_MS,
    ]

    def formatted(formatter: str) -> list[dict[str, Any]]:
        name = f"{TOOLS}.consumer.{formatter}"
        printed = java_host.tool("consumer.ConsoleConsumer", *words, "--formatter", name, expected_status=None).stdout
        return [found for found in objects_of(printed) if topic_name in str(found)]

    offsets, groups = formatted("OffsetsMessageFormatter"), formatted("GroupMetadataMessageFormatter")

    assert offsets[-1]["key"] == {"type": 1, "data": {"group": topic_name, "topic": topic_name, "partition": 0}}
    assert offsets[-1]["value"]["data"]["offset"] == 3
    assert groups[-1]["value"]["data"]["members"] == []
