"""Kafka's own command line tools against the server: what they print is what they print against Apache Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.clients.adapters import CODECS, Client, ConfluentKafka, JavaKafka
from tests.clients.members import ConfluentMember, poll_until, share_all
from tests.clients.topics import create_topic, eventually
from tests.support.java_host import TOOLS, JavaHost
from tests.support.kafka import java_tool
from tests.support.messages import Message
from tests.support.process import ServerProcess

CONSUMER_TIMEOUT_MS = "60000"


def consume_by_console(java_host: JavaHost, server: ServerProcess, topic: str, count: int, *more: str) -> list[str]:
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--max-messages", str(count)]
    return java_host.tool(
        "consumer.ConsoleConsumer", *arguments, "--from-beginning", "--timeout-ms", CONSUMER_TIMEOUT_MS, *more
    ).stdout.splitlines()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_producer_performance_sends_all(server: ServerProcess, topic_name: str, java_host: JavaHost, codec: str, idempotence: str) -> None:
    create_topic(server, topic_name, partitions=2)
    properties = [f"bootstrap.servers={server.bootstrap}", f"compression.type={codec}", f"enable.idempotence={idempotence}"]
    load = ["--num-records", "3000", "--record-size", "200", "--throughput", "-1"]

    printed = java_host.tool("ProducerPerformance", "--topic", topic_name, *load, "--command-property", *properties).stdout

    assert "3000 records sent" in printed
    assert len(ConfluentKafka().consume(server, topic_name, 3000)) == 3000


def test_consumer_performance_reads_all(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"x" * 100)] * 5000)

    printed = java_host.tool(
        "ConsumerPerformance",
        "--bootstrap-server",
        server.bootstrap,
        "--topic",
        topic_name,
        "--num-records",
        "5000",
        "--timeout",
        CONSUMER_TIMEOUT_MS,
    ).lines

    shown = dict(zip(printed[0].split(", "), printed[1].split(", "), strict=True))
    assert int(shown["data.consumed.in.nMsg"]) >= 5000


def test_delete_records_lets_partitions_begin_later(server: ServerProcess, topic_name: str, java_host: JavaHost, tmp_path: Path) -> None:
    create_topic(server, topic_name, partitions=2)
    ConfluentKafka().produce(server, topic_name, [Message(index, b"k", b"v") for index in (0, 0, 0, 1, 1)])
    offsets = tmp_path / "offsets.json"
    asked = [{"topic": topic_name, "partition": 0, "offset": 2}, {"topic": topic_name, "partition": 1, "offset": -1}]
    offsets.write_text(json.dumps({"version": 1, "partitions": asked}))
    words = ["--bootstrap-server", server.bootstrap, "--offset-json-file", str(offsets)]

    printed = java_host.tool("DeleteRecordsCommand", *words).stdout
    asked[0]["offset"] = 4
    offsets.write_text(json.dumps({"version": 1, "partitions": asked[:1]}))
    refused = java_host.tool("DeleteRecordsCommand", *words, expected_status=None).stdout

    assert sorted(line for line in printed.splitlines() if "low_watermark" in line) == [
        f"partition: {topic_name}-0\tlow_watermark: 2",
        f"partition: {topic_name}-1\tlow_watermark: 2",
    ]
    assert "OffsetOutOfRangeException" in refused
    assert [record.offset for record in ConfluentKafka().consume(server, topic_name, 1)] == [2]


def test_console_producer_is_read_by_every_client(server: ServerProcess, topic_name: str, java_host: JavaHost, consumer: Client) -> None:
    create_topic(server, topic_name)
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic_name]
    properties = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    lines = "origin:console\tk1\tfirst\norigin:console\tk2\tsecond\n"

    java_host.tool("ConsoleProducer", *arguments, *properties, stdin=lines)

    records = consumer.consume(server, topic_name, 2)
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"k1", b"first", (("origin", b"console"),)),
        (b"k2", b"second", (("origin", b"console"),)),
    ]


def test_console_consumer_reads_every_client(server: ServerProcess, topic_name: str, java_host: JavaHost, producer: Client) -> None:
    create_topic(server, topic_name)
    producer.produce(server, topic_name, [Message(0, b"k", b"v%d" % number, (("h", b"x"),)) for number in range(3)], compression="lz4")
    shown = [f"--formatter-property=print.{part}=true" for part in ("key", "headers", "offset", "partition")]

    lines = consume_by_console(java_host, server, topic_name, 3, *shown)

    assert lines == [f"Partition:0\tOffset:{number}\th:x\tk\tv{number}" for number in range(3)]


def test_console_consumer_resumes_in_its_group(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"%d" % number) for number in range(10)])

    first = consume_by_console(java_host, server, topic_name, 4, "--group", topic_name)
    second = consume_by_console(java_host, server, topic_name, 6, "--group", topic_name)

    assert first + second == [str(number) for number in range(10)]


def test_topic_command_creates_alters_and_deletes(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    def topics(*arguments: str, expected_status: int = 0) -> list[str]:
        return java_host.tool("TopicCommand", "--bootstrap-server", server.bootstrap, *arguments, expected_status=expected_status).lines

    created = topics("--create", "--topic", topic_name, "--partitions", "2", "--config", "cleanup.policy=compact")
    topics("--alter", "--topic", topic_name, "--partitions", "3")
    eventually(lambda: len(topics("--describe", "--topic", topic_name)) == 4)
    described = topics("--describe", "--topic", topic_name)
    again = topics("--create", "--topic", topic_name, expected_status=1)
    topics("--delete", "--topic", topic_name)

    assert created == [f"Created topic {topic_name}."]
    assert re.match(
        rf"Topic: {topic_name}\tTopicId: \S{{22}}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*cleanup.policy=compact", described[0]
    )
    assert re.match(rf"\tTopic: {topic_name}\tPartition: 2\tLeader: (\d+)\tReplicas: \1\tIsr: \1\tElr: \tLastKnownElr: ", described[3])
    assert any("already exists" in line for line in again)
    eventually(lambda: topic_name not in topics("--list"))


def test_config_command_sets_and_shows_topic_configs(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    target = ["--bootstrap-server", server.bootstrap, "--entity-type", "topics", "--entity-name", topic_name]

    java_host.tool("kafka.admin.ConfigCommand", *target, "--alter", "--add-config", "retention.ms=12345,cleanup.policy=[compact,delete]")
    java_host.tool("kafka.admin.ConfigCommand", *target, "--alter", "--delete-config", "cleanup.policy")
    shown = java_host.tool("kafka.admin.ConfigCommand", *target, "--describe").lines

    assert shown[0] == f"Dynamic configs for topic {topic_name} are:"
    assert [line.strip().split(" ")[0] for line in shown[1:]] == ["retention.ms=12345"]
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=12345}" in shown[1]


def test_consumer_groups_command_shows_lag_and_members(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"v")] * 10)
    member = ConfluentMember(server, topic_name, topic_name)
    poll_until([member], lambda read: share_all([member], 1) and len(read) == 10)
    member.commit()
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"v")] * 5)

    def groups(*arguments: str) -> list[list[str]]:
        command = java_host.tool("consumer.group.ConsumerGroupCommand", "--bootstrap-server", server.bootstrap, *arguments)
        return [line.split() for line in command.lines]

    offsets = groups("--describe", "--group", topic_name)
    members = groups("--describe", "--group", topic_name, "--members")
    state = groups("--describe", "--group", topic_name, "--state")
    member.close()

    assert dict(zip(offsets[0], offsets[1], strict=False))["LAG"] == "5"
    assert dict(zip(members[0], members[1], strict=False))["#PARTITIONS"] == "1"
    assert "Stable" in state[1]
    assert [topic_name] in groups("--list")


def test_consumer_groups_command_resets_offsets(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"%d" % number) for number in range(10)])
    consume_by_console(java_host, server, topic_name, 10, "--group", topic_name)
    target = ["--bootstrap-server", server.bootstrap, "--group", topic_name, "--topic", topic_name]

    java_host.tool("consumer.group.ConsumerGroupCommand", *target, "--reset-offsets", "--to-offset", "7", "--execute")

    assert consume_by_console(java_host, server, topic_name, 3, "--group", topic_name) == ["7", "8", "9"]


def test_consumer_groups_command_deletes_offsets_and_groups(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"v")])
    consume_by_console(java_host, server, topic_name, 1, "--group", topic_name)
    target = ["--bootstrap-server", server.bootstrap, "--group", topic_name]

    def run(*arguments: str, status: int | None = 0) -> str:
        return java_host.tool("consumer.group.ConsumerGroupCommand", *target, *arguments, expected_status=status).stdout

    deleted_offsets = run("--delete-offsets", "--topic", topic_name)
    deleted = run("--delete")
    again = run("--delete", status=None)

    assert "Successful" in deleted_offsets
    assert f"Deletion of requested consumer groups ('{topic_name}') was successful." in deleted
    assert "GroupIdNotFoundException" in again


def test_transactions_command_describes_producers(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    config = {"bootstrap.servers": server.bootstrap, "enable.idempotence": "true"}
    java_host.produce(config, topic_name, [Message(0, None, b"v")] * 3)
    words = ["--bootstrap-server", server.bootstrap, "describe-producers", "--topic", topic_name, "--partition", "0"]

    header, row = (line.split() for line in java_host.tool("TransactionsCommand", *words).lines)

    described = dict(zip(header, row, strict=True))
    assert described["ProducerEpoch"] == "0"
    assert described["LastSequence"] == "2"
    assert described["CurrentTransactionStartOffset"] == "None"


@pytest.mark.parametrize("command", ["--list", "--add --allow-principal User:a --operation Read --topic t", "--remove --force --topic t"])
def test_acls_command_is_told_that_there_is_no_authorizer(server: ServerProcess, java_host: JavaHost, command: str) -> None:
    printed = java_host.tool("AclCommand", "--bootstrap-server", server.bootstrap, *command.split(), expected_status=None)

    assert "SecurityDisabledException: No Authorizer is configured" in printed.stdout + printed.stderr


CONFIGS = "kafka.admin.ConfigCommand"


@pytest.mark.parametrize(
    ("entity", "config"),
    [
        ("--entity-type groups --entity-name tool-group", "consumer.session.timeout.ms=50000"),
        ("--entity-type client-metrics --entity-name tool-metrics", "interval.ms=60000"),
        ("--entity-type brokers --entity-default", "log.cleaner.backoff.ms=16000"),
        ("--entity-type brokers --entity-name 1", "log.cleaner.backoff.ms=17000"),
        ("--entity-type broker-loggers --entity-name 1", "root=WARN"),
    ],
)
def test_configs_command_sets_and_shows(server: ServerProcess, java_host: JavaHost, entity: str, config: str) -> None:
    words = ["--bootstrap-server", server.bootstrap, *entity.split()]
    name, _, value = config.partition("=")

    set_ = java_host.tool(CONFIGS, *words, "--alter", "--add-config", config).stdout
    shown = java_host.tool(CONFIGS, *words, "--describe").stdout
    if name == "root":
        java_host.tool(CONFIGS, *words, "--alter", "--add-config", "root=INFO")
    else:
        java_host.tool(CONFIGS, *words, "--alter", "--delete-config", name)

    assert "Completed updating" in set_
    assert f"{name}={value}" in shown


def test_client_metrics_command_lists_subscriptions(server: ServerProcess, java_host: JavaHost) -> None:
    words = ["--bootstrap-server", server.bootstrap]

    java_host.tool("ClientMetricsCommand", *words, "--alter", "--name", "tool-list", "--metrics", "org.apache.", "--interval", "60000")
    listed = java_host.tool("ClientMetricsCommand", *words, "--list").lines
    java_host.tool("ClientMetricsCommand", *words, "--delete", "--name", "tool-list")

    assert "tool-list" in listed
    assert "tool-list" not in java_host.tool("ClientMetricsCommand", *words, "--list").lines


def test_broker_api_versions_command_reads_every_range(server: ServerProcess, java_host: JavaHost) -> None:
    printed = java_host.tool("BrokerApiVersionsCommand", "--bootstrap-server", server.bootstrap).stdout

    assert f"{server.host}:{server.port}" in printed
    assert re.search(r"Produce\(0\): 0 to \d+ \[usable: \d+\]", printed)
    assert re.search(r"Fetch\(1\): \d+ to \d+ \[usable: \d+\]", printed)


def test_verifiable_producer_is_acked_for_all(server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    """In a JVM of its own: it prints its summary when the process ends."""
    create_topic(server, topic_name, partitions=3)
    properties = tmp_path / "producer.properties"
    properties.write_text("enable.idempotence=true\nretries=5\n")
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic_name, "--max-messages", "1000"]

    printed = java_tool(f"{TOOLS}.VerifiableProducer", *arguments, "--acks", "-1", "--command-config", str(properties)).stdout

    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert events[-1]["name"] == "tool_data"
    assert (events[-1]["sent"], events[-1]["acked"]) == (1000, 1000)


def test_end_to_end_latency_runs(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic_name]

    printed = java_host.tool("EndToEndLatency", *arguments, "--num-records", "50", "--producer-acks", "all", "--record-size", "100").stdout

    assert "Percentiles" in printed


def test_java_client_reads_what_performance_tool_wrote(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    load = ["--num-records", "200", "--record-size", "50", "--throughput", "-1"]
    java_host.tool("ProducerPerformance", "--topic", topic_name, *load, "--bootstrap-server", server.bootstrap)

    records = JavaKafka(java_host).consume(server, topic_name, 200)

    assert [record.offset for record in records] == list(range(200))


def test_log_dirs_command_describes_every_replica(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name, partitions=2)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"x" * 1000)])

    told = java_host.tool("LogDirsCommand", "--bootstrap-server", server.bootstrap, "--describe", "--topic-list", topic_name).lines

    (broker,) = json.loads(told[-1])["brokers"]
    (log_dir,) = broker["logDirs"]
    sizes = {each["partition"]: each["size"] for each in log_dir["partitions"]}
    assert (log_dir["error"], log_dir["logDir"]) == (None, str(server.data_dir))
    assert sizes[f"{topic_name}-0"] > 1000 and sizes[f"{topic_name}-1"] == 0
    assert all((each["offsetLag"], each["isFuture"]) == (0, False) for each in log_dir["partitions"])
