"""Safeguards of transactions that can be switched off, one at a time, as in tests/simulation/ablations.py. Some seed has to notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from broker.coordination.records import NO_PRODUCER_ID
from broker.groups.offset_metadata_manager import OffsetMetadataManager
from broker.loop.deferred import Deferred
from broker.transactions.local_markers import LocalMarkers
from broker.transactions.marker_channels import MarkerChannels
from broker.transactions.marker_queues import Destination
from broker.transactions.partition_additions import PartitionAdditions, Question
from broker.transactions.shard import TransactionCoordinatorShard
from broker.transactions.transaction import Transaction
from protocol.errors import ErrorCode
from storage import producer_checks, producer_state
from storage.log import Log
from storage.verification import VerificationState
from tests.simulation.ablation_set import AblationSet
from tests.simulation.transaction_cluster import LeaderlessWorld
from tests.simulation.transaction_world import LateAnswersWorld, SlowDiskWorld, TransactionWorld
from tests.simulation.world import World


@contextmanager
def verify_nothing() -> Iterator[None]:
    """Below transaction version 2 no coordinator is asked whether a partition is part of the transaction: a late batch begins one that no
    marker ends."""
    ask = PartitionAdditions.ask

    def ask_only_to_add(self: PartitionAdditions, question: Question) -> Deferred:
        if question.operation.supports_epoch_bump:
            return ask(self, question)
        answer = Deferred()
        answer.complete({})
        return answer

    with patch.object(PartitionAdditions, "ask", ask_only_to_add):
        yield


@contextmanager
def bump_no_epoch() -> Iterator[None]:
    """All transactions of a producer have one epoch, and partitions take its markers, as below transaction version 2."""
    prepared = Transaction.prepared

    def keep_epoch(self: Transaction, **named: Any) -> Transaction:
        return prepared(self, **named)._replace(producer_epoch=self.producer_epoch, last_producer_epoch=self.last_producer_epoch)

    with patch.object(Transaction, "prepared", keep_epoch), patch.object(producer_checks, "EPOCH_BUMP_VERSION", 3):
        yield


@contextmanager
def ignore_the_last_stable_offset() -> Iterator[None]:
    def follow_the_high_watermark(self: Log) -> None:
        self.last_stable_offset = self.high_watermark

    with patch.object(Log, "_update_last_stable_offset", follow_the_high_watermark):
        yield


@contextmanager
def take_markers_of_any_epoch() -> Iterator[None]:
    with patch.object(producer_state, "check_marker", lambda *_: None):
        yield


@contextmanager
def answer_before_the_commit() -> Iterator[None]:
    """The coordinator answers when its record is appended, and does not wait until it is committed."""
    write = TransactionCoordinatorShard._write

    def answer_at_once(
        self: TransactionCoordinatorShard, transactional_id: str, change: Any, on_committed: Any, on_outcome: Any = None
    ) -> None:
        write(self, transactional_id, change, lambda _: None, on_outcome)
        on_committed(ErrorCode.NONE)

    with patch.object(TransactionCoordinatorShard, "_write", answer_at_once):
        yield


@contextmanager
def count_offsets_at_the_answer() -> Iterator[None]:
    """Offsets of a transaction count as soon as they are written."""
    replay = OffsetMetadataManager.replay

    def replay_at_once(self: OffsetMetadataManager, key: Any, value: Any, producer_id: int = NO_PRODUCER_ID) -> None:
        replay(self, key, value, NO_PRODUCER_ID)

    with patch.object(OffsetMetadataManager, "replay", replay_at_once):
        yield


@contextmanager
def keep_the_guard_after_a_marker() -> Iterator[None]:
    """An answer that comes after the end of the transaction it was asked for counts all the same."""
    with patch.object(VerificationState, "is_ended_by", lambda self, producer_epoch, *, is_marker: not is_marker):
        yield


@contextmanager
def send_markers_before_the_commit() -> Iterator[None]:
    """Markers leave when PREPARE is appended, and do not wait until it is committed."""
    write_outcome = TransactionCoordinatorShard._write_outcome

    def send_at_once(self: TransactionCoordinatorShard, transactional_id: str, *more: Any) -> None:
        with patch.object(TransactionCoordinatorShard, "_send_markers", lambda *_: None):
            write_outcome(self, transactional_id, *more)
        written = self.table.find(transactional_id)
        if self._shard.is_active and written is not None:
            TransactionCoordinatorShard._send_markers(self, transactional_id, written)

    with patch.object(TransactionCoordinatorShard, "_write_outcome", send_at_once):
        yield


@contextmanager
def take_leaderless_partitions_for_deleted() -> Iterator[None]:
    """As Kafka 4.3.1 (KAFKA-20734)."""
    find_destination = MarkerChannels._find_destination

    def find_with_leader(self: MarkerChannels, topic: str, index: int) -> Destination | None:
        destination = find_destination(self, topic, index)
        return None if destination is self._leaderless else destination

    with patch.object(MarkerChannels, "_find_destination", find_with_leader):
        yield


@contextmanager
def append_markers_past_the_group_coordinator() -> Iterator[None]:
    """A marker in `__consumer_offsets` is in the log, and the group coordinator does not hear of it."""

    def write(self: LocalMarkers, topic: str, partition: int, markers: Any, on_written: Any) -> None:
        self._produce_path.append_markers(topic, partition, markers, timeout_ms=self._timeout_ms, on_done=on_written)

    with patch.object(LocalMarkers, "write", write):
        yield


@contextmanager
def replace_no_producer_id() -> Iterator[None]:
    """After epoch 32766 a producer id is used on, with the last epoch of all."""
    with patch.object(Transaction, "is_epoch_exhausted", property(lambda self: False)):
        yield


Ablation = Callable[[], AbstractContextManager[None]]

ABLATIONS: dict[str, Ablation] = {
    each.__name__: each
    for each in (
        verify_nothing,
        bump_no_epoch,
        ignore_the_last_stable_offset,
        take_markers_of_any_epoch,
        answer_before_the_commit,
        count_offsets_at_the_answer,
        keep_the_guard_after_a_marker,
        send_markers_before_the_commit,
        take_leaderless_partitions_for_deleted,
        append_markers_past_the_group_coordinator,
        replace_no_producer_id,
    )
}

_HANGS = frozenset({"transaction-left-open"})
_TORN = frozenset(
    {
        "torn-txn", "aborted-read(G1a)", "read-before-commit", "unseen", "lost-write", "not-copied", "copied-twice",
        "copied-without-offset", "last-stable-offset-passed",
    }
)  # fmt: skip

BROKEN_BY: dict[str, frozenset[str]] = {
    "verify_nothing": _HANGS | _TORN,
    "bump_no_epoch": _TORN | {"late-request-counted"},
    "ignore_the_last_stable_offset": frozenset({"read-before-commit", "last-stable-offset-passed"}),
    "take_markers_of_any_epoch": _TORN,
    "answer_before_the_commit": _TORN,
    "count_offsets_at_the_answer": frozenset({"pending-offset-visible", "not-copied"}),
    "keep_the_guard_after_a_marker": _HANGS | _TORN,
    "send_markers_before_the_commit": frozenset({"marker-before-prepare"}),
    "take_leaderless_partitions_for_deleted": _HANGS | _TORN,
    "append_markers_past_the_group_coordinator": _HANGS | {"stuck", "copied-twice"},
    "replace_no_producer_id": _HANGS | _TORN | {"late-request-counted", "unexpected-error", "stuck"},
}
"""What each ablation breaks: a seed counts when it finds one of these."""

KEPT_SEEDS = {
    "verify_nothing": 1,
    "bump_no_epoch": 6,
    "ignore_the_last_stable_offset": 0,
    "take_markers_of_any_epoch": 2,
    "answer_before_the_commit": 50,
    "count_offsets_at_the_answer": 0,
    "keep_the_guard_after_a_marker": 32,
    "send_markers_before_the_commit": 0,
    "take_leaderless_partitions_for_deleted": 0,
    "append_markers_past_the_group_coordinator": 0,
    "replace_no_producer_id": 0,
}

WORLDS: dict[str, type[World]] = {
    "answer_before_the_commit": SlowDiskWorld,
    "keep_the_guard_after_a_marker": LateAnswersWorld,
    "take_leaderless_partitions_for_deleted": LeaderlessWorld,
}
"""Of those that one broker in a random world does not show."""

ABLATION_SET = AblationSet(ABLATIONS, BROKEN_BY, TransactionWorld, WORLDS)
