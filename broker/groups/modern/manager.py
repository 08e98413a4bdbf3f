"""Operations on the KIP-848 groups of one shard: ConsumerGroupHeartbeat and what time brings (the consumer group half of Kafka's
GroupMetadataManager).

An operation computes records and an answer on the groups as written, and changes nothing but timers; the store changes the groups when
the records are replayed. A change of a member or of a topic bumps the group's epoch; the epoch gets a target assignment, at most
one each `group.consumer.assignment.interval.ms`; each member goes there step by step with its own heartbeats.

Called by GroupCoordinatorShard. Source: GroupMetadataManager.consumerGroup*, KIP-848, 1082, 1101, 1251, 1263.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.groups.modern.group import ConsumerGroup
from broker.groups.modern.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupMember,
    MemberState,
    Partitions,
)
from broker.groups.modern.reconciliation import Reconciliation, Target
from broker.groups.modern.records import (
    assignment_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regular_expression_tombstone,
    target_epoch_record,
    target_record,
)
from broker.groups.modern.requests import (
    check_epoch,
    known_static_member,
    not_found,
    same_partitions,
    unknown_member,
    with_request,
)
from broker.groups.modern.subscriptions import expression_topics, is_homogeneous, preferred_assignor, subscriptions_after
from broker.groups.modern.target import compute_targets, subscribed_topics
from broker.log_fields import Fields
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from protocol.uuids import random_uuid_text

if TYPE_CHECKING:
    import random

    from broker.clock import Clock
    from broker.coordination.timers import CoordinatorTimers
    from broker.groups.assignors.specification import Assignor
    from broker.groups.group_config import GroupConfig
    from broker.groups.modern.store import ConsumerGroupStore
    from broker.groups.modern.topics import GroupTopics
    from broker.groups.requester import Requester
    from broker.limited_log import LimitedLog

log = logging.getLogger("barnabas.groups")

METADATA_REFRESH_INTERVAL_MS = 60 * 60 * 1000
"""After this long a group's topics are looked at, though nobody said that they changed (GroupMetadataManager)."""

ASSIGNOR_MODULES = {"uniform": "broker.groups.assignors.uniform", "range": "broker.groups.assignors.range"}


class HeartbeatResult(NamedTuple):
    """What a heartbeat came to: `records` to append, and the answer once they are committed."""

    records: list[CoordinatorRecord]
    response: ConsumerGroupHeartbeatResponse


class ConsumerGroupManager:
    """See the module's docstring. `run` appends what a timer's operation came to is the timers' own business."""

    def __init__(
        self,
        store: ConsumerGroupStore,
        topics: GroupTopics,
        timers: CoordinatorTimers,
        clock: Clock,
        random_source: random.Random,
        config: GroupConfig,
        group_overrides: Callable[[str], Mapping[str, str]],
        limited_log: LimitedLog,
        delete_empty_classic_group: Callable[[str], list[CoordinatorRecord] | None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._timers = timers
        self._clock = clock
        self._random = random_source
        self._config = config
        self._group_overrides = group_overrides
        self._limited_log = limited_log
        self._delete_empty_classic_group = delete_empty_classic_group

    # Heartbeats.

    def heartbeat(self, requester: Requester, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        """The next step of a member whose request was checked. KafkaError is the answer to one that must not go on as it is."""
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        group, records = self._get_or_make_group(request)
        self._check_size(group, request.member_id)
        if not request.member_id:
            request.member_id = random_uuid_text(self._random.getrandbits)
        member = self._find_member(group, request, records)
        changed = with_request(member, requester, request)
        has_new_names = self._note_member(group, member, changed, records)
        now_ms = self._clock.now_ms()
        epoch = self._maybe_bump_epoch(group, member, changed, now_ms, is_due=has_new_names, records=records)
        target = self._maybe_update_target(group, member, changed, epoch, now_ms, records)
        reconciled = self._reconcile(group, changed, target, request.topic_partitions, has_new_names, records)
        self.schedule_session(group.group_id, reconciled.member_id)
        return HeartbeatResult(records, self._response(request, member, reconciled))

    def _get_or_make_group(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """The group, which its first records make, and the records that end an empty classic group of the name."""
        group = self._store.groups.get(request.group_id)
        if group is not None:
            return group, []
        if request.member_epoch != JOIN_EPOCH:
            raise not_found(request.group_id)
        records = self._delete_empty_classic_group(request.group_id)
        if records is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        return ConsumerGroup(request.group_id), records

    def _check_size(self, group: ConsumerGroup, member_id: str) -> None:
        max_size = self._config.consumer_max_size
        if len(group.members) >= max_size and member_id not in group.members:
            message = f"The consumer group has reached its maximum capacity of {max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    # Who it is.

    def _find_member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        if request.instance_id is not None:
            return self._find_static_member(group, request, records)
        member = group.members.get(request.member_id)
        if member is None:
            if request.member_epoch != JOIN_EPOCH:
                raise unknown_member(group, request.member_id)
            return ConsumerGroupMember(request.member_id)
        check_epoch(member, request)
        return member

    def _find_static_member(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroupMember:
        assert request.instance_id is not None, "only static members are looked for by instance"
        existing = group.find_static_member(request.instance_id)
        if request.member_epoch != JOIN_EPOCH:
            existing = known_static_member(existing, request)
            check_epoch(existing, request)
            return existing
        if existing is None:
            return group.members.get(request.member_id) or ConsumerGroupMember(request.member_id)
        if not existing.uses_classic_protocol and existing.member_epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because the instance id "
                f"is owned by {existing.member_id} member.",
            )
        replacing = existing._replace(member_id=request.member_id, member_epoch=0, previous_member_epoch=0)
        records += replacement_records(group, existing, replacing)
        return replacing

    # What changed.

    def _note_member(
        self, group: ConsumerGroup, member: ConsumerGroupMember, changed: ConsumerGroupMember, records: list[CoordinatorRecord]
    ) -> bool:
        """Store the member if it changed; whether it reads other topics now."""
        if changed == member:
            return False
        records.append(member_record(group.group_id, changed))
        return changed.subscribed_topic_names != member.subscribed_topic_names

    def _maybe_bump_epoch(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        changed: ConsumerGroupMember,
        now_ms: int,
        *,
        is_due: bool,
        records: list[CoordinatorRecord],
    ) -> int:
        """The group's epoch: a new one when the subscriptions changed, or the topics did since they were last looked at."""
        if not is_due and not group.is_refresh_due(now_ms):
            return group.epoch
        names, subscribers = subscriptions_after(group, member, changed)
        metadata_hash = self._topics.hash_of(names.keys() | expression_topics(group, subscribers))
        epoch = group.epoch
        if is_due or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(group_epoch_record(group.group_id, epoch, metadata_hash))
        group.refresh_later(now_ms + METADATA_REFRESH_INTERVAL_MS, epoch)
        if group.has_partition_metadata:
            records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def _maybe_update_target(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        changed: ConsumerGroupMember,
        epoch: int,
        now_ms: int,
        records: list[CoordinatorRecord],
    ) -> Target:
        """Where the member is to go: by a new assignment, if the epoch has none yet and the last one is not too recent."""
        if epoch <= group.assignment_epoch or not self._may_assign(group, now_ms):
            return Target(group.assignment_epoch, group.target_of(changed))
        name = preferred_assignor(group, member, changed) or self._config.consumer_assignors[0]
        targets = compute_targets(group, changed, self._topics, _assignor(name), is_homogeneous=is_homogeneous(group, member, changed))
        records += targets.records
        records.append(target_epoch_record(group.group_id, epoch, self._clock.now_ms()))
        facts = Fields(group=group.group_id, epoch=epoch, members=len(targets.targets), assignor=name)
        self._limited_log.info("group assigned", "group assigned %s", facts)
        return Target(epoch, targets.targets.get(changed.member_id, {}))

    def _may_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Several members that come at about the same time share one assignment (KIP-1263). The first never waits."""
        last_ms = group.assignment_timestamp_ms
        interval_ms = self._setting(group.group_id, "consumer.assignment.interval.ms", self._config.consumer_assignment_interval_ms)
        return last_ms == 0 or interval_ms == 0 or now_ms >= last_ms + interval_ms

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        target: Target,
        owned: list[HeartbeatTopicPartitions] | None,
        has_subscription_changed: bool,
        records: list[CoordinatorRecord],
    ) -> ConsumerGroupMember:
        if not has_subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        subscribed = frozenset(self._topics.ids_of(subscribed_topics(member, group.regular_expressions)))
        step = Reconciliation(member, target, subscribed, has_subscription_changed, owned, group.find_owner)
        reconciled = step.next()
        if reconciled == member:
            return member
        records.append(assignment_record(group.group_id, reconciled))
        if not reconciled.uses_classic_protocol:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self._schedule_rebalance_timeout(group.group_id, reconciled)
            else:
                self._timers.cancel(_rebalance_key(group.group_id, reconciled.member_id))
        return reconciled

    def _response(
        self, request: ConsumerGroupHeartbeatRequest, before: ConsumerGroupMember, member: ConsumerGroupMember
    ) -> ConsumerGroupHeartbeatResponse:
        """With the assignment only if it changed or the member told all about itself, which it does when it is in doubt."""
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._setting(
                request.group_id, "consumer.heartbeat.interval.ms", self._config.consumer_heartbeat_interval_ms
            ),
        )
        if request.member_epoch == JOIN_EPOCH or is_full or not same_partitions(before.assigned, member.assigned):
            response.assignment = HeartbeatAssignment(
                topic_partitions=[
                    HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in member.assigned.items()
                ]
            )
        return response

    def _setting(self, group_id: str, name: str, default: int) -> int:
        """What the group has set, else the broker's."""
        overrides = self._group_overrides(group_id)
        return int(overrides[name]) if name in overrides else default

    # Leaving.

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> HeartbeatResult:
        group = self._store.groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise unknown_member(group, request.member_id)
            return HeartbeatResult(self.fence(group, [member]), response)
        member = known_static_member(group.find_static_member(request.instance_id), request)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            return HeartbeatResult(self.fence(group, [member]), response)
        # It keeps what it was assigned until it is back, or its session ends.
        away = member._replace(member_epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
        return HeartbeatResult([assignment_record(group.group_id, away)], response)

    def fence(self, group: ConsumerGroup, members: Collection[ConsumerGroupMember]) -> list[CoordinatorRecord]:
        """Records that remove members; the next heartbeat of any other one gets the group a new assignment."""
        records: list[CoordinatorRecord] = []
        names = Counter(group.name_counts)
        subscribers = Counter(group.regex_subscribers)
        for member in members:
            records += member_tombstones(group.group_id, member.member_id)
            names.subtract(member.subscribed_topic_names)
            if member.subscribed_topic_regex:
                subscribers[member.subscribed_topic_regex] -= 1
        records += [
            regular_expression_tombstone(group.group_id, regex)
            for regex, count in subscribers.items()
            if count == 0 and regex in group.regular_expressions
        ]
        metadata_hash = self._topics.hash_of((+names).keys() | expression_topics(group, +subscribers))
        records.append(group_epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        for member in members:
            self.cancel_timers(group.group_id, member.member_id)
        return records

    # Time.

    def on_loaded(self) -> None:
        """The shard is ours now: every member has a whole session to find this coordinator."""
        for group in self._store.groups.values():
            for member in group.members.values():
                self.schedule_session(group.group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._schedule_rebalance_timeout(group.group_id, member)

    def schedule_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """The member is alive."""
        if timeout_ms is None:
            timeout_ms = self._setting(group_id, "consumer.session.timeout.ms", self._config.consumer_session_timeout_ms)
        self._timers.schedule(_session_key(group_id, member_id), timeout_ms, partial(self._expire_session, group_id, member_id))

    def _expire_session(self, group_id: str, member_id: str) -> CoordinatorResult | None:
        return self._fence_by_timer(group_id, member_id, "its session expired")

    def _schedule_rebalance_timeout(self, group_id: str, member: ConsumerGroupMember) -> None:
        key = _rebalance_key(group_id, member.member_id)
        self._timers.schedule(
            key, member.rebalance_timeout_ms, partial(self._expire_rebalance, group_id, member.member_id, member.member_epoch)
        )

    def _expire_rebalance(self, group_id: str, member_id: str, epoch: int) -> CoordinatorResult | None:
        group = self._store.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or member.member_epoch != epoch:
            return None
        return self._fence_by_timer(group_id, member_id, "it gave up no partitions within its rebalance timeout")

    def _fence_by_timer(self, group_id: str, member_id: str, reason: str) -> CoordinatorResult | None:
        group = self._store.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return None
        log.debug("group %a fences member %a: %s", group_id, member_id, reason)
        return CoordinatorResult(self.fence(group, [member]), self._warn_not_stored)

    def _warn_not_stored(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._limited_log.warning("unfenced member", "that a member of a group is gone could not be stored: %s", error.name)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(_session_key(group_id, member_id))
        self._timers.cancel(_rebalance_key(group_id, member_id))


def _session_key(group_id: str, member_id: str) -> tuple[str, ...]:
    return ("consumer session", group_id, member_id)


def _rebalance_key(group_id: str, member_id: str) -> tuple[str, ...]:
    return ("consumer rebalance", group_id, member_id)


def replacement_records(group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember) -> list[CoordinatorRecord]:
    """A static member is back under another member id, with its old place."""
    target: Partitions = group.targets.get(old.member_id, {})
    return [
        *member_tombstones(group.group_id, old.member_id),
        member_record(group.group_id, new),
        target_record(group.group_id, new.member_id, target),
        assignment_record(group.group_id, new),
    ]


def _assignor(name: str) -> Assignor:
    assign: Assignor = import_module(ASSIGNOR_MODULES[name]).assign
    return assign
