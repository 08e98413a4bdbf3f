"""When a KIP-848 group gets a new target assignment, and how: at once with the request that made it due, or, for a large group, by a
job in pieces (GroupJobs).

Either way the targets of all members and the epoch that they belong to are one batch: a log tells of all of them or of none. A job's batch
is encoded in pieces too, for those who are still there at its end. While the job runs, members keep the targets that they have; those that
come meanwhile have none in its epoch, and bump the epoch for the next. Answers wait until it is done (LateAnswers).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from broker.coordination.records import CoordinatorRecord, CoordinatorResult, EncodedRecords, ReplayedBeside
from broker.groups.assignors.specification import PARTITIONS_PER_ELEMENT
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember, Partitions
from broker.groups.consumer.reconciliation import Target
from broker.groups.consumer.records import target_epoch_record, target_record
from broker.groups.consumer.subscriptions import MemberUpdate, preferred_assignor, topics_after
from broker.groups.consumer.target import GroupSnapshot, compute_targets
from broker.loop.pieces import Pace
from broker.loop.turns import at_once
from broker.observability.log_fields import Fields
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.assignors.specification import Assignor
    from broker.groups.consumer.jobs import GroupJobs, JobKey
    from broker.groups.consumer.outcome import RecordWriter
    from broker.groups.consumer.settings import GroupSettings
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.consumer.topics import GroupTopics
    from broker.groups.group_config import GroupConfig
    from broker.loop.clock import Clock
    from broker.observability.limited_log import LimitedLog
    from protocol.records import SimpleRecord

ASSIGNOR_MODULES = {"uniform": "broker.groups.assignors.uniform", "range": "broker.groups.assignors.range"}

ELEMENTS_AT_ONCE = 2_000
"""Partitions that are assigned with the request, in 1 to 2 ms. A member counts as MEMBER_ELEMENTS: its record takes as long."""

MEMBER_ELEMENTS = 10

ANSWERS_PER_PIECE = 5
"""Members that are answered between two yields, at 0.1 to 0.2 ms each."""


class _Prepared(NamedTuple):
    """The targets that changed, their records, and these as they are stored: all in one order."""

    targets: dict[str, Partitions]
    records: list[CoordinatorRecord]
    encoded: EncodedRecords


class Assignments:
    """Of the groups of one shard. `writer` writes what a job came to."""

    def __init__(
        self,
        store: ConsumerGroupStore,
        topics: GroupTopics,
        jobs: GroupJobs,
        clock: Clock,
        config: GroupConfig,
        settings: GroupSettings,
        writer: RecordWriter,
        limited_log: LimitedLog,
    ) -> None:
        self._store = store
        self._topics = topics
        self._jobs = jobs
        self._clock = clock
        self._config = config
        self._settings = settings
        self._writer = writer
        self._limited_log = limited_log
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # until the group's assignment is done, in whatever way

    def on_unloaded(self) -> None:
        self._jobs.cancel(self)
        for group_id in list(self._waiting):
            self._release(group_id)

    # Who waits for one that is made in pieces.

    def is_running(self, group_id: str) -> bool:
        """Whether the group's assignment is being made."""
        return self._jobs.is_running(self._job_key(group_id))

    def when_done(self, group_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once the assignment that is being made is stored, or is given up."""
        assert self.is_running(group_id), "somebody has to call back"
        self._waiting.setdefault(group_id, []).append(callback)

    def _release(self, group_id: str) -> None:
        for callback in self._waiting.pop(group_id, ()):
            callback()

    # When it is due.

    def maybe_assign(self, update: MemberUpdate, epoch: int) -> Target:
        """Where the member is to go: by a new assignment, if the epoch has none yet and the last one is not too recent."""
        group, records = update.group, update.records
        if epoch <= group.assignment_epoch or not self._may_assign(group) or self.is_running(group.group_id):
            return present_target(update)
        assignor = preferred_assignor(update) or self._config.consumer_assignors[0]
        snapshot = GroupSnapshot.of(update)
        if self._is_large(update):
            self._jobs.start(self._job_key(group.group_id), self._assign_in_pieces(snapshot, assignor, epoch), _done)
            return present_target(update)
        targets = at_once(compute_targets(snapshot, self._topics, _assignor(assignor)))
        for member_id, target in targets.items():
            if _is_other(target, group.targets.get(member_id)):
                records.append(target_record(group.group_id, member_id, target))
        records.append(self._epoch_record(group.group_id, epoch, len(targets), assignor))
        return Target(epoch, targets[update.after.member_id])

    def _job_key(self, group_id: str) -> JobKey:
        return self, "assignment", group_id

    def _may_assign(self, group: ConsumerGroup) -> bool:
        """Several members that come at about the same time share one assignment (KIP-1263). The first never waits.

        Nor does anyone where the last one was made in the future: the clock was set back, or it was another coordinator's."""
        last_ms, now_ms = group.assignment_timestamp_ms, self._clock.now_ms()
        interval_ms = self._settings.assignment_interval_ms(group.group_id)
        return last_ms == 0 or not last_ms <= now_ms < last_ms + interval_ms

    def _is_large(self, update: MemberUpdate) -> bool:
        elements = MEMBER_ELEMENTS * update.member_count
        for name in topics_after(update) if elements <= ELEMENTS_AT_ONCE else ():
            elements += 1 + self._topics.partition_count_of(name)
            if elements > ELEMENTS_AT_ONCE:
                break
        return elements > ELEMENTS_AT_ONCE

    def _epoch_record(self, group_id: str, epoch: int, member_count: int, assignor: str) -> CoordinatorRecord:
        facts = Fields(group=group_id, epoch=epoch, members=member_count, assignor=assignor)
        self._limited_log.info("group assigned", "group assigned %s", facts)
        return target_epoch_record(group_id, epoch, self._clock.now_ms())

    # In pieces.

    def _assign_in_pieces(self, snapshot: GroupSnapshot, assignor: str, epoch: int) -> Generator[None, None, None]:
        try:
            yield from self._assign(snapshot, assignor, epoch)
            waiting = self._waiting.pop(snapshot.group_id, [])
            while waiting:
                for callback in waiting[:ANSWERS_PER_PIECE]:
                    callback()
                del waiting[:ANSWERS_PER_PIECE]
                if waiting and self.is_running(snapshot.group_id):  # else there is no next turn
                    self._waiting[snapshot.group_id] = waiting
                    yield
                    waiting = self._waiting.pop(snapshot.group_id, [])
        finally:
            self._release(snapshot.group_id)

    def _assign(self, snapshot: GroupSnapshot, assignor: str, epoch: int) -> Generator[None, None, None]:
        targets = yield from compute_targets(snapshot, self._topics, _assignor(assignor))
        prepared = yield from self._prepare(snapshot, targets)
        # What follows is one step: it writes what holds for the group as it is now.
        group = self._store.groups.get(snapshot.group_id)
        if group is None or not group.assignment_epoch < epoch <= group.epoch:
            return
        beside: ReplayedBeside | None = None
        encoded: list[SimpleRecord]
        if self._holds(prepared, group, snapshot, targets):
            beside = ReplayedBeside(len(prepared.records), partial(self._store.adopt_targets, group, prepared.targets))
            records, encoded = prepared.records, prepared.encoded
        else:
            records, encoded = self._records(prepared, group, snapshot, targets)
        records.append(self._epoch_record(group.group_id, epoch, len(targets), assignor))  # the shard encodes it
        self._writer.run(CoordinatorResult(records, self._warn_not_stored, encoded=encoded, beside=beside))

    def _prepare(self, snapshot: GroupSnapshot, targets: Mapping[str, Partitions]) -> Generator[None, None, _Prepared]:
        prepared = _Prepared({}, [], EncodedRecords(self._clock.now_ms()))
        pace = Pace()
        for member_id, target in targets.items():
            if _is_other(target, snapshot.targets.get(member_id)):
                record = target_record(snapshot.group_id, member_id, target)
                prepared.targets[member_id] = target
                prepared.records.append(record)
                prepared.encoded.add(self._writer.encode(record))
            if pace.is_due(1 + sum(map(len, target.values())) // PARTITIONS_PER_ELEMENT):
                yield
        return prepared

    def _holds(self, prepared: _Prepared, group: ConsumerGroup, snapshot: GroupSnapshot, targets: Mapping[str, Partitions]) -> bool:
        """Whether the targets to be told are still those that were prepared, of the same members."""
        for member_id, target in targets.items():
            holder = _holder(group, snapshot.members[member_id])
            is_told = holder is not None and _is_other(target, group.targets.get(holder))
            if is_told is not (member_id in prepared.targets) or (is_told and holder != member_id):
                return False
        return True

    def _records(
        self, prepared: _Prepared, group: ConsumerGroup, snapshot: GroupSnapshot, targets: Mapping[str, Partitions]
    ) -> tuple[list[CoordinatorRecord], list[SimpleRecord]]:
        """Of those who are there now: what was prepared, where it still holds, and what it takes beyond that."""
        known = dict(zip(prepared.targets, zip(prepared.records, prepared.encoded, strict=True), strict=True))
        records: list[CoordinatorRecord] = []
        encoded: list[SimpleRecord] = []
        for member_id, target in targets.items():
            holder = _holder(group, snapshot.members[member_id])
            if holder is None or not _is_other(target, group.targets.get(holder)):
                continue
            if holder == member_id and member_id in known:
                record, stored = known[member_id]
            else:
                record = target_record(group.group_id, holder, target)
                stored = self._writer.encode(record)
            records.append(record)
            encoded.append(stored)
        return records, encoded

    def _warn_not_stored(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self._limited_log.warning("unstored assignment", "an assignment of a group could not be stored: %s", error.name)


def present_target(update: MemberUpdate) -> Target:
    """Where the last assignment sends the member."""
    return Target(update.group.assignment_epoch, update.group.target_of(update.after))


def _holder(group: ConsumerGroup, member: ConsumerGroupMember) -> str | None:
    """Who has the member's place now: itself, or a static member that is back under another id; None if it is gone."""
    if member.member_id in group.members:
        return member.member_id
    return None if member.instance_id is None else group.static_members.get(member.instance_id)


def _is_other(target: Partitions, before: Partitions | None) -> bool:
    """Whether a record has to tell it. A new member's empty target is told as well."""
    return target is not before and target != before


def _assignor(name: str) -> Assignor:
    assign: Assignor = import_module(ASSIGNOR_MODULES[name]).assign
    return assign


def _done(_: None) -> None:
    """A job writes what it came to itself."""
