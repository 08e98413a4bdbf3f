"""The groups and offsets of one partition of `__consumer_offsets` (Kafka's GroupCoordinatorShard): the state machine that a
CoordinatorRuntime's Shard gives its life.

Owns the partition's groups and offsets. GroupCoordinator is the only caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.clock import Clock
from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.shard import Shard
from broker.groups.group_config import GroupConfig
from broker.groups.group_metadata_manager import GroupMetadataManager
from broker.groups.offset_metadata_manager import OffsetMetadataManager
from broker.limited_log import LimitedLog
from protocol.errors import ErrorCode

EXPIRED_RECORDS_PER_BATCH = 1000
"""Tombstones in one append: a batch far below max.message.bytes."""


class GroupCoordinatorShard:
    """See the module's docstring. `shard` is what it lives in."""

    def __init__(
        self,
        shard: Shard[GroupCoordinatorShard],
        clock: Clock,
        random_source: random.Random,
        config: GroupConfig,
        topic_id_of: Callable[[str], bytes],
        limited_log: LimitedLog,
    ) -> None:
        self._shard = shard
        self._limited_log = limited_log
        self.group_manager = GroupMetadataManager(shard.timers, shard.timeline, clock, random_source, config, limited_log)
        self.offset_manager = OffsetMetadataManager(self.group_manager, shard.timeline, clock, config, topic_id_of)

    def replay_end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.offset_manager.replay_end_transaction(producer_id, is_commit=is_commit)

    def on_loaded(self) -> None:
        self.group_manager.on_loaded(self._shard.run)

    def on_unloaded(self) -> None:
        self.group_manager.on_unloaded()

    # Housekeeping.

    def expire(self, group_ids: list[str]) -> None:
        """Write the tombstones that are due for these groups."""
        self._write_tombstones([record for group_id in group_ids for record in self.offset_manager.expire(group_id)])

    def delete_topics(self, topics: frozenset[str]) -> None:
        """Write the tombstones of all offsets in deleted topics."""
        self._write_tombstones(self.offset_manager.delete_topics(topics))

    def _write_tombstones(self, records: list[CoordinatorRecord]) -> None:
        for start in range(0, len(records), EXPIRED_RECORDS_PER_BATCH):
            if self._shard.is_active:  # a write may cost it its life
                self._shard.write(CoordinatorResult(records[start : start + EXPIRED_RECORDS_PER_BATCH], self._tombstones_written))

    def _tombstones_written(self, error: ErrorCode) -> None:
        # They are due again at the next check.
        if error is not ErrorCode.NONE:
            self._limited_log.warning(
                "unwritten tombstones", "partition %d: tombstones could not be written: %s", self._shard.partition, error.name
            )
