"""The same command line tool, the same arguments, once against Apache Kafka and once against Barnabas: the same answer."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.clients.adapters import ConfluentKafka
from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost, ToolResult
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.messages import Message
from tests.support.process import ServerProcess

TOPICS = "TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "consumer.group.ConsumerGroupCommand"
CONSUME = "consumer.ConsoleConsumer"
OFFSETS = "GetOffsetShell"
READ_ALL = "--group group-1 --from-beginning --max-messages 20 --timeout-ms 15000"

# In this order against each server: later commands see what earlier ones did.
COMMANDS = [
    (TOPICS, "--create --topic orders --partitions 2 --config retention.ms=100000000"),
    (TOPICS, "--create --topic orders"),
    (TOPICS, "--create --topic orders --partitions 20000"),
    (TOPICS, "--create --topic wrong/name"),
    (TOPICS, "--create --topic other --config retention.ms=soon"),
    (TOPICS, "--create --topic other --config no.such.config=1"),
    (TOPICS, "--create --topic other --replication-factor 3"),
    (TOPICS, "--create --topic assigned --replica-assignment 1,1 --config retention.ms=-1"),
    (TOPICS, "--create --topic misassigned --replica-assignment 7"),
    (TOPICS, "--create --topic with.dot"),
    (TOPICS, "--create --topic with_dot"),
    (TOPICS, "--describe --topic missing"),
    (TOPICS, "--describe --under-replicated-partitions"),
    (TOPICS, "--alter --topic orders --partitions 1"),
    (TOPICS, "--alter --topic orders --partitions 2"),
    (TOPICS, "--delete --topic missing"),
    (CONFIGS, "--entity-type topics --entity-name orders --describe"),
    (CONFIGS, "--entity-type topics --entity-name missing --describe"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config no.such.config=1"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config segment.bytes=5"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config compression.type=brotli"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config cleanup.policy=[delete,purge]"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config preallocate=maybe"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config retention.bytes=many"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config compression.gzip.level=99"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config min.cleanable.dirty.ratio=2"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config leader.replication.throttled.replicas=1"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config remote.storage.enable=true"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config min.compaction.lag.ms=9,max.compaction.lag.ms=5"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config cleanup.policy=[compact,compact]"),
    (CONFIGS, "--entity-type topics --entity-name orders --describe"),
    (CONFIGS, "--entity-type brokers --entity-name 1 --alter --add-config message.max.bytes=-5"),
    (CONFIGS, "--entity-type brokers --entity-name 1 --alter --add-config log.retention.ms=-5"),
    (CONFIGS, "--entity-type brokers --entity-name 1 --describe"),
    (CONFIGS, "--entity-type topics --entity-name orders --describe"),
    (CONFIGS, "--entity-type brokers --entity-name 1 --alter --delete-config log.retention.ms"),
    (CONFIGS, "--entity-type topics --entity-name orders --alter --add-config cleanup.policy=[compact,delete]"),
    (CONFIGS, "--entity-type topics --entity-name assigned --alter --delete-config segment.ms"),
    (CONSUME, f"--topic assigned {READ_ALL}"),
    (GROUPS, "--list --state"),
    (GROUPS, "--describe --group group-1"),
    (GROUPS, "--describe --group group-1 --members"),
    (GROUPS, "--describe --group group-1 --state"),
    (GROUPS, "--describe --group missing"),
    (GROUPS, "--group group-1 --topic assigned --reset-offsets --to-datetime 2026-09-21T14:13:20.010 --dry-run"),
    (GROUPS, "--group group-1 --topic assigned --reset-offsets --shift-by -3 --execute"),
    (GROUPS, "--describe --group group-1"),
    (OFFSETS, "--topic assigned"),
    (OFFSETS, "--topic assigned --time earliest"),
    (OFFSETS, "--topic assigned --time max-timestamp"),
    (OFFSETS, "--topic assigned --time 1790000000010"),
    (OFFSETS, "--topic assigned --time earliest-local"),
    (TOPICS, "--delete --topic assigned"),
    (TOPICS, "--list"),
    (CONFIGS, "--entity-type clients --entity-name c --alter --add-config producer_byte_rate=1024,consumer_byte_rate=2048"),
    (CONFIGS, "--entity-type clients --entity-name c --describe"),
    (CONFIGS, "--entity-type users --entity-name u --entity-type clients --entity-default --alter --add-config request_percentage=12.5"),
    (CONFIGS, "--entity-type users --entity-type clients --describe"),
    (CONFIGS, "--entity-type ips --entity-default --alter --add-config connection_creation_rate=50"),
    (CONFIGS, "--entity-type ips --entity-name 10.0.0.1 --alter --add-config connection_creation_rate=5"),
    (CONFIGS, "--entity-type ips --entity-name 10.0.0.1 --describe"),
    (CONFIGS, "--entity-type ips --entity-name 10.0.0.1 --alter --add-config connection_creation_rate=-5"),
    (CONFIGS, "--entity-type users --entity-default --alter --add-config controller_mutation_rate=3"),
    (CONFIGS, "--entity-type users --entity-default --describe"),
    (CONFIGS, "--entity-type clients --entity-name c --alter --delete-config producer_byte_rate"),
    (CONFIGS, "--entity-type clients --describe"),
    (CONFIGS, "--entity-type clients --entity-name c --alter --delete-config request_percentage"),
    (CONFIGS, "--entity-type users --entity-name alice --alter --add-config SCRAM-SHA-256=[password=alice-secret]"),
    (CONFIGS, "--entity-type users --entity-name alice --alter --add-config SCRAM-SHA-512=[iterations=8192,password=alice-secret]"),
    (CONFIGS, "--entity-type users --entity-name bob --alter --add-config SCRAM-SHA-256=[iterations=4095,password=bob-secret]"),
    (CONFIGS, "--entity-type users --entity-name bob --alter --add-config SCRAM-SHA-256=[iterations=16385,password=bob-secret]"),
    (CONFIGS, "--entity-type users --entity-name alice --describe"),
    (CONFIGS, "--entity-type users --describe"),
    (CONFIGS, "--entity-type users --entity-name alice --alter --delete-config SCRAM-SHA-256"),
    (CONFIGS, "--entity-type users --entity-name alice --alter --delete-config SCRAM-SHA-256"),
    (CONFIGS, "--entity-type users --entity-name bob --alter --delete-config SCRAM-SHA-512"),
    (CONFIGS, "--user alice --describe"),
]

# An alteration is answered once the controller has it, and the broker takes it on a moment later, Kafka's in steps: its synonyms
# tell a new value before the value itself does. Such a description is asked again until it shows what is a matter of time alone.
IN_TIME = {
    "--entity-type brokers --entity-name 1 --describe": re.compile(r"log\.retention\.ms=-5 sensitive"),
    "--entity-type clients --entity-name c --describe": re.compile("consumer_byte_rate=2048"),
    "--entity-type users --entity-type clients --describe": re.compile("12.5"),
    "--entity-type ips --entity-name 10.0.0.1 --describe": re.compile("connection_creation_rate=5"),
    "--entity-type users --entity-default --describe": re.compile("controller_mutation_rate=3"),
    "--entity-type clients --describe": re.compile(r"(?s)^(?!.*producer_byte_rate)"),
    "--entity-type users --entity-name alice --describe": re.compile("SCRAM-SHA-512=iterations=8192"),
    "--user alice --describe": re.compile(r"(?s)^(?!.*SCRAM-SHA-256)"),
    "--list": re.compile(r"(?s)^(?!.*\bassigned\b)"),
}
IN_TIME_S = 30.0


def ask(server: ServerProcess, java_host: JavaHost, tool: str, arguments: str) -> ToolResult:
    """What the tool says, once what is a matter of time has come to pass, or as it is after `IN_TIME_S`."""
    deadline = time.monotonic() + IN_TIME_S
    while True:
        result = java_host.tool(tool, "--bootstrap-server", server.bootstrap, *arguments.split(), expected_status=None)
        if arguments not in IN_TIME or IN_TIME[arguments].search(result.stdout) or time.monotonic() > deadline:
            return result


def answers(server: ServerProcess, java_host: JavaHost) -> list[str]:
    """What each command printed and its exit status, without what must differ: ports, ids and stack traces."""
    printed = []
    for tool, arguments in COMMANDS:
        if tool == CONSUME:
            ConfluentKafka().produce(server, "assigned", [Message(0, b"k", b"v%d" % n, (), 1_790_000_000_000 + n) for n in range(20)])
        result = ask(server, java_host, tool, arguments)
        lines = [line for line in f"{result.stdout}\n{result.stderr}".splitlines() if not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
        printed.append(f"status {result.status}\n" + _in_order("\n".join(lines)).replace(server.bootstrap, "SERVER"))
    return printed


def _in_order(text: str) -> str:
    """A user's mechanisms in one order: Apache Kafka's is that of identity hashes, which differ from start to start."""
    return re.sub(r"SCRAM-SHA-\d+=\S+(?:, SCRAM-SHA-\d+=\S+)+", lambda found: ", ".join(sorted(found[0].split(", "))), text)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, java_host: JavaHost) -> list[tuple[str, str]]:
    """The answers of Apache Kafka and of Barnabas to each command."""
    kafka_jars()
    root: Path = tmp_path_factory.mktemp("answers")
    servers = [KafkaServer(root / "kafka"), BrokerProcess(root / "barnabas", {"node.id": "1"})]
    found = []
    for server in servers:
        server.start()
        try:
            found.append(answers(server, java_host))
        finally:
            server.end()
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[f"{tool.split('.')[-1]} {arguments}" for tool, arguments in COMMANDS])
def test_barnabas_answers_as_kafka_does(both: list[tuple[str, str]], number: int) -> None:
    kafka_answer, barnabas_answer = both[number]

    assert barnabas_answer == kafka_answer
