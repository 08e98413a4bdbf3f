"""Members of consumer groups under one interface: the test polls them by turns and need not know how each one works."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRangeAssignor
from kafka.errors import KafkaConnectionError

from tests.clients.adapters import from_confluent, from_kafka_python
from tests.support.messages import Stored
from tests.support.process import ServerProcess

SESSION_TIMEOUT_MS = 15_000
POLL_MS = 100
THREAD_POLL_MS = 500
WAIT_TIMEOUT_S = 90.0


class Member(ABC):
    """A consumer that joined a group by range assignment; its commits are explicit."""

    @abstractmethod
    def poll(self) -> list[Stored]: ...

    @abstractmethod
    def assignment(self) -> set[int]: ...

    @abstractmethod
    def commit(self) -> None:
        """Commits the positions of all that `poll` returned."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group."""


class KafkaPythonMember(Member):
    """Polls on a thread of its own: kafka-python forgets a join that is answered between two of its polls and joins again."""

    def __init__(self, server: ServerProcess, topic: str, group: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[KafkaPythonRangeAssignor],
        )
        self._records: queue.SimpleQueue[Stored] = queue.SimpleQueue()
        self._commit_asked = threading.Event()
        self._committed = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"{group}-member", daemon=True)
        self._thread.start()

    def poll(self) -> list[Stored]:
        records: list[Stored] = []
        try:
            records.append(self._records.get(timeout=POLL_MS / 1000))
            while True:
                records.append(self._records.get_nowait())
        except queue.Empty:
            return records

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._committed.clear()
        self._commit_asked.set()
        assert self._committed.wait(WAIT_TIMEOUT_S), "no answer to a commit"

    def close(self) -> None:
        self._closed.set()
        self._thread.join(WAIT_TIMEOUT_S)

    def _work(self) -> None:
        while not self._closed.is_set():
            # A poll waits for the look-up of the coordinator that its heartbeats have begun, and does not repeat that one if it fails.
            with suppress(KafkaConnectionError):
                for records in self._consumer.poll(timeout_ms=THREAD_POLL_MS).values():
                    for record in records:
                        self._records.put(from_kafka_python(record))
            if self._commit_asked.is_set():
                self._commit_asked.clear()
                self._consumer.commit()
                self._committed.set()
        self._consumer.close(autocommit=False)


class AioKafkaMember(Member):
    """All members share one loop, which runs while any of them polls."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, server: ServerProcess, topic: str, group: str) -> None:
        if AioKafkaMember._loop is None:
            AioKafkaMember._loop = asyncio.new_event_loop()
        self._run = AioKafkaMember._loop.run_until_complete
        self._consumer = self._run(self._start(server, topic, group))

    async def _start(self, server: ServerProcess, topic: str, group: str) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        # start() returns once the member has joined, which may need the others to be polled: do not wait for it here.
        self._starting = asyncio.ensure_future(consumer.start())
        return consumer

    def poll(self) -> list[Stored]:
        return self._run(self._poll())

    async def _poll(self) -> list[Stored]:
        if not self._starting.done():
            await asyncio.wait([self._starting], timeout=POLL_MS / 1000)
            return []
        self._starting.result()
        polled = await self._consumer.getmany(timeout_ms=POLL_MS)
        return [from_kafka_python(record) for records in polled.values() for record in records]

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())


class ConfluentMember(Member):
    def __init__(self, server: ServerProcess, topic: str, group: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Stored]:
        return [from_confluent(message) for message in self._consumer.consume(500, timeout=POLL_MS / 1000)]

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class ConfluentConsumerProtocolMember(ConfluentMember):
    """Speaks KIP-848: the broker assigns, uniformly."""

    def __init__(self, server: ServerProcess, topic: str, group: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic])


CLASSIC_MEMBERS: dict[str, Callable[[ServerProcess, str, str], Member]] = {
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
    "confluent-kafka": ConfluentMember,
}
MEMBERS = CLASSIC_MEMBERS | {"confluent-kafka-consumer-protocol": ConfluentConsumerProtocolMember}


def poll_until(members: Sequence[Member], holds: Callable[[list[Stored]], bool]) -> list[Stored]:
    """Polls the members by turns until the condition on all records so far holds; returns those records."""
    records: list[Stored] = []
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while not holds(records):
        assignments = [sorted(member.assignment()) for member in members]
        assert time.monotonic() < deadline, f"not in {WAIT_TIMEOUT_S} s: {len(records)} records, assignments {assignments}"
        for member in members:
            records += member.poll()
    return records


def share_all(members: Sequence[Member], partitions: int) -> bool:
    """Whether the members have all partitions between them, each one's own and nobody without."""
    owned = [partition for member in members for partition in member.assignment()]
    return sorted(owned) == list(range(partitions)) and all(member.assignment() for member in members)
