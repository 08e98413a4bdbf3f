"""Simulated runs with transactions: writers of several partitions, copiers that read, process and write, their zombies and late requests,
on one broker or a cluster, at every level of transaction.version.

Everything is durable here: what a power cut may take of other topics is shown by the worlds without transactions. Beside what those check:

- what is committed was copied once, and nothing of a transaction that is open or aborted is ever seen (tests/simulation/
  transaction_ledger.py, tests/support/history_checker.py);
- the coordinators keep their rules (tests/simulation/transaction_watch.py);
- in the end no transaction is open: the last stable offset is at the log's end everywhere, and all replicas know the same of the producers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from broker.loop.deferred import Deferred
from broker.metadata.features import TRANSACTION_VERSION_FEATURE
from broker.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker.transactions.partition_additions import PartitionAdditions
from broker.transactions.transaction import LAST_CLIENT_EPOCH, Transaction
from tests.simulation.applications import Application, CommittedConsumer, LevelChanger, MarkerRepeater, OffsetReader
from tests.simulation.clients import Client, Producer
from tests.simulation.connection import LostError
from tests.simulation.consumers import READ_COMMITTED, FinalReader
from tests.simulation.copiers import AtomicWriter, Copier
from tests.simulation.history import Key
from tests.simulation.node import Node
from tests.simulation.transaction_ledger import TransactionLedger
from tests.simulation.transaction_watch import TransactionWatch
from tests.simulation.transactional import OLD, OLDEST, TransactionalClient
from tests.simulation.world import World
from tests.support.history_checker import Position

SOURCE, COPY = "source", "copy"
PARTITIONS_COUNT = 2
GROUP = "copiers"
LEVELS, LEVEL_WEIGHTS = (0, 1, 2), (1, 1, 3)
TIMEOUTS_MS = (1_000, 3_000)
ABORT_INTERVAL_MS = 300
END_MAX_S = 60.0
"""After everybody is at rest all transactions have ended by then. A follower whose connection was reset at its leader's end alone waits
30 s for an answer (replica.socket.timeout.ms), and a partition with too few in sync takes no marker meanwhile."""
SOURCES: list[Key] = [(SOURCE, partition) for partition in range(PARTITIONS_COUNT)]
COPIES: list[Key] = [(COPY, partition) for partition in range(PARTITIONS_COUNT)]


class TransactionWorld(World):
    """One broker."""

    OPTIONS = " --transactions"
    COMPACTED_SHARE = CONSUMER_GROUP_SHARE = MIXED_GROUP_SHARE = 0.0
    LAST_EPOCHS_SHARE = 0.3  # of the seeds begin shortly before the last epoch of a producer id
    LEVEL_CHANGES_SHARE = 0.3  # of the seeds change transaction.version on the way
    LATE_SHARE = 0.5  # of the seeds have requests that come late

    def __init__(self, seed: int, *, keep_all: bool = False) -> None:
        draw = random.Random(f"{seed}:transactions")
        self.level = draw.choices(LEVELS, LEVEL_WEIGHTS)[0]
        self._changes_levels = draw.random() < self.LEVEL_CHANGES_SHARE
        self._first_epoch = LAST_CLIENT_EPOCH - draw.randint(0, 5) if draw.random() < self.LAST_EPOCHS_SHARE else 0
        self._late_share = draw.choice((0.05, 0.2)) if draw.random() < self.LATE_SHARE else 0.0
        super().__init__(seed, keep_all=keep_all)

    # -- what it is made of --------------------------------------------------------------------------------------------

    def _make_keys(self) -> list[Key]:
        return [*SOURCES, *COPIES]

    def _draw_settings(self) -> dict[str, str]:
        settings = super()._draw_settings()
        self.history.are_commits_durable = True
        self.history.durable_topics |= {SOURCE, COPY, GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC}
        return {
            **settings,
            "log.flush.interval.messages": "1",
            "transaction.state.log.num.partitions": str(self._stream("transaction partitions").choice((1, 2))),
            "transaction.state.log.replication.factor": settings["offsets.topic.replication.factor"],
            "transaction.state.log.min.isr": settings.get("min.insync.replicas", "1"),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(ABORT_INTERVAL_MS),
        }

    def _features(self) -> list[str]:
        return [*super()._features(), f"{TRANSACTION_VERSION_FEATURE}={self.level}"]

    def _make_clients(self) -> list[Client]:
        self.ledger = TransactionLedger(self.history, self.loop.trace)
        self.transaction_watch = TransactionWatch(self.ledger, self.history, self.loop.trace)
        draw = self._stream("applications")
        clients: list[Client] = [self._client(Producer, "producer0", keys=SOURCES, acks=-1, depth=2, pause_s=0.05)]
        for index, key in enumerate(SOURCES):
            clients.append(self._application(draw, f"copier{index}", Copier, keys=COPIES, source=key, group=GROUP))
        if draw.random() < 0.7:
            clients.append(self._application(draw, "writer", AtomicWriter, keys=SOURCES))
        clients.append(self._committed_consumer("consumer0", draw))
        clients.append(self._offset_reader("offset-reader"))
        if self._late_share:
            clients.append(self._client(MarkerRepeater, "repeater", watch=self.transaction_watch))
        if self._changes_levels:
            clients.append(self._client(LevelChanger, "changer"))
        return clients

    def _application(self, draw: random.Random, name: str, kind: type[TransactionalClient], **more: Any) -> Application:
        old = draw.choice((None, None, None, OLD, OLDEST))
        timeout_ms = draw.choice(TIMEOUTS_MS)

        def make_instance(instance_name: str) -> TransactionalClient:
            return self._client(  # type: ignore[no-any-return]
                kind, instance_name, host=name, ledger=self.ledger, transactional_id=name, timeout_ms=timeout_ms, old=old,
                late_share=self._late_share, **more,
            )  # fmt: skip

        return self._client(Application, name, make_instance=make_instance)  # type: ignore[no-any-return]

    def _committed_consumer(self, name: str, draw: random.Random) -> CommittedConsumer:
        return self._client(  # type: ignore[no-any-return]
            CommittedConsumer, name, ledger=self.ledger, keys=[*SOURCES, *COPIES], max_bytes=draw.choice((500, 10_000)),
            isolation_level=READ_COMMITTED,
        )  # fmt: skip

    def _offset_reader(self, name: str) -> OffsetReader:
        return self._client(OffsetReader, name, ledger=self.ledger, group=GROUP, keys=SOURCES)  # type: ignore[no-any-return]

    def _make_reader(self) -> FinalReader:
        return self._client(FinalReader, "reader", max_bytes=1 << 20, isolation_level=READ_COMMITTED)  # type: ignore[no-any-return]

    async def _create_topics(self) -> None:
        shared = {"internal.segment.bytes": str(self._draw.choice((8_000, 100_000)))}
        await self.admin.create(SOURCE, PARTITIONS_COUNT, shared)
        await self.admin.create(COPY, PARTITIONS_COUNT, shared)

    # -- the run -------------------------------------------------------------------------------------------------------

    def _run(self) -> dict[str, list[Any]]:
        with ExitStack() as stack:
            stack.enter_context(self.transaction_watch.watching())
            if self._first_epoch:
                stack.enter_context(_beginning_with(self._first_epoch))
            return super()._run()

    async def _read_everything(self) -> dict[Key, list[Position]]:
        committed = await self._until_all_is_decided()
        found = await super()._read_everything()
        self.ledger.write_history()
        if committed is not None:
            ids = {key: f"copier{index}" for index, key in enumerate(SOURCES)}
            self.ledger.check_copies(found, committed, COPIES, ids)
        return found

    async def _until_all_is_decided(self) -> dict[Key, int] | None:
        """The offsets that are committed once no transaction is open."""
        everything = self._client(FinalReader, "end-reader", max_bytes=1 << 20)
        stable = self._client(FinalReader, "stable-reader", max_bytes=1 << 20, isolation_level=READ_COMMITTED)
        offsets = self._offset_reader("final-offset-reader")
        deadline_s = self.loop.time() + END_MAX_S
        is_open: list[Any] = []
        committed: dict[Key, int] | None = None
        while self.loop.time() < deadline_s:
            try:
                ends = [(key, await stable.end_offset(key), await everything.end_offset(key)) for key in self.keys]
                is_open = [end for end in ends if end[1] != end[2]]
                committed = await offsets.read(require_stable=True)
                if committed is None:
                    await offsets.find_coordinator()  # the faults may have ended before anybody did
                elif not is_open:
                    break
            except LostError:
                pass
            await asyncio.sleep(0.1)
        else:
            self.history.find("transaction-left-open", (is_open, committed))
        for client in (everything, stable, offsets):
            client.close()
        return committed


class LateAnswersWorld(TransactionWorld):
    """Some answers of the coordinators, to the question whether a batch may be appended, come late: the transaction may be over by then."""

    LATE_ANSWERS_SHARE = 0.3
    LATE_ANSWER_MEAN_S = 0.03

    def _run(self) -> dict[str, list[Any]]:
        draw, ask = self._stream("late answers"), PartitionAdditions.ask

        def ask_slowly(additions: PartitionAdditions, question: Any) -> Deferred:
            answer = ask(additions, question)
            if draw.random() >= self.LATE_ANSWERS_SHARE:
                return answer
            late, delay_s = Deferred(), draw.expovariate(1 / self.LATE_ANSWER_MEAN_S)
            answer.when_done(lambda told: self.loop.call_later(delay_s, late.complete, told))
            return late

        with patch.object(PartitionAdditions, "ask", ask_slowly):
            return super()._run()


class SlowDiskWorld(TransactionWorld):
    """What is written is durable only after a while, and power cuts come in between."""

    SLOWNESS = 20.0

    def _draw_profile(self) -> str:
        return "power"

    def _make_nodes(self) -> list[Node]:
        nodes = super()._make_nodes()
        for node in nodes:
            node.slowness = self.SLOWNESS
        return nodes


@contextmanager
def _beginning_with(epoch: int) -> Iterator[None]:
    """A new transactional id is like one that has had so many transactions already."""
    with_producer = Transaction.with_producer

    def begin_late(self: Transaction, producer: Any, *more: Any) -> Transaction:
        if self.producer_epoch < 0:
            producer = producer._replace(producer_epoch=epoch)
        return with_producer(self, producer, *more)

    with patch.object(Transaction, "with_producer", begin_late):
        yield
