"""TransactionState: the states of a transactional id, and the one table of the changes that are allowed.

    Empty ------> Ongoing ------> PrepareCommit --> CompleteCommit
      |            ^  | '-------> PrepareAbort ---> CompleteAbort
      |            |  '--(more partitions)
      |            '----- from Empty, CompleteCommit and CompleteAbort, by the first partition
      '-----------------> PrepareAbort: an abort without partitions, from transaction version 2 on; also from Complete…

Kafka has two more states, Dead and PrepareEpochFence, which it never writes. Its pending states are our writes in flight.

Source: org.apache.kafka.coordinator.transaction.TransactionState.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The value is what the record says. A number, because a dict finds it in a tenth of the time of another enum."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name by which clients know it."""
        return LABELS[self]


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

RESTING = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""No transaction is open. The id may expire."""

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
"""The outcome is decided, and its markers are being written."""

ALLOWED_BEFORE: dict[TransactionState, tuple[TransactionState, ...]] = {
    EMPTY: RESTING,
    ONGOING: (ONGOING, *RESTING),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (ONGOING, *RESTING),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
}
"""For each state those from which it may be reached. An id that is new comes from Empty, and a resting one may be removed."""

LABELS = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
}

STATES_BY_LABEL = {label: state for state, label in LABELS.items()}

UNUSED_LABELS = ("Dead", "PrepareEpochFence")
"""States of Kafka's that no id is ever seen in. A filter may name them."""
