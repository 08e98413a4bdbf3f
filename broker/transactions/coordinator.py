"""TransactionCoordinator: the transactional ids of all `__transaction_state` partitions that this broker leads (Kafka's class).

For each request it asks the runtime for the id's shard, and gives a Deferred of what the shard answers. It also aborts timed out
transactions and expires ids, regularly. A KafkaError is the answer to the whole request.

Subscribe `on_metadata_delta` after the ReplicaManager, which must know that it leads before a log can be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from broker.coordination.runtime import CoordinatorRuntime
from broker.loop.deferred import Deferred
from broker.loop.job import LoopJob
from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.observability.limited_log import EVENT_LINES_MAX, LimitedLog
from broker.observability.log_fields import Fields
from broker.transactions.descriptions import listings
from broker.transactions.record_table import make_transaction_records
from broker.transactions.shard import TransactionCoordinatorShard
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.coordination.coordinator_log import CoordinatorLog
    from broker.coordination.shard import Shard
    from broker.loop.clock import Clock, Timer
    from broker.loop.recent_times import RecentTimes
    from broker.metadata.image import MetadataDelta
    from broker.transactions.add_partitions import AddPartitions
    from broker.transactions.collaborators import MarkerSender, NextProducerId
    from broker.transactions.descriptions import TransactionDescription, TransactionFilter, TransactionListing
    from broker.transactions.end_transaction import EndTransaction
    from broker.transactions.init_producer_id import InitProducerId
    from broker.transactions.settings import TransactionSettings
    from broker.transactions.state import TransactionState
    from broker.transactions.transaction import ProducerIdAndEpoch

log = logging.getLogger("barnabas.transactions")

EXPIRY_CONTINUATION_MS = 1_000
"""When tombstones of expired ids go on whose number in flight was at its limit."""


class TransactionCoordinator:
    """See the module's docstring. `transaction_version` is the finalized one."""

    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        *,
        node_id: int,
        next_producer_id: NextProducerId,
        marker_sender: MarkerSender,
        transaction_version: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._next_producer_id = next_producer_id
        self._marker_sender = marker_sender
        self._transaction_version = transaction_version
        self._limited_log = LimitedLog(log, clock, lines_max=EVENT_LINES_MAX)
        self._aborts = LoopJob(clock, self._abort_timed_out)
        self._expiry = LoopJob(clock, self._expire)
        self._timers: dict[LoopJob, Timer] = {}
        self.runtime: CoordinatorRuntime[TransactionCoordinatorShard] = CoordinatorRuntime(
            TRANSACTION_STATE_TOPIC,
            node_id=node_id,
            coordinator_log=coordinator_log,
            clock=clock,
            table=make_transaction_records(transaction_version),
            make_machine=self._make_machine,
            write_timeout_ms=settings.write_timeout_ms,
            limited_log=self._limited_log,
            on_all_loaded=self._log_loaded,
            is_partition_count_stable=True,
        )

    def _make_machine(self, shard: Shard[TransactionCoordinatorShard]) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(
            shard,
            self._clock,
            self._settings,
            self._next_producer_id,
            self._marker_sender,
            self._transaction_version,
            self._limited_log,
        )

    # Life.

    def start(self) -> None:
        """Serve from now on."""
        self.runtime.start()
        self._schedule(self._aborts, self._settings.abort_interval_ms)
        self._schedule(self._expiry, self._settings.expiration_interval_ms)

    def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR and serve no more."""
        for timer in self._timers.values():
            timer.cancel()
        self._aborts.stop()
        self._expiry.stop()
        self.runtime.stop()

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Follow the leadership of the partitions."""
        self.runtime.on_metadata_delta(delta)

    def _log_loaded(self) -> None:
        counts = [count for shard in self.runtime.active_shards() if (count := len(shard.machine.table))]
        if counts:
            self._limited_log.info("ids loaded", "transactional ids loaded %s", Fields(ids=sum(counts), partitions=len(counts)))

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps this id."""
        return self.runtime.partition_for(transactional_id)

    # What clients and brokers ask.

    def init_producer_id(self, transactional_id: str, request: InitProducerId) -> Deferred:
        """A Deferred of ProducerAnswer."""
        machine = self.runtime.get_shard(transactional_id).machine
        return _deferred(lambda answer: machine.init_producer_id(transactional_id, request, answer))

    def add_partitions(self, transactional_id: str, request: AddPartitions, timeout_ms: float) -> Deferred:
        """A Deferred of an ErrorCode for all partitions. Waits for the end of the transaction before for `timeout_ms` at most."""
        machine = self.runtime.get_shard(transactional_id).machine
        return _deferred(lambda answer: machine.add_partitions(transactional_id, request, timeout_ms, answer))

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Mapping[str, Collection[int]]
    ) -> ErrorCode | dict[str, dict[int, ErrorCode]]:
        """For each partition whether it is part of the producer's transaction, or one error for all."""
        return self.runtime.get_shard(transactional_id).machine.verify_partitions(transactional_id, producer, partitions)

    def end_transaction(self, transactional_id: str, request: EndTransaction) -> Deferred:
        """A Deferred of ProducerAnswer, when the outcome is committed."""
        machine = self.runtime.get_shard(transactional_id).machine
        return _deferred(lambda answer: machine.end_transaction(transactional_id, request, answer))

    # Inspection, of committed state only.

    def describe(self, transactional_id: str) -> TransactionDescription:
        """The id's state and its transaction. INVALID_REQUEST for an empty id, TRANSACTIONAL_ID_NOT_FOUND for one that is not known."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        description = self.runtime.get_shard(transactional_id).machine.describe(transactional_id)
        if description is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return description

    def list_transactions(self, wanted: TransactionFilter) -> Iterator[TransactionListing | None]:
        """One by one the ids of this broker that are let through, None for each other one. KafkaError while shards are loading: a client
        could not tell a partial list from a whole one."""
        shards = self.runtime.get_active_shards()
        now_ms = self._clock.now_ms()
        return (listing for shard in shards for listing in listings(shard.machine.table, wanted, now_ms))

    def count_states(self) -> Counter[TransactionState]:
        """How many ids of this broker are in each state, as written."""
        counts: Counter[TransactionState] = Counter()
        for shard in self.runtime.active_shards():
            counts.update(shard.machine.table.counts)
        return counts

    def find_oldest_start_ms(self) -> int | None:
        """When the oldest open transaction of this broker began, None if there is none."""
        found = (shard.machine.table.find_oldest_start_ms() for shard in self.runtime.active_shards())
        return min((start_ms for start_ms in found if start_ms is not None), default=None)

    def count_retried_completions(self) -> int:
        """Transactions whose end could not be written to `__transaction_state` yet (Kafka's LogAppendRetryQueueSize)."""
        return sum(shard.machine.retried_completions_count for shard in self.runtime.active_shards())

    @property
    def load_times(self) -> RecentTimes:
        """How long the last loads took."""
        return self.runtime.load_times

    # What falls due.

    def _schedule(self, job: LoopJob, delay_ms: float) -> None:
        self._timers[job] = self._clock.call_later(delay_ms, job.resume)

    def _abort_timed_out(self) -> Generator[None, None, None]:
        for shard in self.runtime.active_shards():
            yield from shard.machine.abort_timed_out()
        self._schedule(self._aborts, self._settings.abort_interval_ms)

    def _expire(self) -> Generator[None, None, None]:
        has_more = False
        for shard in self.runtime.active_shards():
            yield from shard.machine.expire()
            has_more = has_more or shard.machine.has_more_to_expire
        self._schedule(self._expiry, EXPIRY_CONTINUATION_MS if has_more else self._settings.expiration_interval_ms)


def _deferred(ask: Callable[[Callable[[Any], None]], None]) -> Deferred:
    reply = Deferred()
    ask(reply.complete)
    return reply
