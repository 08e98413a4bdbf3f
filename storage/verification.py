"""Verification of transactional batches: whether their partition is in the producer's transaction, asked once for each transaction.

Between the question to the transaction coordinator and the append a guard stands, which is the partition's and producer's alone. The first
append and every marker end it, so that an answer that comes late never counts for a later transaction.

Owned by a ProducerStateManager. Source: VerificationStateEntry, VerificationGuard, KIP-890.
"""

from __future__ import annotations

from typing import NamedTuple


class VerificationGuard:
    """Stands for one question. Only its identity counts."""

    __slots__ = ()


class TransactionAppend(NamedTuple):
    """What the append of a transactional batch has to show. `guard` is what `start_verification` gave before the coordinator was asked;
    None if the transaction was open already. `supports_epoch_bump`: the request is of transaction version 2. `is_required` is
    transaction.partition.verification.enable."""

    guard: VerificationGuard | None
    supports_epoch_bump: bool
    is_required: bool = True


class VerificationState:
    """One producer's question: `lowest_sequence` is the lowest first sequence that waits for the answer. No batch that begins later may be
    appended before it: after that its own batch would be out of order for ever."""

    __slots__ = ("guard", "lowest_sequence", "producer_epoch", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, producer_epoch: int, base_sequence: int, *, supports_epoch_bump: bool, now_ms: int) -> None:
        self.guard = VerificationGuard()
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.timestamp_ms = now_ms

    def note_batch(self, producer_epoch: int, base_sequence: int) -> None:
        """Another batch waits. In a higher epoch the sequences begin again."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)

    def is_ended_by(self, producer_epoch: int, *, is_marker: bool) -> bool:
        """Whether a transactional batch that was appended ends the question: all do, but for a marker of a transaction before.

        Such a marker has a lower epoch, or this transaction's at version 2. A coordinator that did not hear that it was written repeats it,
        perhaps late. With Kafka one of a lower epoch ends the question, and the batch that waits for the answer is INVALID_TXN_STATE."""
        is_of_earlier = producer_epoch < self.producer_epoch or (self.supports_epoch_bump and producer_epoch == self.producer_epoch)
        return not (is_marker and is_of_earlier)
