"""HangingTransactions: names, once, each producer whose transaction stays open in a partition led here although it should not.

A transaction hangs if no coordinator has it as ongoing in the partition: nothing will end it, and it holds back read_committed consumers
and compaction. It is late if its coordinator still has it as ongoing there when transaction.max.timeout.ms and five minutes have passed
since its start. A transaction without a timeout (two-phase commit) is never late. The line has the command that ends it.

A round looks at the open transactions of all led partitions, which the producer states of their logs know. The coordinators are asked
about those that were open in the round before, too (CoordinatorInquiries). What seems to hang is asked about once more a little later: when
a coordinator moves, the old broker may have dropped a transaction that the new one does not serve yet. A new leader of the partition names
it again, and so does this broker after a restart.

Kafka has the metric PartitionsWithLateTransactionsCount and the tool `kafka-transactions find-hanging`, which asks in the same way.
"""

from __future__ import annotations

import logging
import shlex
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.loop.job import LoopJob
from broker.observability.log_fields import Fields
from broker.transactions.state import ONGOING
from broker.transactions.transaction import NO_TIMEOUT_MS

if TYPE_CHECKING:
    from broker.loop.clock import Clock, Timer
    from broker.replication.partition import Partition
    from broker.transactions.coordinator_inquiries import CoordinatorInquiries, KnownTransaction

log = logging.getLogger("barnabas.transactions")

LATE_TRANSACTION_BUFFER_MS = 300_000
"""As in Kafka's ProducerStateManager."""

ROUND_INTERVAL_MS = 300_000
SECOND_QUESTION_DELAY_MS = 30_000
"""Both are as short as transaction.max.timeout.ms, if that is shorter, but not below INTERVAL_MIN_MS."""

INTERVAL_MIN_MS = 1_000

ASKED_AT_ONCE = 500
LINES_PER_ROUND_MAX = 20
"""The rest is named in later rounds."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int


class HangingTransactions:
    """See the module's docstring. `each_partition` gives all partitions of this broker, also while these change; `find_partition` one of
    them. `bootstrap_server` gives what the command names."""

    def __init__(
        self,
        each_partition: Callable[[], Iterator[Partition]],
        find_partition: Callable[[str, int], Partition | None],
        inquiries: CoordinatorInquiries,
        clock: Clock,
        *,
        max_timeout_ms: int,
        bootstrap_server: Callable[[], str],
    ) -> None:
        self._each_partition = each_partition
        self._find_partition = find_partition
        self._inquiries = inquiries
        self._clock = clock
        self._late_ms = max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        self._interval_ms = min(ROUND_INTERVAL_MS, max(max_timeout_ms, INTERVAL_MIN_MS))
        self._second_delay_ms = min(SECOND_QUESTION_DELAY_MS, self._interval_ms)
        self._bootstrap_server = bootstrap_server
        self._job = LoopJob(clock, self._go_on)
        self._timer: Timer | None = None
        self._seen: frozenset[OpenTransaction] = frozenset()
        """Those that were open in the last round."""
        self._named: set[OpenTransaction] = set()
        self._to_ask: deque[OpenTransaction] = deque()
        self._to_ask_again: list[OpenTransaction] = []
        self._is_second_question = False
        self._lines_left = 0
        self._is_stopped = False

    def start(self) -> None:
        """Look for them from now on."""
        self._timer = self._clock.call_later(self._interval_ms, self._job.resume)

    async def stop(self) -> None:
        """Name no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._job.stop()
        await self._inquiries.close()

    # A round: look, ask, ask again.

    def _go_on(self) -> Generator[None, None, None]:
        """Begin a round if none is running, then ask about the next transactions of it."""
        if not self._to_ask:
            yield from self._look()
        if self._to_ask:
            self._ask_next()
        else:
            self.start()

    def _look(self) -> Generator[None, None, None]:
        is_open: set[OpenTransaction] = set()
        for partition in self._each_partition():
            if partition.is_leader:
                for entry in tuple(partition.log.producers.open_transactions):
                    start_offset = entry.current_transaction_first_offset
                    if start_offset is not None:  # else the disk failed while its end was noted
                        is_open.add(
                            OpenTransaction(partition.topic, partition.partition, entry.producer_id, entry.producer_epoch, start_offset)
                        )
            yield
        self._named &= is_open
        self._to_ask.extend(sorted((is_open & self._seen) - self._named))
        self._seen = frozenset(is_open)
        self._is_second_question = False
        self._lines_left = LINES_PER_ROUND_MAX

    def _ask_next(self) -> None:
        asked = [self._to_ask.popleft() for _ in range(min(ASKED_AT_ONCE, len(self._to_ask)))]
        self._inquiries.ask({each.producer_id for each in asked}).when_done(partial(self._judge, asked))

    def _judge(self, asked: list[OpenTransaction], known: Mapping[int, list[KnownTransaction]] | None) -> None:
        """What the coordinators know of these transactions. Without an answer of all of them the next round asks."""
        if self._is_stopped:
            return
        if known is not None:
            for each in filter(self._is_open, asked):
                self._judge_one(each, known.get(each.producer_id, ()))
        if self._to_ask:
            self._job.resume()
        elif self._to_ask_again:
            self._to_ask.extend(self._to_ask_again)
            self._to_ask_again.clear()
            self._is_second_question = True
            self._timer = self._clock.call_later(self._second_delay_ms, self._job.resume)
        else:
            self.start()

    def _is_open(self, transaction: OpenTransaction) -> bool:
        """Whether it is still, here."""
        partition = self._find_partition(transaction.topic, transaction.partition)
        if partition is None or not partition.is_leader:
            return False
        entry = partition.log.producers.producers.get(transaction.producer_id)
        return entry is not None and entry.current_transaction_first_offset == transaction.start_offset

    def _judge_one(self, transaction: OpenTransaction, known: Sequence[KnownTransaction]) -> None:
        """`known` is what coordinators tell of its producer id, which is one at most unless a coordinator is moving."""
        ongoing = next((each for each in known if each.has(transaction.topic, transaction.partition)), None)
        if ongoing is not None:
            if ongoing.timeout_ms != NO_TIMEOUT_MS and self._clock.now_ms() - ongoing.start_ms > self._late_ms:
                self._name(transaction, ongoing, is_hanging=False)
        elif self._is_second_question:
            self._name(transaction, known[0] if known else None, is_hanging=True)
        else:
            self._to_ask_again.append(transaction)

    def _name(self, transaction: OpenTransaction, known: KnownTransaction | None, *, is_hanging: bool) -> None:
        if not self._lines_left:
            return
        self._lines_left -= 1
        self._named.add(transaction)
        facts = Fields(
            topic=transaction.topic,
            partition=transaction.partition,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            start_offset=transaction.start_offset,
            transactional_id=None if known is None else known.transactional_id,
            state=None if known is None else known.state,
        )
        if known is None or is_hanging:
            log.warning(
                "a transaction hangs: no coordinator has it as ongoing in this partition. `%s abort --topic %s --partition %d"
                " --start-offset %d` ends it %s",
                self._command,
                transaction.topic,
                transaction.partition,
                transaction.start_offset,
                facts,
            )
        elif known.state == ONGOING.label:
            log.warning(
                "a transaction is late: its coordinator has not aborted it. `%s forceTerminateTransaction --transactionalId %s` ends it %s",
                self._command,
                shlex.quote(known.transactional_id),
                facts,
            )
        else:
            log.warning(
                "a transaction is late: its outcome is decided, but not written to this partition yet. `%s describe --transactional-id %s`"
                " shows it %s",
                self._command,
                shlex.quote(known.transactional_id),
                facts,
            )

    @property
    def _command(self) -> str:
        return f"kafka-transactions.sh --bootstrap-server {self._bootstrap_server()}"
