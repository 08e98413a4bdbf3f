"""Real aiokafka clients in a simulated run: unchanged but for what they take from their machine (time, random numbers, sockets).

They wait on sets of tasks, whose order is the interpreter's. A seed that fails with them may therefore pass when it is replayed, and
their runs are compared by no trace hash.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import aiokafka
import aiokafka.errors
from aiokafka import TopicPartition

from tests.simulation.clients import EPOCH_S, Client
from tests.simulation.history import Commit, Key
from tests.simulation.loop import Life, SimulatedLoop, current_life
from tests.simulation.network import SimulatedNetwork
from tests.support.history_checker import Position

REQUEST_TIMEOUT_MS = 10_000
RETRY_BACKOFF_MS = 20
SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS = 1_500, 300
POLL_TIMEOUT_MS = 300
EMPTY_POLLS_MAX = 50  # in a row: nothing is left to read. Longer than a producer waits for an answer that is lost
VALUE_SIZE_MAX = 300
CLOCK_TICK_S = 1e-9
BATCH_SIZE_MAX = 1_500  # below the smallest segment


@contextmanager
def machine_of_stock_clients(loop: SimulatedLoop, network: SimulatedNetwork, draw: random.Random) -> Iterator[None]:
    """As long as this lasts, aiokafka's time, random numbers and connections are the simulated ones."""
    readings = count()

    def monotonic() -> float:
        """Never twice the same: the rest of a timeout may be too short to move the loop's time, and would be waited for for ever."""
        return loop.time() + next(readings) * CLOCK_TICK_S

    clock = SimpleNamespace(monotonic=monotonic, time=lambda: EPOCH_S + monotonic())

    async def create_connection(protocol_factory: Any, host: str, port: int, **_: Any) -> Any:
        life = current_life()
        assert life is not None, "only clients in a life of their own have a host"
        return await network.connect(life.name, host, port, protocol_factory)

    with ExitStack() as stack:
        stack.enter_context(patch.object(loop, "create_connection", create_connection))
        for module in _aiokafka_modules():
            for name, real, simulated in (("time", time, clock), ("random", random, draw)):
                if getattr(module, name, None) is real:
                    stack.enter_context(patch.object(module, name, simulated))
        yield


def _aiokafka_modules() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.partition(".")[0] == "aiokafka"]


class StockClient(Client, ABC):
    """One aiokafka client as a process on a host of its own."""

    async def run(self) -> None:
        """Live until the run stops it, and the client has ended what it began."""
        await self.loop.start_in(Life(self.name), self._live())

    @abstractmethod
    async def _live(self) -> None:
        """Work until the run stops it; then end what was begun."""

    @property
    def _bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._addresses)

    async def _started(self, client: Any) -> Any:
        """`client`, once some node has answered it."""
        while True:
            try:
                await client.start()
                return client
            except aiokafka.errors.KafkaError as error:
                self.note(f"cannot start: {error!r}")
                await self.back_off()


class StockProducer(StockClient):
    """AIOKafkaProducer, idempotent with acks=all."""

    def __init__(self, *arguments: Any, keys: Iterable[Key], burst_max: int, pause_s: float) -> None:
        super().__init__(*arguments)
        self._keys = list(keys)
        self._burst_max = burst_max
        self._pause_s = pause_s
        self._values_count = 0

    async def _live(self) -> None:
        producer = await self._started(
            aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                enable_idempotence=True,
                acks="all",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff_ms=RETRY_BACKOFF_MS,
                max_batch_size=BATCH_SIZE_MAX,
                linger_ms=self.draw.choice((0, 5)),
            )
        )
        unanswered: list[asyncio.Task[None]] = []
        while not self.is_stopping:
            for _ in range(self.draw.randint(1, self._burst_max)):
                unanswered.append(await self._send(producer, self.draw.choice(self._keys)))
            await asyncio.sleep(self.draw.expovariate(1 / self._pause_s))
        await asyncio.gather(*unanswered)
        await producer.stop()

    async def _send(self, producer: aiokafka.AIOKafkaProducer, key: Key) -> asyncio.Task[None]:
        self._values_count += 1
        value = f"{self.name}.{self._values_count}"
        invoked_s = self.now_s
        data = f"{value}:".encode() + self.draw.randbytes(self.draw.randrange(VALUE_SIZE_MAX))
        answer = await producer.send(key[0], data, partition=key[1], timestamp_ms=int((EPOCH_S + self.now_s) * 1000))
        return self.loop.create_task(self._record(key, value, invoked_s, answer))

    async def _record(self, key: Key, value: str, invoked_s: float, answer: asyncio.Future[Any]) -> None:
        self.operations_count += 1
        try:
            offset: int | None = (await answer).offset
        except aiokafka.errors.KafkaError as error:
            self.history.find("unexpected-error", (self.name, key, value, repr(error)))
            self.history.add(self.name, "send", "info", [("send", key, None, value)], invoked_s, self.now_s)
            return
        self.history.add(self.name, "send", "ok", [("send", key, offset if offset != -1 else None, value)], invoked_s, self.now_s)
        self.note(f"ok {key[0]}-{key[1]}@{offset} {value}")


class StockConsumer(StockClient):
    """AIOKafkaConsumer that is given its partitions and reads all of them, in order."""

    def __init__(self, *arguments: Any, keys: Iterable[Key]) -> None:
        super().__init__(*arguments)
        self._keys = list(keys)

    async def _live(self) -> None:
        consumer = await self._started(self._make())
        empty_polls_count = 0
        while not self.is_stopping or empty_polls_count < EMPTY_POLLS_MAX:
            invoked_s = self.now_s
            got = await consumer.getmany(timeout_ms=POLL_TIMEOUT_MS, max_records=self.draw.choice((None, 5)))
            polled: dict[Key, list[Position]] = {
                (partition.topic, partition.partition): [(each.offset, each.value.partition(b":")[0].decode()) for each in records]
                for partition, records in got.items()
            }
            empty_polls_count = 0 if polled else empty_polls_count + 1
            if polled:
                self.operations_count += 1
                self._record(polled, invoked_s)
                await self._processed(consumer)
        await consumer.stop()

    def _make(self) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(**self._settings())
        consumer.assign([TopicPartition(*key) for key in self._keys])
        return consumer

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._bootstrap,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "retry_backoff_ms": RETRY_BACKOFF_MS,
            "fetch_max_wait_ms": POLL_TIMEOUT_MS // 2,
        }

    def _record(self, polled: dict[Key, list[Position]], invoked_s: float, **more: Any) -> None:
        self.history.add(self.name, "poll", "ok", [("poll", polled)], invoked_s, self.now_s, **more)
        self.note("read " + ", ".join(f"{t}-{p}@{got[0][0]}..{got[-1][0]}" for (t, p), got in polled.items()))

    async def _processed(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        """What it read last is done with."""


class StockMember(StockConsumer):
    """AIOKafkaConsumer in a group. It commits what it has read, so that together the members read everything at least once."""

    def __init__(self, *arguments: Any, group: str, keys: Iterable[Key]) -> None:
        super().__init__(*arguments, keys=keys)
        self._group = group

    def _make(self) -> aiokafka.AIOKafkaConsumer:
        topics = dict.fromkeys(topic for topic, _ in self._keys)
        return aiokafka.AIOKafkaConsumer(
            *topics,
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            max_poll_interval_ms=60_000,
            **self._settings(),
        )

    def _record(self, polled: dict[Key, list[Position]], invoked_s: float, **more: Any) -> None:
        super()._record(polled, invoked_s, rebalanced=self._keys)

    async def _processed(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        try:
            positions = {partition: await consumer.position(partition) for partition in sorted(consumer.assignment())}
            commits = [Commit((part.topic, part.partition), offset, 0, self.now_s) for part, offset in positions.items()]
            await consumer.commit(positions)
            for commit in commits:
                self.history.commits.append(commit)
                self.history.commit_acknowledged(commit, self.now_s)
            for partition in positions:
                invoked_s = self.now_s
                committed = await consumer.committed(partition)
                self.history.saw_committed((partition.topic, partition.partition), committed or 0, invoked_s)
        except aiokafka.errors.KafkaError as error:
            self.note(f"cannot commit: {error!r}")  # a rebalance took its partitions: what it read may be read again
