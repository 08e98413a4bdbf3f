"""MemberRemovals: removes members from KIP-848 groups: when they leave, when they time out, or when a tool asks for it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.records import group_epoch_record, member_tombstones, regular_expression_tombstone
from broker.groups.consumer.result import GroupResult
from broker.groups.consumer.subscriptions import expression_topics, left_expressions
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.consumer.member_timers import MemberTimers
    from broker.groups.consumer.migration import Migration
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.consumer.topics import GroupTopics
    from broker.observability.limited_log import LimitedLog

log = logging.getLogger("barnabas.groups")


class MemberRemovals:
    """See the module's docstring."""

    def __init__(
        self, store: ConsumerGroupStore, topics: GroupTopics, timers: MemberTimers, migration: Migration, limited_log: LimitedLog
    ) -> None:
        self._store = store
        self._topics = topics
        self._timers = timers
        self._migration = migration
        self._limited_log = limited_log

    def fence(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> GroupResult:
        """Remove the members. The next request of another member makes a new assignment. If no remaining member uses the consumer
        protocol, the group becomes a classic one."""
        if not members:
            return GroupResult([])
        downgraded = self._migration.maybe_downgrade_without(group, members)
        if downgraded is not None:
            return downgraded
        records: list[CoordinatorRecord] = []
        names = Counter(group.name_counts)
        for member in members:
            records += member_tombstones(group.group_id, member.member_id)
            names.subtract(member.subscribed_topic_names)
        left = left_expressions(group, members)
        records += [regular_expression_tombstone(group.group_id, regex) for regex in left]
        metadata_hash = self._topics.hash_of((+names).keys() | expression_topics(group, group.regex_subscribers.keys() - set(left)))
        records.append(group_epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        return GroupResult(records, on_replayed=partial(self._cancel_timers, group.group_id, [member.member_id for member in members]))

    def _cancel_timers(self, group_id: str, member_ids: list[str]) -> None:
        """Called when the members are gone: if their removal cannot be written, the timers must fence them later. (In Kafka they then stay
        for ever.)"""
        for member_id in member_ids:
            self._timers.cancel(group_id, member_id)

    def fence_by_timer(self, group_id: str, member_id: str, reason: str, epoch: int | None = None) -> CoordinatorResult | None:
        """Remove a member, if it still exists and, if `epoch` is given, is in that epoch."""
        group = self._store.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or (epoch is not None and member.member_epoch != epoch):
            return None
        log.debug("group %a fences member %a: %s", group_id, member_id, reason)
        result = self.fence(group, [member])
        return CoordinatorResult(result.records, self._warn_not_stored, result.on_replayed)

    def _warn_not_stored(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._limited_log.warning("unfenced member", "that a member of a group is gone could not be stored: %s", error.name)
