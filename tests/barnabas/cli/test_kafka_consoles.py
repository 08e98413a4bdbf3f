"""kafka-console-producer.sh and kafka-console-consumer.sh by their names, at servers of both kinds: output and exit codes are those of
Kafka's own tools."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.barnabas.cli.conftest import Tool
from tests.support.java_host import JavaHost


def test_console_producer_and_consumer(tool: Tool, topic_name: str) -> None:
    tool("topics", "--create", "--topic", topic_name, "--partitions", "1")
    plain = tool("console-producer", "--topic", topic_name, stdin="a\n\n")
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:", "--property", "null.marker=NIL")
    assert (plain[0], tool("console-producer", "--topic", topic_name, *keyed, stdin="k:v:w\nNIL:NIL\n")[0]) == (0, 0)
    refused = tool("console-producer", "--topic", topic_name, *keyed, stdin="no separator\n")
    assert refused[0] == 1 and "No key separator found" in refused[2]

    from_beginning = ("--topic", topic_name, "--from-beginning")
    assert tool("console-consumer", *from_beginning, "--max-messages", "2") == (0, "a\n\n", "Processed a total of 2 messages\n")
    all_of_it = (
        "--property",
        "print.key=true",
        "--property",
        "print.offset=true",
        "--property",
        "print.headers=true",
        "--timeout-ms",
        "1500",
    )
    code, out, err = tool("console-consumer", *from_beginning, *all_of_it)
    lines = [
        "Offset:0\tNO_HEADERS\tnull\ta",
        "Offset:1\tNO_HEADERS\tnull\t",
        "Offset:2\tNO_HEADERS\tk\tv:w",
        "Offset:3\tNO_HEADERS\tnull\tnull",
    ]
    assert (code, out.splitlines(), err) == (0, lines, "Processed a total of 4 messages\n")
    at_two = ("--topic", topic_name, "--partition", "0", "--offset", "2", "--max-messages", "1")
    assert tool("console-consumer", *at_two)[1] == "v:w\n"


def produced(tool: Tool, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    tool("topics", "--create", "--topic", topic, "--partitions", "1")
    producer = Producer({"bootstrap.servers": tool.command.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key, partition=0, headers=[("size", value or b"")])
    assert producer.flush(30) == 0


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_console_consumer_prints_what_javas_deserializers_read(java_host: JavaHost, tool: Tool, topic_name: str) -> None:
    numbers = (0.1, -0.0, 1.0, 1e-3, 9.99e-4, 1e7, 12345678.9, float("nan"), float("-inf"), 16777216.0, 3.4028234663852886e38)
    of_kinds: dict[str, list[bytes]] = {
        "Double": [struct.pack(">d", number) for number in (*numbers, 1.7976931348623157e308)],
        "Float": [struct.pack(">f", number) for number in numbers],
        "Long": [struct.pack(">q", number) for number in (0, -1, 2**63 - 1)],
    }
    for kind, values in of_kinds.items():
        topic, name = f"{topic_name}-{kind}", f"org.apache.kafka.common.serialization.{kind}Deserializer"
        produced(tool, topic, *values, key=values[0])
        words = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(values)))
        shown = ("--formatter-property", "print.key=true", "--formatter-property", f"headers.deserializer={name}")
        details = ("--formatter-property", "print.headers=true", "--formatter-property", "print.epoch=true")
        told = (*words, *shown, *details, "--key-deserializer", name, "--value-deserializer", name)
        code, out, _ = tool("console-consumer", *told)
        assert (code, out) == (0, java_host.tool("consumer.ConsoleConsumer", *tool.address, *told).stdout)


def test_console_consumer_ends_at_what_a_deserializer_cannot_read_or_goes_on(tool: Tool, topic_name: str) -> None:
    produced(tool, topic_name, struct.pack(">i", 7), b"short", None, struct.pack(">i", -8))
    name = "org.apache.kafka.common.serialization.IntegerDeserializer"
    words = ("--topic", topic_name, "--from-beginning", "--max-messages", "4", "--property", f"value.deserializer={name}")

    ended = tool("console-consumer", *words)
    went_on = tool("console-consumer", *words, "--skip-message-on-error")

    assert ended[:2] == (1, "7\n") and "Size of data received by IntegerDeserializer is not 4" in ended[2]
    assert went_on[:2] == (0, "7\nnull\n-8\n") and "offset 1 is skipped" in went_on[2]
    # A property wins over an option, as in Kafka's tool.
    assert tool("console-consumer", *words, "--value-deserializer", "unknown", "--skip-message-on-error") == went_on
    unknown = tool("console-consumer", "--topic", topic_name, "--key-deserializer", "io.confluent.kafka.serializers.KafkaAvroDeserializer")
    assert unknown[0] == 1 and "there is no io.confluent" in unknown[2]


def test_console_consumer_reads_the_topics_of_a_regular_expression(tool: Tool, topic_name: str, tmp_path: Path) -> None:
    for name in (f"{topic_name}-a", f"{topic_name}-b", f"other-{topic_name}"):
        produced(tool, name, name.encode())
    both, formats = ("--include", f"{topic_name}-(a|b)", "--max-messages", "2"), tmp_path / "format.properties"
    formats.write_text("print.partition=true\nkey.separator=|\n")

    without_group = tool("console-consumer", *both, "--from-beginning", "--formatter-config", str(formats))
    of_group = ("--consumer-property", f"group.id=group-{topic_name}", "--consumer-property", "auto.offset.reset=earliest")
    members = tool("console-consumer", *both, *of_group, "--consumer-property", "receive.buffer.bytes=65536")

    assert sorted(without_group[1].splitlines()) == [f"Partition:0|{topic_name}-a", f"Partition:0|{topic_name}-b"]
    assert sorted(members[1].splitlines()) == [f"{topic_name}-a", f"{topic_name}-b"]
    assert "properties without a meaning here: receive.buffer.bytes" in members[2]
    assert f"group-{topic_name}" in tool("consumer-groups", "--list")[1].splitlines()
    for words in (
        ("--include", "none-.*"), ("--include", "("), ("--topic", "a", "--include", "a"), ("--include", "a", "--partition", "0"), (),
        ("--topic", topic_name, "--partition", "0", "--group", "a"), ("--topic", topic_name, "--group", "a", *of_group[:2]),
        ("--topic", topic_name, "--from-beginning", "--consumer-property", "auto.offset.reset=latest"),
        ("--topic", topic_name, "--formatter", "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"),
    ):  # fmt: skip
        refused = tool("console-consumer", *words)
        assert (refused[0], refused[1]) == (1, ""), words
    nothing = ("--topic", f"{topic_name}-a", "--from-beginning", "--max-messages", "1")
    silent = tool("console-consumer", *nothing, "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter")
    assert silent == (0, "", "Processed a total of 1 messages\n")


def test_console_producer_takes_its_readers_properties_from_a_file(tool: Tool, topic_name: str, tmp_path: Path) -> None:
    tool("topics", "--create", "--topic", topic_name, "--partitions", "1")
    reader, client = tmp_path / "reader.properties", tmp_path / "client.properties"
    reader.write_text("parse.key=true\nkey.separator=\u00a7\n", encoding="utf-8")
    client.write_text("default.api.timeout.ms=9000\nmax.block.ms=5000\nclient.id=of-a-java-client\n")
    words = ("--reader-config", str(reader), "--line-reader", "org.apache.kafka.tools.LineMessageReader", "--command-config", str(client))

    done = tool("console-producer", "--topic", topic_name, *words, "--producer-property", "buffer.memory=1000000", stdin="k\u00a7v\n")

    assert done[0] == 0 and done[2].count("without a meaning here: default.api.timeout.ms, max.block.ms, buffer.memory") == 1
    read = ("--from-beginning", "--max-messages", "1", "--property", "print.key=true", "--property", "key.separator=\u00a7")
    assert tool("console-consumer", "--topic", topic_name, *read)[1] == "k\u00a7v\n"
    assert tool("console-producer", "--topic", topic_name, "--line-reader", "com.example.Reader", stdin="a\n")[0] == 1


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_records_of_coordinators_are_written_as_javas_formatters_do(java_host: JavaHost, tool: Tool, topic_name: str) -> None:
    produced(tool, topic_name, b"a")
    member = Consumer({"bootstrap.servers": tool.command.bootstrap, "group.id": f"\u00e4 {topic_name}", "enable.auto.commit": False})
    member.subscribe([topic_name])
    while not member.assignment():
        member.poll(0.1)
    member.commit(offsets=[TopicPartition(topic_name, 0, 1, metadata='of "a"')], asynchronous=False)
    producer = Producer({"bootstrap.servers": tool.command.bootstrap, "transactional.id": topic_name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic_name, "b")
    producer.commit_transaction()
    for topic, name in (
        ("__consumer_offsets", "OffsetsMessageFormatter"),
        ("__consumer_offsets", "GroupMetadataMessageFormatter"),
        ("__transaction_state", "TransactionLogMessageFormatter"),
    ):
        written = ""
        for line in tool("get-offsets", "--topic", topic)[1].splitlines():
            _, partition, end = line.split(":")
            words = ("--topic", topic, "--partition", partition, "--offset", "earliest", "--max-messages", end, "--timeout-ms", "20000")
            formatter = ("--formatter", f"org.apache.kafka.tools.consumer.{name}")
            if end != "0" and topic_name in (written := tool("console-consumer", *words, *formatter)[1]):
                break
        assert topic_name in written
        assert written == java_host.tool("consumer.ConsoleConsumer", *tool.address, *words, *formatter).stdout
    member.close()
