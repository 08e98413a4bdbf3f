"""What a TransactionCoordinatorShard needs of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.loop.deferred import Deferred
from broker.transactions.transaction import Partitions, Transaction

NextProducerId = Callable[[], int | Deferred]
"""A producer id that was never used, or a Deferred that completes with one, or with a KafkaError."""


class MarkerSender(Protocol):
    """Writes the ends of transactions to their partitions (Kafka's TransactionMarkerChannelManager). Work is known by transactional id and
    coordinator epoch, so that what an earlier life of the shard has left behind ends no later transaction (KAFKA-16352)."""

    def send(self, transactional_id: str, transaction: Transaction, coordinator_epoch: int, on_written: Callable[[], None]) -> None:
        """Write the markers of a transaction whose outcome is decided and committed, with its present producer id, epoch and client
        transaction version; then call `on_written` once.

        Retried for as long as it takes. A partition that no longer exists needs none, and what no retry can mend counts as written."""

    def unmarked(self, transactional_id: str, coordinator_epoch: int) -> Partitions | None:
        """The partitions whose marker is not written yet; None if nothing is known of the transaction."""

    def forget(self, state_partition: int, coordinator_epoch: int) -> None:
        """This life of the shard of a partition of `__transaction_state` has ended: call `on_written` for none of its transactions."""
