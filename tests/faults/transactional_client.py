"""A transactional client of a campaign, in a process of its own so that it can be killed and stopped:

    python -m tests.faults.transactional_client source --bootstrap … --name … --life … --output in --partitions 3
    python -m tests.faults.transactional_client confluent-kafka --input in --output out --group g …

A source writes numbered values. A copier reads, writes each value with its own mark behind it, and commits the offsets, in one transaction;
some transactions are aborted on purpose. While its transaction is open, a copier also reads its output as another client would.

On standard output, one JSON line each: what was read when it is there, a transaction before its first record is sent, and its end when the
client says what became of it. A client that cannot go on ends; the campaign starts the next one with the same transactional id. Standard
input says "pause" and "resume" to a source; at its end the client ends too. SIGUSR1 prints where it is, on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import aiokafka
import confluent_kafka
from aiokafka.errors import KafkaError as AioKafkaError

from tests.support.commits import committed

CALL_TIMEOUT_S = 15.0  # of one call to a client, which is repeated if the client allows it
CALLS_MAX = 2
"""Not even then does send_offsets_to_transaction of librdkafka 2.16 always return, for the reason that docs/notes.md gives. The campaign
ends such a process."""
BATCH_SIZE = 20  # records of a copier's transaction
SOURCE_RECORDS_MAX = 8
SOURCE_INTERVAL_S = 0.05
POLL_S = 0.1
ABORTED_SHARE = 0.15
OBSERVED_MAX = 500
SESSION_TIMEOUT_MS = 6_000
MARK = "|"
CONFLUENT_SETTINGS = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    # Else it would begin with new handles of its brokers whenever all are away (KIP-899), and hang as CALLS_MAX says.
    "metadata.recovery.strategy": "none",
}
Sends = list[tuple[str, int, str]]
"""Topic, partition and value."""
T = TypeVar("T")


def tell(**fields: Any) -> None:
    """One write for each line, so that a killed process leaves none that is cut."""
    os.write(sys.stdout.fileno(), (json.dumps(fields) + "\n").encode())


def listen(on_word: Callable[[str], None]) -> None:
    """Follow the words on standard input on a thread. The process ends with them."""

    def run() -> None:
        for line in sys.stdin:
            on_word(line.strip())
        os._exit(0)

    threading.Thread(target=run, daemon=True).start()


def insist(call: Callable[[], T]) -> T:
    """What librdkafka's call returns, repeated while the client says that it may be. KafkaException otherwise."""
    for _ in range(CALLS_MAX - 1):
        try:
            return call()
        except confluent_kafka.KafkaException as e:
            if not e.args[0].retriable():
                raise
            tell(error=f"again: {e.args[0].name()}")
    return call()


def debugging(arguments: argparse.Namespace) -> dict[str, Any]:
    """What librdkafka logs, on standard error."""
    return {"debug": arguments.debug} if arguments.debug else {"log_level": 0}


class Transactions:
    """The transactions of a confluent-kafka producer, each told before and after."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.draw = random.Random(f"{arguments.name}.{arguments.life}")
        self._mark = f"{arguments.name}.{arguments.life}"
        self._count = 0
        self._producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": arguments.bootstrap,
                "transactional.id": arguments.name,
                "transaction.timeout.ms": arguments.timeout_ms,
                "linger.ms": 0,
                "error_cb": lambda error: tell(error=f"producer {error.name()}"),
                **CONFLUENT_SETTINGS,
                **debugging(arguments),
            }
        )
        insist(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))

    def next_mark(self) -> str:
        """What makes a value the only one of its kind."""
        self._count += 1
        return f"{self._mark}.{self._count}"

    def run(self, sends: Sends, before_end: Callable[[Any], dict[str, Any]]) -> bool:
        """Whether the records were committed; else nothing of them was. `before_end` is called after they were sent, and returns what
        is told with the end. KafkaException if the client cannot go on."""
        tell(begin=self._count, at=time.monotonic_ns(), sends=[(f"{topic}-{partition}", value) for topic, partition, value in sends])
        offsets: list[int | None] = [None] * len(sends)

        def deliver(index: int, message: Any, error: Any) -> None:
            offsets[index] = message.offset() if error is None else None

        told: dict[str, Any] = {}
        is_committed = False
        try:
            self._producer.begin_transaction()
            for index, (topic, partition, value) in enumerate(sends):
                self._producer.produce(
                    topic, value, partition=partition, on_delivery=lambda error, message, index=index: deliver(index, message, error)
                )
            self._producer.poll(0)
            told = before_end(self._producer)
            if self.draw.random() < ABORTED_SHARE:
                # librdkafka also ends a transaction to which the coordinator has not added a partition yet, which is an invalid state.
                self._producer.flush(CALL_TIMEOUT_S)
                self._abort()
            else:
                insist(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))
                is_committed = True
        except confluent_kafka.KafkaException as e:
            tell(error=f"transaction {e.args[0].name()}")
            if not e.args[0].txn_requires_abort():
                raise
            self._abort()
        tell(end=self._count, at=time.monotonic_ns(), t="ok" if is_committed else "fail", offsets=offsets, **told)
        return is_committed

    def _abort(self) -> None:
        insist(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S))


def run_source(arguments: argparse.Namespace) -> None:
    running = threading.Event()
    listen(lambda word: running.set() if word == "resume" else running.clear())
    transactions = Transactions(arguments)
    draw = transactions.draw
    while True:
        if not running.is_set():
            tell(paused=True)
            running.wait()
        mark = transactions.next_mark()
        places = [draw.randrange(arguments.partitions) for _ in range(draw.randint(1, SOURCE_RECORDS_MAX))]
        transactions.run([(arguments.output, place, f"{mark}:{index}") for index, place in enumerate(places)], lambda _: {})
        time.sleep(draw.uniform(0, 2 * SOURCE_INTERVAL_S))


def copies(arguments: argparse.Namespace, mark: str, records: list[Any]) -> Sends:
    """The records of a poll, each in its own partition of the output."""
    return [(arguments.output, record.partition(), f"{record.value().decode()}{MARK}{mark}") for record in records]


def positions(messages: list[Any]) -> dict[str, list[tuple[int, str]]]:
    """What was read of each partition, as the history has it."""
    found: dict[str, list[tuple[int, str]]] = {}
    for message in messages:
        found.setdefault(f"{message.topic()}-{message.partition()}", []).append((message.offset(), message.value().decode()))
    return found


class ConfluentCopier:
    """A member of a group, whose metadata fence its offsets (KIP-447)."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._transactions = Transactions(arguments)
        consumer = {
            "bootstrap.servers": arguments.bootstrap,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "error_cb": lambda error: tell(error=f"consumer {error.name()}"),
            **CONFLUENT_SETTINGS,
            **debugging(arguments),
        }
        protocol = {"group.protocol": "consumer"} if arguments.protocol == "consumer" else {"session.timeout.ms": SESSION_TIMEOUT_MS}
        self._consumer = confluent_kafka.Consumer({**consumer, **protocol, "group.id": arguments.group, "auto.offset.reset": "earliest"})
        self._observer = confluent_kafka.Consumer({**consumer, "group.id": "observer", "auto.offset.reset": "latest"})
        self._observer.assign([confluent_kafka.TopicPartition(arguments.output, index) for index in range(arguments.partitions)])
        self._has_rebalanced = False

    def run(self) -> None:
        self._consumer.subscribe([self._arguments.input], on_assign=self._note, on_revoke=self._note)
        while True:
            self._has_rebalanced = False
            polled = self._consumer.consume(BATCH_SIZE, POLL_S)
            metadata = self._consumer.consumer_group_metadata()
            messages = [message for message in polled if message.error() is None]
            # After a rebalance some may be of a partition that is another member's by now.
            if messages and (self._has_rebalanced or not self._copy(messages, metadata)):
                self._rewind()

    def _note(self, consumer: Any, partitions: Any) -> None:
        self._has_rebalanced = True

    def _copy(self, messages: list[Any], metadata: Any) -> bool:
        tell(read=positions(messages), moves=True)
        sends = copies(self._arguments, self._transactions.next_mark(), messages)
        next_offsets = {message.partition(): message.offset() + 1 for message in messages}

        def observe_and_commit(producer: Any) -> dict[str, Any]:
            polled = self._observer.consume(OBSERVED_MAX, 0.01)
            observed = positions([message for message in polled if message.error() is None])
            tell(read=observed, moves=False)
            offsets = [confluent_kafka.TopicPartition(self._arguments.input, *each) for each in next_offsets.items()]
            insist(lambda: producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S))
            return {"reads": merged(positions(messages), observed)}

        return self._transactions.run(sends, observe_and_commit)

    def _rewind(self) -> None:
        """Read again from what is committed. Waits for open transactions that have an offset of these partitions."""
        partitions = self._consumer.assignment()
        for partition in committed(self._consumer, partitions, CALLS_MAX * CALL_TIMEOUT_S) if partitions else ():
            partition.offset = max(partition.offset, 0)
            self._consumer.seek(partition)


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {key: [*first.get(key, ()), *second.get(key, ())] for key in {**first, **second}}


async def run_aiokafka(arguments: argparse.Namespace) -> None:
    """All partitions are this one's: aiokafka sends no metadata of a group member, so its transactional id alone fences."""
    draw, count = random.Random(f"{arguments.name}.{arguments.life}"), 0
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=arguments.bootstrap, transactional_id=arguments.name, transaction_timeout_ms=arguments.timeout_ms
    )
    await producer.start()  # returns when a transaction of the life before has ended, with its offsets
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",  # a coordinator that loads looks to aiokafka 0.14 like a group without offsets (docs/notes.md)
    )
    consumer.assign([aiokafka.TopicPartition(arguments.input, index) for index in range(arguments.partitions)])
    await consumer.start()
    while True:
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH_SIZE)
        records = [record for batch in batches.values() for record in batch]
        if not records:
            continue
        count += 1
        reads = {f"{where.topic}-{where.partition}": [(each.offset, each.value.decode()) for each in of] for where, of in batches.items()}
        tell(read=reads, moves=True)
        mark = f"{arguments.name}.{arguments.life}.{count}"
        values = [(record.partition, f"{record.value.decode()}{MARK}{mark}") for record in records]
        sends = [(f"{arguments.output}-{partition}", value) for partition, value in values]
        tell(begin=count, at=time.monotonic_ns(), sends=sends)
        offsets: list[int] = []
        is_committed = False
        await producer.begin_transaction()
        try:
            sent = [await producer.send(arguments.output, value.encode(), partition=partition) for partition, value in values]
            offsets = [metadata.offset for metadata in await asyncio.gather(*sent)]
            next_offsets = {where: of[-1].offset + 1 for where, of in batches.items()}
            await producer.send_offsets_to_transaction(next_offsets, arguments.group)
            if draw.random() < ABORTED_SHARE:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                is_committed = True
        except AioKafkaError as e:
            tell(error=f"transaction {type(e).__name__}")
            await producer.abort_transaction()
        tell(end=count, at=time.monotonic_ns(), t="ok" if is_committed else "fail", offsets=offsets, reads=reads)
        if not is_committed:
            for where, of in batches.items():
                consumer.seek(where, of[0].offset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["source", "confluent-kafka", "aiokafka"])
    for option in ("bootstrap", "name", "life", "input", "output", "group", "protocol", "debug"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--timeout-ms", type=int, help="of transactions")
    arguments = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)
    if arguments.role == "source":
        run_source(arguments)
    listen(lambda word: None)
    if arguments.role == "aiokafka":
        asyncio.run(run_aiokafka(arguments))
    ConfluentCopier(arguments).run()


if __name__ == "__main__":
    try:
        main()
    except Exception as e:  # whatever ends it: the campaign counts it by its name, and starts the next life
        tell(error=f"ended by {type(e).__name__}: {e}")
        os._exit(1)  # without a farewell to the broker
