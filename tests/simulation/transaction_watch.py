"""What coordinators and partitions do with transactions, watched from inside as in tests/simulation/cluster_watch.py.

- An outcome that the coordinator writes is the one that the client asked for, or an abort of its own.
- No marker leaves before its PREPARE is committed.
- A request or a marker that comes late, for a transaction that is over, does not count for a later one. Below transaction version 2 it
  may, as with Kafka: the ledger is told.
- A broker that hung and has not heard of its successor answers an OffsetFetch as the coordinator that it was, as Kafka's does: who begins
  at that offset copies again what others have copied. The ledger is told of this too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from broker.groups.coordinator import GroupCoordinator
from broker.groups.offset_reads import OffsetReads
from broker.groups.shard import GroupCoordinatorShard
from broker.transactions.local_markers import LocalMarkers
from broker.transactions.shard import TransactionCoordinatorShard
from broker.transactions.state import PREPARED
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from storage.log import Log
from storage.markers import MarkerResult, TransactionMarker
from tests.simulation.history import History
from tests.simulation.trace import Trace
from tests.simulation.transaction_ledger import Attempt, Producer, TransactionLedger

EPOCH_BUMP_VERSION = 2


class WrittenMarker(NamedTuple):
    """A marker that was on its way to a partition."""

    topic: str
    partition: int
    marker: TransactionMarker


class TransactionWatch:
    """Owner: the world."""

    def __init__(self, ledger: TransactionLedger, history: History, trace: Trace) -> None:
        self._ledger = ledger
        self._history = history
        self._trace = trace
        self._request: Any = None  # the EndTxn that is being decided
        self._coordinator_epochs: dict[int, int] = {}  # the newest of each partition of __transaction_state
        self._group_epochs: dict[int, int] = {}  # and of __consumer_offsets
        self._prepared: dict[int, tuple[int, bool]] = {}
        """By producer id: epoch and outcome of a transaction that is not complete and whose PREPARE is committed. One that is not may be
        lost, and then a marker that was meant for an earlier transaction decides."""
        self._pending: dict[Producer, Attempt] = {}
        """Attempts that are decided and whose markers are on their way, by producer: its client may have begun the next one."""
        self.markers: list[WrittenMarker] = []
        """All that came to their partitions, from coordinators and from those that send them again."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, before in (
                (TransactionCoordinatorShard, "_write_outcome", self._decides),
                (TransactionCoordinatorShard, "_send_markers", self._sends_markers),
                (TransactionCoordinatorShard, "on_loaded", self._takes_office),
                (LocalMarkers, "write", self._brings_markers),
                (GroupCoordinator, "commit_transactional_offsets", self._commits_offsets),
                (GroupCoordinatorShard, "on_loaded", self._takes_groups),
                (OffsetReads, "read", self._reads_offsets),
            ):
                stack.enter_context(patch.object(owner, name, _told_before(getattr(owner, name), before)))
            stack.enter_context(patch.object(Log, "append_markers", self._appending_markers(Log.append_markers)))
            for name, wrap in (("_end_transaction", self._noting), ("_complete", self._completing)):
                stack.enter_context(patch.object(TransactionCoordinatorShard, name, wrap(getattr(TransactionCoordinatorShard, name))))
            yield

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """EndTxn's request is known for as long as it is decided."""

        def wrapper(shard: Any, transactional_id: str, request: Any, *more: Any) -> Any:
            self._request = request
            self._note_misjudged(shard, request)
            try:
                return method(shard, transactional_id, request, *more)
            finally:
                self._request = None

        return wrapper

    def _completing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """When it is written that a transaction is complete, the next one may begin."""

        def wrapper(shard: Any, transactional_id: str, prepared: Any) -> None:
            method(shard, transactional_id, prepared)
            if shard.table.find(transactional_id) is not prepared:
                self._prepared.pop(prepared.producer_id, None)
                self._pending.pop((prepared.producer_id, prepared.producer_epoch), None)

        return wrapper

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _takes_office(self, shard: TransactionCoordinatorShard) -> None:
        partition, epoch = shard._shard.partition, shard._shard.leader_epoch
        self._coordinator_epochs[partition] = max(self._coordinator_epochs.get(partition, epoch), epoch)

    def _note_misjudged(self, shard: TransactionCoordinatorShard, request: Any) -> None:
        """A coordinator that has not heard of its successor knows nothing of the transaction that this one has begun for a partition's
        leader (Kafka's neither)."""
        attempt = self._ledger.current(tuple(request.producer))
        if attempt is not None and shard._shard.leader_epoch < self._coordinator_epochs.get(shard._shard.partition, -1):
            attempt.is_misjudged = True

    def _decides(self, shard: TransactionCoordinatorShard, transactional_id: str, prepared: Any, *_: Any) -> None:
        transaction = shard.table.find(transactional_id)
        attempt = None if transaction is None else self._ledger.current((transaction.producer_id, transaction.producer_epoch))
        if attempt is None:
            return
        request, is_commit = self._request, prepared.is_commit
        is_asked = attempt.asked is is_commit if request is not None else not is_commit
        if not is_asked:
            self._late("EndTxn", attempt, 0 if request is None else request.transaction_version)
        elif request is None:
            self._trace.cover("aborted by the coordinator")
        self._ledger.decide(attempt, is_commit=is_commit)
        self._pending[attempt.producer] = attempt

    def _sends_markers(self, shard: TransactionCoordinatorShard, transactional_id: str, prepared: Any) -> None:
        committed = shard.table.find_committed(transactional_id)
        if committed is None or committed.state not in PREPARED or committed.producer_epoch != prepared.producer_epoch:
            self._history.find("marker-before-prepare", (transactional_id, prepared, committed))
            return
        self._prepared[prepared.producer_id] = prepared.producer_epoch, prepared.is_commit
        attempt = self._ledger.current((prepared.producer_id, prepared.producer_epoch))
        if attempt is not None and attempt.decided is prepared.is_commit:  # a client begins the next one while these are on their way
            attempt.settled = prepared.is_commit

    def _late(self, what: str, attempt: Any, transaction_version: int) -> None:
        if transaction_version >= EPOCH_BUMP_VERSION:
            evidence = (what, attempt.number, attempt.transactional_id, attempt.producer, attempt.asked)
            self._history.find("late-request-counted", evidence)
        else:
            self._ledger.touched(attempt, f"late {what}")

    # -- partitions ------------------------------------------------------------------------------------------------------

    def _brings_markers(self, _: LocalMarkers, topic: str, partition: int, markers: Sequence[TransactionMarker], *__: Any) -> None:
        self.markers += [WrittenMarker(topic, partition, marker) for marker in markers]

    def _appending_markers(self, method: Callable[..., list[MarkerResult]]) -> Callable[..., list[MarkerResult]]:
        """A marker counts where it is accepted: it ends what is open, and the question whether a batch may be appended. Readers see it
        after this."""

        def wrapper(log: Log, markers: Sequence[TransactionMarker], **named: Any) -> list[MarkerResult]:
            results = method(log, markers, **named)
            for marker, result in zip(markers, results, strict=True):
                if result.error_code is ErrorCode.NONE:
                    self._ends(marker)
            return results

        return wrapper

    def _ends(self, marker: TransactionMarker) -> None:
        if marker.transaction_version >= EPOCH_BUMP_VERSION:
            return  # a late one is refused, or the history shows what it has ended
        producer = marker.producer_id, marker.producer_epoch
        if self._prepared.get(marker.producer_id) == (marker.producer_epoch, marker.is_commit):
            return
        attempt, pending = self._ledger.current(producer), self._pending.get(producer)
        if attempt is not None and attempt.settled is not marker.is_commit:
            self._late("marker", attempt, marker.transaction_version)
        if pending is not None and pending.decided is not marker.is_commit:
            self._late("marker", pending, marker.transaction_version)

    def _takes_groups(self, shard: GroupCoordinatorShard) -> None:
        partition, epoch = shard._shard.partition, shard._shard.leader_epoch
        self._group_epochs[partition] = max(self._group_epochs.get(partition, epoch), epoch)

    def _reads_offsets(self, reads: OffsetReads, group: OffsetFetchRequestGroup) -> None:
        try:
            shard = reads._get_shard(group.group_id)
        except KafkaError:
            return
        if shard.leader_epoch < self._group_epochs.get(shard.partition, -1):
            self._ledger.misled()

    def _commits_offsets(self, _: GroupCoordinator, request: Any, *__: Any, **___: Any) -> None:
        attempt = self._ledger.current((request.producer_id, request.producer_epoch))
        if attempt is None:
            return
        offsets = {(topic.name, each.partition_index): each.committed_offset for topic in request.topics for each in topic.partitions}
        if offsets != attempt.offsets:
            self._late("TxnOffsetCommit", attempt, 0)
            self._ledger.came_late(offsets)


def _told_before(method: Callable[..., Any], told: Callable[..., None]) -> Callable[..., Any]:
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        told(self, *arguments, **named)
        return method(self, *arguments, **named)

    return wrapper
