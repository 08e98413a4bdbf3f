"""The stock clients under one small interface, so that a test is written once and run with each of them.

An adapter makes its client, does one thing and closes the client again; it adds no behaviour and hides no error.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import aiokafka
import confluent_kafka
import kafka

from tests.support.java_host import JavaHost
from tests.support.messages import Headers, Message, Stored
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint, plain

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 90.0
MAX_REQUEST_BYTES = 2_000_000
FETCH_BYTES = 1_048_576
_T = TypeVar("_T")
Where = ServerProcess | Endpoint
"""A server's listener without security, or how to connect to one with it."""


class Client(ABC):
    """A stock client. `produce` returns offsets in the order of the messages, None where acks=0 tells nothing."""

    name: str
    can_send_null_headers = True

    @abstractmethod
    def produce(
        self,
        server: Where,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int | None]: ...

    @abstractmethod
    def consume(
        self, server: Where, topic: str, count: int, *, timeout_s: float = TIMEOUT_S, fetch_bytes: int = FETCH_BYTES
    ) -> list[Stored]:
        """Up to `count` records of all partitions, from their beginning, without a group.

        `fetch_bytes` is what the client asks for at most, in a fetch and in each partition.
        """


class KafkaPython(Client):
    name = "kafka-python"
    can_send_null_headers = False  # it refuses a header value of None, though it reads one

    def produce(
        self,
        server: Where,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int | None]:
        producer = kafka.KafkaProducer(
            **endpoint_of(server).kafka_python(),
            compression_type=None if compression == "none" else compression,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=MAX_REQUEST_BYTES,
        )
        try:
            futures = [
                producer.send(topic, message.value, message.key, list(message.headers), message.partition, message.timestamp_ms)
                for message in messages
            ]
            producer.flush(TIMEOUT_S)
            offsets = [future.get(TIMEOUT_S).offset for future in futures]
        finally:
            producer.close()
        return [None if acks == "0" else offset for offset in offsets]

    def consume(
        self, server: Where, topic: str, count: int, *, timeout_s: float = TIMEOUT_S, fetch_bytes: int = FETCH_BYTES
    ) -> list[Stored]:
        consumer = kafka.KafkaConsumer(
            **endpoint_of(server).kafka_python(),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_bytes=fetch_bytes,
            max_partition_fetch_bytes=fetch_bytes,
        )
        deadline = time.monotonic() + timeout_s
        records: list[Stored] = []
        try:
            partitions = [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while len(records) < count and time.monotonic() < deadline:
                for polled in consumer.poll(timeout_ms=200).values():
                    records += [from_kafka_python(record) for record in polled]
        finally:
            consumer.close()
        return records


class AioKafka(Client):
    name = "aiokafka"

    def produce(
        self,
        server: Where,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int | None]:
        async def send() -> list[int | None]:
            producer = aiokafka.AIOKafkaProducer(
                **endpoint_of(server).aiokafka(),
                compression_type=None if compression == "none" else compression,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                linger_ms=5,
                max_request_size=MAX_REQUEST_BYTES,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(topic, message.value, message.key, message.partition, message.timestamp_ms, list(message.headers))
                    for message in messages
                ]
                answers = await asyncio.gather(*futures)
            finally:
                await producer.stop()
            return [None if acks == "0" else answer.offset for answer in answers]

        return run(send())

    def consume(
        self, server: Where, topic: str, count: int, *, timeout_s: float = TIMEOUT_S, fetch_bytes: int = FETCH_BYTES
    ) -> list[Stored]:
        async def receive() -> list[Stored]:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                **endpoint_of(server).aiokafka(),
                auto_offset_reset="earliest",
                fetch_max_bytes=fetch_bytes,
                max_partition_fetch_bytes=fetch_bytes,
            )
            deadline = time.monotonic() + timeout_s
            records: list[Stored] = []
            await consumer.start()
            try:
                while len(records) < count and time.monotonic() < deadline:
                    for polled in (await consumer.getmany(timeout_ms=200)).values():
                        records += [from_kafka_python(record) for record in polled]
            finally:
                await consumer.stop()
            return records

        return run(receive())


class ConfluentKafka(Client):
    name = "confluent-kafka"

    def produce(
        self,
        server: Where,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int | None]:
        offsets: dict[int, int] = {}
        errors: list[str] = []
        producer = confluent_kafka.Producer(
            {
                **endpoint_of(server).librdkafka(),
                "compression.type": compression,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": MAX_REQUEST_BYTES,
                "linger.ms": 5,
            }
        )
        for number, message in enumerate(messages):

            def delivered(error: Any, record: Any, number: int = number) -> None:
                if error:
                    errors.append(str(error))
                else:
                    offsets[number] = record.offset()

            timestamp = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                message.value,
                message.key,
                partition=message.partition,
                headers=list(message.headers),
                on_delivery=delivered,
                **timestamp,
            )
        assert producer.flush(TIMEOUT_S) == 0, "not all messages were delivered in time"
        assert not errors, errors
        return [None if acks == "0" else offsets[number] for number in range(len(messages))]

    def consume(
        self, server: Where, topic: str, count: int, *, timeout_s: float = TIMEOUT_S, fetch_bytes: int = FETCH_BYTES
    ) -> list[Stored]:
        consumer = confluent_kafka.Consumer(
            {
                **endpoint_of(server).librdkafka(),
                "group.id": "test-unused",  # librdkafka looks for its coordinator, which needs a right to it
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "message.max.bytes": fetch_bytes,
                "fetch.max.bytes": fetch_bytes,
                "fetch.message.max.bytes": fetch_bytes,
            }
        )
        deadline = time.monotonic() + timeout_s
        records: list[Stored] = []
        try:
            partitions = consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions
            consumer.assign([confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING) for number in partitions])
            while len(records) < count and time.monotonic() < deadline:
                records += [from_confluent(record) for record in consumer.consume(count - len(records), timeout=0.2)]
        finally:
            consumer.close()
        return records


class JavaKafka(Client):
    name = "java"

    def __init__(self, host: JavaHost) -> None:
        self._host = host

    def produce(
        self,
        server: Where,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int | None]:
        config = {
            **endpoint_of(server).java,
            "compression.type": compression,
            "acks": acks,
            "enable.idempotence": str(idempotent).lower(),
            "max.request.size": str(MAX_REQUEST_BYTES),
            "linger.ms": "5",
        }
        offsets = self._host.produce(config, topic, messages)
        return [None if acks == "0" else offset for offset in offsets]

    def consume(
        self, server: Where, topic: str, count: int, *, timeout_s: float = TIMEOUT_S, fetch_bytes: int = FETCH_BYTES
    ) -> list[Stored]:
        config = {
            **endpoint_of(server).java,
            "fetch.max.bytes": str(fetch_bytes),
            "max.partition.fetch.bytes": str(fetch_bytes),
        }
        return self._host.consume(config, topic, count, timeout_s=timeout_s)


def endpoint_of(where: Where) -> Endpoint:
    return where if isinstance(where, Endpoint) else plain(where)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Runs one aiokafka call on a loop of its own, with a limit."""

    async def bounded() -> _T:
        return await asyncio.wait_for(work, 2 * TIMEOUT_S)

    return asyncio.run(bounded())


def from_kafka_python(record: Any) -> Stored:
    """A record of kafka-python or aiokafka, which use the same names."""
    headers: Headers = tuple((name, value) for name, value in record.headers)
    return Stored(record.partition, record.offset, record.timestamp, record.key, record.value, headers)


def from_confluent(record: Any) -> Stored:
    assert record.error() is None, record.error()
    headers: Headers = tuple(record.headers() or ())
    return Stored(record.partition(), record.offset(), record.timestamp()[1], record.key(), record.value(), headers)
