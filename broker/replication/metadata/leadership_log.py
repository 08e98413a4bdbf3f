"""The log lines about the partitions of this broker: leadership gained or lost, and ISRs that the controller changed.

When thousands change at once, as when a broker dies, the first lines are written and one line counts the others. ISRs that the leader
itself changes are logged where it proposes them (in_sync_replicas.py). Kafka logs the same in its state-change.log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.metadata.image import NO_LEADER
from broker.replication.partition_role import LEADER, PartitionRole

if TYPE_CHECKING:
    from broker.observability.limited_log import LimitedLog
    from broker.replication.partition import Partition

logger = logging.getLogger("barnabas.replication")


class PreviousState(NamedTuple):
    """A partition's state before a change of the metadata."""

    role: PartitionRole
    leader_epoch: int
    isr: tuple[int, ...]


def previous_state(partition: Partition | None) -> PreviousState | None:
    """Returns the partition's state now; None for one that is new here."""
    return None if partition is None else PreviousState(partition.role, partition.leader_epoch, partition.isr)


class LeadershipLog:
    """Logs each change of a partition that has replicas elsewhere, after the change was applied."""

    def __init__(self, events: LimitedLog) -> None:
        self._events = events

    def log_change(self, partition: Partition, before: PreviousState | None) -> None:
        """`before` is its `previous_state` before the change."""
        if len(partition.replicas) == 1 or not logger.isEnabledFor(logging.INFO):
            return  # a partition without other replicas is always led here
        was_leader = before is not None and before.role is LEADER
        if not partition.is_leader:
            if was_leader:
                self._note_loss(partition)
        elif before is None or not was_leader or before.leader_epoch != partition.leader_epoch:
            self._events.info(
                "partitions led from here",
                "leader of %r in epoch %d, ISR %s, from offset %d",
                partition,
                partition.leader_epoch,
                list(partition.isr),
                partition.log.log_end_offset,
            )
        elif before.isr != partition.isr:
            self._events.info("changed ISRs", "ISR of %r is %s, it was %s", partition, list(partition.isr), list(before.isr))

    def log_removal(self, partition: Partition) -> None:
        """Log that its replica has moved to another broker."""
        self._events.info("partitions that moved away", "%r moved away, its replicas are %s", partition, list(partition.replicas))

    def _note_loss(self, partition: Partition) -> None:
        epoch = partition.leader_epoch
        if partition.leader_id == NO_LEADER:
            self._events.info("partitions not led from here any more", "no longer leader of %r: nobody leads epoch %d", partition, epoch)
        else:
            self._events.info(
                "partitions not led from here any more",
                "no longer leader of %r: broker %d leads epoch %d",
                partition,
                partition.leader_id,
                epoch,
            )
