"""Finds groups that became classic under a coordinator that ended before it could rebalance them.

When the last member of the consumer protocol leaves, the group becomes classic and begins a rebalance, because nobody owns that member's
partitions any more. The rebalance is only in memory: a coordinator that loads the group finds it stable, without the member. Kafka leaves
it so, and nobody reads those partitions until something else makes the group rebalance.

Such a conversion is one batch: the KIP-848 group's tombstones, then the classic group's record. The order of the records tells it from
anything later.
"""

from __future__ import annotations


class InterruptedConversions:
    """Told of a shard's records about groups while they are loaded, in the order of the log."""

    __slots__ = ("_converted", "_ended")

    def __init__(self) -> None:
        self._ended = ""  # the KIP-848 group whose tombstone was the last record about groups
        self._converted: set[str] = set()

    def on_consumer_group_ended(self, group_id: str) -> None:
        """A KIP-848 group's tombstone."""
        self._ended = group_id

    def on_classic_record(self, group_id: str, *, is_tombstone: bool) -> None:
        """A classic group's record. What a rebalance has stored ends the conversion."""
        if group_id == self._ended and not is_tombstone:
            self._converted.add(group_id)
        else:
            self._converted.discard(group_id)
        self._ended = ""

    def take(self) -> set[str]:
        """The groups of which nothing was stored since they became classic."""
        converted, self._converted = self._converted, set()
        return converted
