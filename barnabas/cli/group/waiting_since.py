"""Since when the first record that a group has not read waits: its timestamp, read from the log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.connection import Connection, make

NO_GROUP = "barnabas-describe"
"""librdkafka asks every consumer for a group; this one is never joined."""
FETCH_BYTES = 16_384
"""Of a partition: one record is needed. A broker sends at least a batch."""
BATCH_COUNT, WAIT_S = 1_000, 0.1


def first_timestamps(connection: Connection, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """The timestamp in milliseconds of the first record at or after each offset; without partitions where that record is gone, has no
    timestamp, or does not come in time."""
    if not offsets:
        return {}
    config: dict[str, Any] = {
        "enable.auto.commit": False,
        "auto.offset.reset": "error",  # a record that is gone is not replaced by a later one
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
        "max.partition.fetch.bytes": FETCH_BYTES,
        "fetch.wait.max.ms": 50,
        "isolation.level": "read_uncommitted",  # an open transaction is something that waits, too
        "group.id": NO_GROUP,
    }
    consumer: Consumer = make(Consumer, {**connection.config({}), **config})
    found: dict[Partition, int] = {}
    try:
        consumer.assign([TopicPartition(*each, offset) for each, offset in offsets.items()])
        _collect(connection, consumer, set(offsets), found)
    finally:
        consumer.close()
    return found


def _collect(connection: Connection, consumer: Consumer, pending: set[Partition], found: dict[Partition, int]) -> None:
    deadline = time.monotonic() + connection.timeout_s
    while pending and time.monotonic() < deadline:
        connection.check_let_in()
        for message in consumer.consume(max(1, min(len(pending), BATCH_COUNT)), WAIT_S):
            each: Any = (message.topic(), message.partition())
            error = message.error()
            if each not in pending or (error is not None and error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)):
                continue
            pending.discard(each)
            consumer.incremental_unassign([TopicPartition(*each)])
            kind, timestamp_ms = message.timestamp()
            if error is None and kind:
                found[each] = timestamp_ms
