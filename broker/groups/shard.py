"""The groups and offsets of one partition of `__consumer_offsets`: the state machine of a CoordinatorRuntime's Shard (Kafka's
GroupCoordinatorShard).

Owns the partition's groups and offsets. The first KIP-848 group imports and makes the parts for such groups. Only GroupCoordinator calls
it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.shard import Shard
from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.groups.classic.group_metadata_manager import GroupMetadataManager
from broker.groups.group_config import GroupConfig
from broker.groups.offset_metadata_manager import OffsetMetadataManager
from broker.groups.records import group_tombstone
from broker.loop.clock import Clock
from broker.observability.limited_log import LimitedLog
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.classic.classic_group import ClassicGroup
    from broker.groups.classic.rebalance_responses import RebalanceResponses
    from broker.groups.consumer.group import ConsumerGroup
    from broker.groups.consumer.manager import ConsumerGroupManager
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.descriptions import GroupListing

EXPIRED_RECORDS_PER_BATCH = 1000
"""Tombstones in one append. The batch is far below max.message.bytes."""

DELETED_TOPICS_TIMER = "deleted topics"
"""The purpose of the timers of deletions that are tried again."""


class GroupCoordinatorShard:
    """See the module's docstring. `shard` writes its records."""

    def __init__(
        self,
        shard: Shard[GroupCoordinatorShard],
        clock: Clock,
        random_source: random.Random,
        config: GroupConfig,
        topic_id_of: Callable[[str], bytes],
        limited_log: LimitedLog,
        group_topics: Callable[[], GroupTopics],
        group_overrides: Callable[[str], Mapping[str, str]],
        responses: RebalanceResponses,
    ) -> None:
        self._shard = shard
        self._limited_log = limited_log
        self._clock = clock
        self._random = random_source
        self._config = config
        self._group_topics = group_topics
        self._group_overrides = group_overrides
        self._consumer_groups: ConsumerGroupStore | None = None
        self._consumer_group_manager: ConsumerGroupManager | None = None
        self.group_manager: GroupMetadataManager = GroupMetadataManager(
            shard.timers, shard.timeline, clock, random_source, config, limited_log, responses
        )
        self.offset_manager: OffsetMetadataManager = OffsetMetadataManager(
            self.group_manager, shard.timeline, clock, config, topic_id_of, self.find_consumer_group, self.find_committed_consumer_group
        )

    def replay_end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.offset_manager.replay_end_transaction(producer_id, is_commit=is_commit)

    @property
    def consumer_groups(self) -> ConsumerGroupStore:
        """The KIP-848 groups."""
        if self._consumer_groups is None:
            from broker.groups.consumer.store import ConsumerGroupStore

            self._consumer_groups = ConsumerGroupStore(
                self._shard.timeline, self.group_manager.forget_simple_group, self.group_manager.conversions.on_consumer_group_ended
            )
        return self._consumer_groups

    @property
    def has_consumer_groups(self) -> bool:
        """Whether there may be KIP-848 groups."""
        return self._consumer_groups is not None

    @property
    def consumer_group_manager(self) -> ConsumerGroupManager:
        """The operations on the KIP-848 groups."""
        if self._consumer_group_manager is None:
            from broker.groups.consumer.manager import ConsumerGroupManager

            self._consumer_group_manager = ConsumerGroupManager(
                self.consumer_groups,
                self.group_manager,
                self._group_topics(),
                self._shard.timers,
                self._clock,
                self._random,
                self._config,
                self._group_overrides,
                self._shard,
                self._limited_log,
            )
        return self._consumer_group_manager

    @property
    def group_count(self) -> int:
        """How many groups there are, of either protocol."""
        return len(self.group_manager.groups) + (len(self.consumer_groups.groups) if self.has_consumer_groups else 0)

    def group_ids(self) -> list[str]:
        """The ids of all groups."""
        return [*self.group_manager.groups, *(self.consumer_groups.groups if self.has_consumer_groups else ())]

    def find_group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        """The group of that id, of either protocol, as written."""
        return self.group_manager.groups.get(group_id) or self.find_consumer_group(group_id)

    def tombstones_of(self, group_id: str) -> list[CoordinatorRecord]:
        """The tombstones of a group, without those of its offsets."""
        group = self.find_consumer_group(group_id)
        if group is None:
            return [group_tombstone(group_id)]
        from broker.groups.consumer.records import group_tombstones

        return group_tombstones(group)

    def find_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The KIP-848 group of that id, as written."""
        return self.consumer_groups.groups.get(group_id) if self.has_consumer_groups else None

    def find_committed_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The KIP-848 group of that id, if it is committed. Its contents are to be read through the shard's timeline."""
        return self._shard.timeline.committed(self.consumer_groups.groups).get(group_id) if self.has_consumer_groups else None

    def list_consumer_groups(self) -> Iterator[GroupListing]:
        """The committed KIP-848 groups."""
        from broker.groups.consumer.descriptions import listing

        timeline = self._shard.timeline
        for group in timeline.committed_values(self.consumer_groups.groups):
            yield listing(group, timeline)

    def on_loaded(self) -> None:
        self.group_manager.on_loaded(self._shard.run)
        if self.has_consumer_groups:
            self.consumer_group_manager.on_loaded()
        # Delete the offsets of topics that were deleted while no coordinator had these groups. Kafka keeps such offsets, and a new topic
        # of the same name gets them.
        if deleted := self.offset_manager.find_deleted_topics():
            self.delete_topics(deleted)

    def on_topics_changed(self, names: set[str]) -> None:
        """Let the groups that read these topics refresh their metadata at the next heartbeat."""
        for name in names if self.has_consumer_groups else ():
            for group in self.consumer_groups.subscribed_to(name):
                group.refresh_soon()

    def on_unloaded(self) -> None:
        self.group_manager.on_unloaded()
        if self._consumer_group_manager is not None:
            self._consumer_group_manager.on_unloaded()

    # Housekeeping.

    def expire(self, group_id: str) -> None:
        """Write the tombstones that are due for this group."""
        self._write_tombstones(self.offset_manager.expire(group_id))

    def delete_topics(self, topics: Mapping[str, Collection[bytes]]) -> None:
        """Write the tombstones of all offsets in deleted topics, by name and ids. Tried again until they are written: before the next
        load nothing else would do it, and a new topic of the name would be read from the old offsets."""

        def delete_again() -> None:
            self._shard.timers.schedule_if_absent((DELETED_TOPICS_TIMER, *topics), RETRY_BACKOFF_MS, lambda: self.delete_topics(topics))

        self._write_tombstones(self.offset_manager.delete_topics(topics), delete_again)

    def _write_tombstones(self, records: list[CoordinatorRecord], retry: Callable[[], None] | None = None) -> None:
        for start in range(0, len(records), EXPIRED_RECORDS_PER_BATCH):
            if self._shard.is_active:  # a failed write ends the shard
                result = CoordinatorResult(records[start : start + EXPIRED_RECORDS_PER_BATCH], self._tombstones_written)
                self._shard.write(result if retry is None else self._shard.retried(result, retry))

    def _tombstones_written(self, error: ErrorCode) -> None:
        # A refused write of expired offsets is repeated at the next check.
        if error is not ErrorCode.NONE:
            self._limited_log.warning(
                "unwritten tombstones", "partition %d: tombstones could not be written: %s", self._shard.partition, error.name
            )
