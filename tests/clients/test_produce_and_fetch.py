"""What each stock client may ask of produce and fetch: acks, idempotence, auto-creation, large records, timestamps."""

from __future__ import annotations

import aiokafka
import confluent_kafka
import kafka
import pytest

from tests.clients.adapters import Client, ConfluentKafka, run
from tests.clients.topics import as_sent, create_topic, in_order
from tests.support.java_host import JavaHost
from tests.support.messages import RECENT_MS, Message
from tests.support.process import ServerProcess

LARGE_BYTES = 900_000
# The smallest limit that all clients accept; a fetch must bring the first record however large it is.
SMALL_FETCH_BYTES = 1_000


def numbered(count: int, *, partitions: int = 1) -> list[Message]:
    return [Message(number % partitions, b"key-%d" % number, b"value-%d" % number, (), RECENT_MS + number) for number in range(count)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_acks(server: ServerProcess, topic_name: str, client: Client, acks: str) -> None:
    create_topic(server, topic_name)

    offsets = client.produce(server, topic_name, numbered(50), acks=acks)

    assert offsets == ([None] * 50 if acks == "0" else list(range(50)))
    assert in_order(client.consume(server, topic_name, 50)) == as_sent(numbered(50))


def test_idempotent_producer_gets_dense_offsets(server: ServerProcess, topic_name: str, client: Client) -> None:
    create_topic(server, topic_name, partitions=2)

    offsets = client.produce(server, topic_name, numbered(500, partitions=2), idempotent=True)

    assert offsets == [number // 2 for number in range(500)]


def test_producing_to_an_unknown_topic_creates_it(server: ServerProcess, topic_name: str, client: Client) -> None:
    client.produce(server, topic_name, numbered(3))

    assert in_order(client.consume(server, topic_name, 3)) == as_sent(numbered(3))


def test_large_record_comes_back_whole_even_past_the_fetch_limit(server: ServerProcess, topic_name: str, client: Client) -> None:
    """KIP-74: the first batch of a fetch is returned whatever its size, or the consumer would be stuck on it."""
    create_topic(server, topic_name)
    messages = [Message(0, b"large", bytes([number]) * LARGE_BYTES, (), RECENT_MS) for number in range(3)]
    client.produce(server, topic_name, messages)

    records = client.consume(server, topic_name, 3, fetch_bytes=SMALL_FETCH_BYTES)

    assert in_order(records) == as_sent(messages)


def test_record_over_the_topics_limit_is_refused(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name, config={"max.message.bytes": "10000"})

    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        ConfluentKafka().produce(server, topic_name, [Message(0, None, b"x" * 20_000)])

    assert ConfluentKafka().produce(server, topic_name, [Message(0, None, b"x" * 5_000)]) == [0]


def test_kafka_python_finds_offsets_by_timestamp(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, numbered(100))
    consumer = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap)
    partition = kafka.TopicPartition(topic_name, 0)

    found = consumer.offsets_for_times({partition: RECENT_MS + 42})[partition]
    beyond = consumer.offsets_for_times({partition: RECENT_MS + 1000})[partition]
    ends = (consumer.beginning_offsets([partition])[partition], consumer.end_offsets([partition])[partition])
    consumer.close()

    assert (found.offset, found.timestamp, beyond, ends) == (42, RECENT_MS + 42, None, (0, 100))


def test_confluent_kafka_finds_offsets_by_timestamp(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, numbered(100))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})

    found = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic_name, 0, RECENT_MS + 42)], timeout=60)
    consumer.close()

    assert [partition.offset for partition in found] == [42]


def test_aiokafka_reads_from_a_timestamp_on(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, numbered(100))
    partition = aiokafka.TopicPartition(topic_name, 0)

    async def read() -> bytes:
        async with aiokafka.AIOKafkaConsumer(topic_name, bootstrap_servers=server.bootstrap) as consumer:
            consumer.seek(partition, (await consumer.offsets_for_times({partition: RECENT_MS + 42}))[partition].offset)
            value: bytes = (await consumer.getone()).value
            return value

    assert run(read()) == b"value-42"


def test_java_shell_finds_offsets_by_timestamp(server: ServerProcess, topic_name: str, java_host: JavaHost) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, numbered(100))

    def offset_at(time: str) -> list[str]:
        return java_host.tool("GetOffsetShell", "--bootstrap-server", server.bootstrap, "--topic", topic_name, "--time", time).lines

    assert offset_at(str(RECENT_MS + 42)) == [f"{topic_name}:0:42"]
    assert offset_at("earliest") == [f"{topic_name}:0:0"]
    assert offset_at("latest") == [f"{topic_name}:0:100"]
    assert offset_at("max-timestamp") == [f"{topic_name}:0:99"]


def test_log_append_time_replaces_the_clients_time(server: ServerProcess, topic_name: str, client: Client) -> None:
    create_topic(server, topic_name, config={"message.timestamp.type": "LogAppendTime"})
    client.produce(server, topic_name, numbered(3))

    times = {record.timestamp_ms for record in client.consume(server, topic_name, 3)}

    assert len(times) >= 1
    assert times.isdisjoint(range(RECENT_MS, RECENT_MS + 3))


def test_consumer_waits_for_records_that_come_later(server: ServerProcess, topic_name: str) -> None:
    """A long poll is answered when a record arrives, not when its time is up."""
    create_topic(server, topic_name)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "unused", "fetch.wait.max.ms": 50_000, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic_name, 0, 0)])
    assert consumer.poll(0.5) is None

    ConfluentKafka().produce(server, topic_name, numbered(1))
    message = consumer.poll(40.0)
    consumer.close()

    assert message is not None
    assert message.value() == b"value-0"
