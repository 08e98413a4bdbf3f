"""What MarkerChannels keeps: transactions whose markers are being written, their markers, and where these wait. Only it changes them.

A marker is in one place at a time:

    routed --> waiting at its destination --> in a batch that was sent --> written
      ^                                         |
      '---- when its leader changed <-----------'---> in a batch that backs off ---> routed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from storage.markers import TransactionMarker

if TYPE_CHECKING:
    from broker.loop.clock import Timer
    from broker.transactions.transaction import Transaction

MARKERS_MAX = 10_000
"""At one destination. More are not made: they stay where they stand in the `unmarked` of their transaction until half of these are gone."""

NO_NODE = -1

LifeKey = tuple[int, int]
"""A partition of `__transaction_state` and its leader epoch, the coordinator epoch."""


class TransactionEnd:
    """A transaction whose outcome is decided. `unmarked` has each partition whose marker is not written, with the marker if it is on its
    way. `is_over`: `on_written` was called, or the life of its coordinator's shard has ended."""

    __slots__ = ("is_over", "life_key", "marker", "on_written", "transactional_id", "unmarked")

    def __init__(self, transactional_id: str, life_key: LifeKey, transaction: Transaction, on_written: Callable[[], None]) -> None:
        self.transactional_id = transactional_id
        self.life_key = life_key
        self.marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            life_key[1],
            transaction.is_commit,
            transaction.client_transaction_version,
        )
        self.on_written = on_written
        self.is_over = False
        self.unmarked: dict[str, dict[int, PartitionMarker | None]] = {
            topic: dict.fromkeys(indexes) for topic, indexes in transaction.partitions.items()
        }


class PartitionMarker:
    """The marker of a transaction for one partition. `batch` is what its place is, None while it waits at its destination: an outcome
    counts only if it comes for this batch."""

    __slots__ = ("attempts", "batch", "destination", "end", "index", "topic")

    def __init__(self, end: TransactionEnd, topic: str, index: int, destination: Destination) -> None:
        self.end = end
        self.topic = topic
        self.index = index
        self.destination = destination
        self.batch: Batch | None = None
        self.attempts = 0


class Batch:
    """Markers that share an answer, or a time at which they are tried again: then `timer` is that."""

    __slots__ = ("markers", "timer")

    def __init__(self, markers: list[PartitionMarker]) -> None:
        self.markers = markers
        self.timer: Timer | None = None


ROUTING = Batch([])
"""The batch of all markers that are to be routed."""


class Destination:
    """The leader's broker, or NO_NODE for markers that wait for a leader. `markers` are all that are on their way there, of which `waiting`
    are not sent yet, in their order. `overfull` are transactions with more of them."""

    __slots__ = ("in_flight", "markers", "node_id", "overfull", "registration", "waiting")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.markers: dict[PartitionMarker, None] = {}
        self.waiting: dict[PartitionMarker, None] = {}
        self.overfull: dict[TransactionEnd, None] = {}
        self.in_flight: Batch | None = None
        """The one request to this broker that is not answered."""
        self.registration: tuple[str, int, int] | None = None
        """Host, port and broker epoch, to which it was sent."""

    @property
    def is_full(self) -> bool:
        return len(self.markers) >= MARKERS_MAX

    def enter(self, marker: PartitionMarker) -> None:
        """The marker waits here from now on. One that comes from elsewhere is taken although it is full."""
        marker.destination = self
        marker.batch = None
        self.markers[marker] = None
        self.waiting[marker] = None

    def leave(self, marker: PartitionMarker) -> None:
        del self.markers[marker]
        self.waiting.pop(marker, None)

    def take(self, batch: Batch) -> None:
        """These markers, which wait here, are sent."""
        for marker in batch.markers:
            del self.waiting[marker]
            marker.batch = batch

    def take_overfull(self) -> Mapping[TransactionEnd, None]:
        """The transactions that have room now."""
        if not self.overfull or len(self.markers) > MARKERS_MAX // 2:
            return {}
        taken, self.overfull = self.overfull, {}
        return taken
