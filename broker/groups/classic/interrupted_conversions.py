"""Finds groups that became classic under a coordinator that ended before it could rebalance them.

When the last member of the consumer protocol leaves, the group becomes classic and begins a rebalance, because that member's partitions
have no owner. The rebalance is only in memory: a coordinator that loads the group finds it stable, without the member. In Kafka those
partitions have no reader until another event makes the group rebalance.

Such a conversion is one batch: the KIP-848 group's tombstones, then the classic group's record. A classic record directly after a
tombstone of the same group is a conversion.
"""

from __future__ import annotations


class InterruptedConversions:
    """The store and the manager call it for a shard's group records while they are loaded, in the order of the log."""

    __slots__ = ("_converted", "_ended")

    def __init__(self) -> None:
        self._ended = ""  # the KIP-848 group whose tombstone was the last record about groups
        self._converted: set[str] = set()

    def on_consumer_group_ended(self, group_id: str) -> None:
        """A KIP-848 group's tombstone."""
        self._ended = group_id

    def on_classic_record(self, group_id: str, *, is_tombstone: bool) -> None:
        """A classic group's record. The record of a later rebalance ends the conversion."""
        if group_id == self._ended and not is_tombstone:
            self._converted.add(group_id)
        else:
            self._converted.discard(group_id)
        self._ended = ""

    def take(self) -> set[str]:
        """The groups without a record since they became classic."""
        converted, self._converted = self._converted, set()
        return converted
