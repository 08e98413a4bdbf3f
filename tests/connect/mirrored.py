"""Two clusters that MirrorMaker 2 copies to each other, and what a test does with them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from tests.support.connect import MirrorMaker
from tests.support.process import ServerProcess

TIMEOUT_S = 60.0
TRAFFIC_INTERVAL_S = 0.01


class Side:
    """One of the clusters, by its alias."""

    def __init__(self, alias: str, server: ServerProcess) -> None:
        self.alias = alias
        self.server = server
        self._admin = AdminClient({"bootstrap.servers": server.bootstrap})

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return {name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=TIMEOUT_S).topics.items()}

    def configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in self._admin.describe_configs([resource])[resource].result(TIMEOUT_S).items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def add_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(TIMEOUT_S)

    def allow(self, user: str, topic: str, *operations: AclOperation) -> None:
        rights = [
            AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for future in self._admin.create_acls(rights).values():
            future.result(TIMEOUT_S)

    def rights(self, topic: str) -> set[tuple[str, AclOperation]]:
        """Who may do what, by ACLs of just this topic."""
        asked = AclBindingFilter(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ALLOW
        )
        return {(each.principal, each.operation) for each in self._admin.describe_acls(asked).result(TIMEOUT_S)}

    def record_count(self, topic: str) -> int:
        """Over all partitions; 0 while the topic does not exist, or is so young that its leaders do not serve."""
        partitions = [TopicPartition(topic, index) for index in range(self.topics().get(topic, 0))]
        consumer = self.consumer("nobody")
        try:
            found = [consumer.get_watermark_offsets(partition, TIMEOUT_S) for partition in partitions]
        except KafkaException:
            found = []
        consumer.close()
        return sum(end - start for start, end in found)

    def committed(self, group: str, topic: str) -> int:
        """The group's offset in partition 0, or a negative number."""
        consumer = self.consumer(group)
        (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        consumer.close()
        return int(found.offset)

    def consumer(self, group: str, **config: str) -> Consumer:
        """The caller closes it."""
        return Consumer(
            {"bootstrap.servers": self.server.bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
             **config}
        )  # fmt: skip

    def read_as(self, group: str, topic: str, count: int, **config: str) -> list[bytes | None]:
        """The values of the next `count` records for the group, whose offsets it commits."""
        consumer = self.consumer(group, **config)
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        while len(values) < count:
            record = consumer.poll(TIMEOUT_S)
            assert record is not None and record.error() is None, f"{len(values)} of {count} records of {topic}"
            values.append(record.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        return values


@dataclass(frozen=True, slots=True)
class Mirrored:
    """Both sides and the MirrorMaker between them."""

    maker: MirrorMaker
    sides: Mapping[str, Side]

    def directed(self, source: str) -> tuple[Side, Side]:
        """The side with that alias, and the other one."""
        (target,) = self.sides.keys() - {source}
        return self.sides[source], self.sides[target]

    def wait_records(self, side: Side, topic: str, count: int) -> None:
        self.maker.wait_for(lambda: side.record_count(topic) >= count, f"{count} records in {topic}")


class Traffic:
    """Produces numbered values for as long as it is entered, on a thread of its own. `acked` are those that were acknowledged."""

    def __init__(self, side: Side, topic: str) -> None:
        self.acked: list[bytes] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": side.server.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0

    def _run(self) -> None:
        count = 0
        while not self._is_over.wait(TRAFFIC_INTERVAL_S):
            self._producer.produce(self._topic, b"value %d" % count, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            count += 1

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.acked.append(message.value())  # type: ignore[attr-defined]


def firsts(values: Iterable[bytes | None]) -> list[bytes | None]:
    """The values in the order in which they came first."""
    return list(dict.fromkeys(values))
