"""Readers: consumers of librdkafka, of given partitions or as a member of a group, which read in batches and write each batch at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.connection import Connection, from_kafka, make
from barnabas.cli.consume.decoding import Decoding
from barnabas.cli.consume.filters import Filter
from barnabas.cli.consume.formats import Write
from barnabas.cli.errors import NoBrokerError

BATCH_COUNT = 10_000
WAIT_S = 0.1
"""How long a batch is waited for until it is full: records are late by that much at most."""
READS_ON = {"fetch.queue.backoff.ms": 10}
"""How long librdkafka fetches nothing after its queue was full. By default it is a second; the queue is written in a tenth of that."""
NO_GROUP = "barnabas-consume"
"""librdkafka asks every consumer for a group. This one is never joined, and nothing is committed to it."""
HARMLESS = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""Errors in the place of records that end nothing: an end, no right to a group that is not joined, brokers that may come back."""


class Target(Protocol):
    """Where a reader puts what it reads."""

    @property
    def is_full(self) -> bool: ...

    def batch_count(self) -> int:
        """How many records to read at once, at most."""

    def write(self, messages: Sequence[Any]) -> None: ...


class Sink:
    """Writes what a filter lets through, up to a number of records; owns the count of what is left."""

    def __init__(
        self,
        out: BinaryIO,
        clean: Callable[[bytes], bytes] | None,
        write: Write,
        shows: Filter | None,
        count_max: int | None,
        decoding: Decoding | None = None,
    ) -> None:
        self._decoding = decoding
        self._out = out
        self._clean = clean
        self._write = write
        self._shows = shows
        self._left = count_max

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def batch_count(self) -> int:
        """How many records to read at once: no more than are to be written, since what a group has read it does not read again."""
        return BATCH_COUNT if self._left is None else min(self._left, BATCH_COUNT)

    def write(self, messages: Sequence[Any]) -> None:
        if self._decoding is not None:
            self._decoding.apply(messages)
        if self._shows is not None:
            messages = [message for message in messages if self._shows(message)]
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        if messages:
            data = self._write(messages)
            self._out.write(data if self._clean is None else self._clean(data))
        self._out.flush()


class PartitionReader:
    """Of given partitions from `starts` on, until `ends` if there are ends. Joins no group."""

    def __init__(self, connection: Connection, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None) -> None:
        self._connection = connection
        self._ends = None if ends is None else {each: end for each, end in ends.items() if starts[each] < end}
        self._left_max = sum(end - starts[each] for each, end in (self._ends or {}).items())
        config: dict[str, Any] = {"enable.auto.commit": False, "allow.auto.create.topics": False, "group.id": NO_GROUP}
        if ends is not None:
            # What ends with a marker of a transaction has no last record; the end is told by the next fetch, after this time.
            config |= {"enable.partition.eof": True, "fetch.wait.max.ms": 50}
        # A file of properties is made for other clients: it cannot change what this one promises.
        self._consumer: Consumer = make(Consumer, {**connection.config({"auto.offset.reset": "earliest", **READS_ON}), **config})
        read = starts if self._ends is None else self._ends
        self._consumer.assign([TopicPartition(*each, starts[each]) for each in read])

    def __enter__(self) -> PartitionReader:
        return self

    def __exit__(self, *of_error: object) -> None:
        self._consumer.close()

    def read(self, sink: Target) -> None:
        """Until all ends, or until the sink is full. Raises CommandError."""
        while not sink.is_full and not self._is_done:
            sink.write(self._next(BATCH_COUNT))

    def collect(self, count_max: int) -> list[Any]:
        """All until the ends, of which there are at most `count_max` in each partition."""
        found: list[Any] = []
        while not self._is_done:
            found += self._next(count_max)
        return found

    @property
    def _is_done(self) -> bool:
        return self._ends is not None and not self._ends

    def _next(self, count: int) -> list[Any]:
        if self._ends is not None:
            count = min(count, max(self._left_max, 1))  # waiting for more than there is would take the whole time
        batch = self._consumer.consume(count, WAIT_S)
        self._left_max -= len(batch)
        errors = check(self._connection, batch, has_end=self._ends is not None)
        if not errors and (self._ends is None or self._ends_are_far(batch, self._ends)):
            return batch
        if self._ends is None:
            return [message for message in batch if message.error() is None]
        return [message for message in batch if self._is_before_end(message, self._ends)]

    def _ends_are_far(self, batch: Sequence[Any], ends: Mapping[Partition, int]) -> bool:
        """Whether no record of the batch is the last one of its partition, or behind it. Without a line of Python for each record: a third
        of the time went into that."""
        offsets: Any = map(Message.offset, batch)
        if ends and max(offsets, default=0) + 1 < min(ends.values()):
            return True  # whatever partition it is of: that takes one call for a record instead of three
        partitions = zip(map(Message.topic, batch), map(Message.partition, batch), strict=True)
        lasts: dict[Any, Any] = dict(zip(partitions, map(Message.offset, batch), strict=True))
        return all(offset + 1 < ends.get(partition, 0) for partition, offset in lasts.items())

    def _is_before_end(self, message: Any, ends: dict[Partition, int]) -> bool:
        """Whether it is to be read; notes the ends that are reached."""
        partition = message.topic(), message.partition()
        end = ends.get(partition)
        if end is None:
            return False
        offset, error = message.offset(), message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF and offset >= end:
                del ends[partition]
            return False
        if offset + 1 >= end:
            del ends[partition]
        return bool(offset < end)


class GroupReader:
    """A member of a group. Commits what the sink has written."""

    def __init__(self, connection: Connection, group: str, topics: list[str], reset: str) -> None:
        self._connection = connection
        config = {"enable.auto.commit": True, "enable.auto.offset.store": False, "allow.auto.create.topics": False, "group.id": group}
        self._consumer: Consumer = make(Consumer, {**connection.config({"auto.offset.reset": reset, **READS_ON}), **config})
        self._consumer.subscribe(topics)

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, *of_error: object) -> None:
        self._consumer.close()  # which commits what is stored

    def read(self, sink: Target) -> None:
        """Until the sink is full. Raises CommandError."""
        while not sink.is_full:
            batch = self._consumer.consume(sink.batch_count(), WAIT_S)
            errors = check(self._connection, batch, has_end=False, is_member=True)
            messages = [message for message in batch if message.error() is None] if errors else batch
            sink.write(messages)
            self._store(messages)

    def _store(self, messages: Sequence[Any]) -> None:
        """Where the group goes on, in each partition."""
        nexts = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        try:
            self._consumer.store_offsets(offsets=[TopicPartition(*each, offset) for each, offset in nexts.items()])
        except KafkaException:
            pass  # the partition went to another member while the batch was written: that one reads it again


def check(connection: Connection, batch: Sequence[Any], *, has_end: bool, is_member: bool = False) -> list[KafkaError]:
    """The harmless errors that stand in the place of records. Raises the others, and what the connection has heard of."""
    connection.check_let_in()
    if batch:
        connection.is_answered()
    elif has_end and connection.down_for_s() > connection.timeout_s:
        raise NoBrokerError(f"no broker answers at {connection.settings.address} any more")
    errors = [error for error in map(Message.error, batch) if error is not None]
    for error in errors:
        if error.code() not in HARMLESS or (is_member and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED):
            raise from_kafka(KafkaException(error))
    return errors
