"""Stock transactional producers under one small interface. Each call blocks until the client says that it is done.

An adapter adds no behaviour. An error of the client is raised as it is; `is_fenced` tells whether it says that another producer of the same
transactional id has taken over.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import ProducerFenced
from kafka.errors import InvalidProducerEpochError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from tests.support.json_program import JsonProgram, ProgramError
from tests.support.kafka import java_command

TIMEOUT_S = 60.0
TIMEOUT_MS = 60_000
QUIET_S = 0.5  # a consumer that reads nothing more for so long is at the end of what it may see
_T = TypeVar("_T")


class Server(Protocol):
    """What clients connect to: a ServerProcess or a Cluster."""

    @property
    def bootstrap(self) -> str: ...


class TransactionalProducer(ABC):
    """One producer of `transactional_id`, not initialized yet. `timeout_ms` is that of its transactions."""

    @abstractmethod
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> None: ...

    @abstractmethod
    def init(self) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: str, partition: int = 0) -> None:
        """Returns when the record is acknowledged."""

    @abstractmethod
    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """Make the group's next offset part of the transaction."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End without an end of the transaction."""

    @abstractmethod
    def is_fenced(self, error: Exception) -> bool: ...


MakeProducer = Callable[..., TransactionalProducer]
"""Makes a producer of a server, given the transactional id."""


class ConfluentProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
        self._producer: Any = confluent_kafka.Producer({**config, "linger.ms": 0, "log_level": 0})

    def init(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        errors: list[Any] = []
        self._producer.produce(topic, value.encode(), partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert self._producer.flush(TIMEOUT_S) == 0
        (error,) = errors
        if error is not None:
            raise confluent_kafka.KafkaException(error)

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": "unused:1", "group.id": group, "log_level": 0})
        metadata = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([confluent_kafka.TopicPartition(topic, partition, offset)], metadata, TIMEOUT_S)
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()

    def is_fenced(self, error: Exception) -> bool:
        codes = (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED)
        codes += (confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,)
        return isinstance(error, confluent_kafka.KafkaException) and error.args[0].code() in codes


class KafkaPythonProducer(TransactionalProducer):
    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._producer.send(topic, value.encode(), partition=partition).get(TIMEOUT_S)

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        self._producer.send_offsets_to_transaction({kafka.TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, (ProducerFencedError, InvalidProducerEpochError))


class AioKafkaProducer(TransactionalProducer):
    """Runs on a loop in a thread of its own. `init` starts the producer, which initializes it."""

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def make() -> Any:
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )

        self._producer = self._run(make())

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def init(self) -> None:
        self._run(self._producer.start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        self._run(self._producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, partition): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProducerFenced)


class JavaProducer(TransactionalProducer):
    _count = 0

    def __init__(self, bootstrap: str, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS, host: JsonProgram) -> None:
        JavaProducer._count += 1
        self._host, self._name = host, str(JavaProducer._count)
        config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": str(timeout_ms)}
        self._ask("open", config=config)

    def _ask(self, op: str, **fields: object) -> None:
        self._host.ask({"op": op, "producer": self._name, **fields})

    def init(self) -> None:
        self._ask("init")

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._ask("send", topic=topic, partition=partition, value=value)

    def commit_offset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        self._ask("offset", topic=topic, partition=partition, offset=offset, group=group)

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close")

    def is_fenced(self, error: Exception) -> bool:
        return isinstance(error, ProgramError) and ("ProducerFenced" in str(error) or "InvalidProducerEpoch" in str(error))


PYTHON_PRODUCERS: Mapping[str, type[TransactionalProducer]] = {
    "confluent-kafka": ConfluentProducer,
    "aiokafka": AioKafkaProducer,
    "kafka-python": KafkaPythonProducer,
}


def start_java_producers() -> JsonProgram:
    """The JVM of JavaProducer, which the caller closes."""
    return JsonProgram(java_command("TransactionalProducers"))


def read(server: Server, topic: str, *, isolation: str = "read_committed", count: int = 0, partitions: int = 1) -> list[str]:
    """At least `count` records, and all that follow them at once."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "reader", "isolation.level": isolation, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    deadline, values = time.monotonic() + TIMEOUT_S, list[str]()
    while time.monotonic() < deadline:
        records = consumer.consume(100, 0.1 if len(values) < count else QUIET_S)
        if not records and len(values) >= count:
            break
        values += [record.value().decode() for record in records if not record.error()]  # type: ignore[union-attr]
    consumer.close()
    return sorted(values)


def committed_offset(server: Server, group: str, topic: str) -> int:
    """Asked with require_stable: waits for the end of a transaction that has the offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    (partition,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_S)
    consumer.close()
    return int(partition.offset)


def run_transaction(
    producer: TransactionalProducer,
    topic: str,
    *values: str,
    is_committed: bool = True,
    partitions: int = 1,
    offset_of: tuple[str, int] | None = None,
) -> None:
    """One transaction, which also commits an offset of a group in the topic's first partition, if `offset_of` has both."""
    producer.begin()
    for number, value in enumerate(values):
        producer.send(topic, value, number % partitions)
    if offset_of is not None:
        group, offset = offset_of
        producer.commit_offset(group, topic, offset)
    if is_committed:
        producer.commit()
    else:
        producer.abort()
