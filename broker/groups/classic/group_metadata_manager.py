"""The group APIs of one shard: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups (Kafka's class of this name).

Owns `groups`. An operation checks the request, changes the soft state of a rebalance in progress (which members have joined, which wait),
and returns the records to store as a CoordinatorResult. Only `replay` adds and removes groups. When a generation's record is replayed on
the leader, its members are already in the group. Members get their assignment, and the group is stable, when the record is committed.

joins.py has how a member joins an existing group, rebalance.py the phases of a rebalance.

Clock and random source are injected. There is no I/O. GroupCoordinatorShard calls it.

Source: GroupMetadataManager.classicGroup*, KIP-62, 134, 345, 394, 559, 814.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from broker.coordination.records import NO_PRODUCER_ID, CoordinatorRecord, CoordinatorResult
from broker.coordination.timeline import Timeline
from broker.coordination.timers import CoordinatorTimers
from broker.groups.classic.classic_group import Answer, ClassicGroup, GroupState
from broker.groups.classic.classic_group_member import Reply
from broker.groups.classic.interrupted_conversions import InterruptedConversions
from broker.groups.classic.joins import Joins, join_error, reason_text
from broker.groups.classic.rebalance import Rebalance
from broker.groups.classic.rebalance_responses import RebalanceResponses
from broker.groups.client_info import ClientInfo
from broker.groups.group_config import MAX_ASSIGNMENTS_SIZE_BYTES, GroupConfig
from broker.groups.records import empty_group_record, group_metadata_record
from broker.loop.clock import Clock
from broker.observability.limited_log import LimitedLog
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from protocol.messages.stored.group_records import GroupMetadataKey, GroupMetadataValue
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger("barnabas.groups")


class GroupMetadataManager:
    """All classic groups whose offsets partition is this shard's."""

    def __init__(
        self,
        timers: CoordinatorTimers,
        timeline: Timeline,
        clock: Clock,
        random_source: random.Random,
        config: GroupConfig,
        limited_log: LimitedLog,
        responses: RebalanceResponses,
    ) -> None:
        self._responses = responses
        self.groups: dict[str, ClassicGroup] = {}
        self._timeline = timeline
        self._is_loading = True
        self.conversions = InterruptedConversions()
        self._timers = timers
        self._clock = clock
        self._config = config
        self._rebalance = Rebalance(timers, clock, config, limited_log, responses)
        self._joins = Joins(timers, random_source, config, self._rebalance)

    # JoinGroup.

    def join(
        self, client: ClientInfo, request: JoinGroupRequest, reply: Reply, replaced: Sequence[CoordinatorRecord] = ()
    ) -> CoordinatorResult | None:
        """Add a member to the group. `reply` gets the response now, or when the join phase ends.

        `replaced` are the tombstones of a KIP-848 group without members that a new group replaces. They are one write with the new group's
        record, so that the group exists at any time: OffsetFetch returns no offsets of a group that does not exist."""
        group = self.groups.get(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id:
                reply.complete(join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return None
            group = self.groups[request.group_id] = ClassicGroup(request.group_id, self._clock.now_ms())
        result = self._joins.join(client, request, group, reply)
        if not is_new_group:
            return result
        assert result is None, "the first member of a group waits for others"
        # The next coordinator still knows the group then, with generation 0.
        return CoordinatorResult([*replaced, empty_group_record(group)], self._new_group_stored(group, reply))

    def _new_group_stored(self, group: ClassicGroup, reply: Reply) -> Callable[[ErrorCode], None]:
        def on_committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE or self.groups.get(group.group_id) is not group:
                return
            self._discard(group, error)
            if group.is_appended:
                # The log has the group without members, and so has this shard if it stays loaded.
                self.groups[group.group_id] = ClassicGroup(group.group_id, self._clock.now_ms(), is_appended=True)
            if not reply.is_done:
                reply.complete(join_error(error))

        return on_committed

    # SyncGroup.

    def sync(self, request: SyncGroupRequest, reply: Reply) -> CoordinatorResult | None:
        """The leader sends all assignments, the other members fetch theirs. `reply` gets the member's once they are stored."""
        group = self.groups.get(request.group_id)
        if group is None or group.is_empty:
            reply.complete(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return None
        error = _sync_error(group, request)
        if error is not ErrorCode.NONE:
            reply.complete(SyncGroupResponse(error_code=error))
            return None
        member = group.members[request.member_id]
        self._rebalance.sync_received(group, request.member_id)
        if group.state is GroupState.STABLE:
            reply.complete(self._rebalance.sync_response(group, member))
            return None
        group.await_sync(member, reply)
        if not group.is_leader(request.member_id):
            return None
        generation = group.generation
        if sum(len(assigned.assignment) for assigned in request.assignments) > MAX_ASSIGNMENTS_SIZE_BYTES:
            self._assignment_stored(group, generation, {}, ErrorCode.UNKNOWN_SERVER_ERROR)
            return None
        given = {assigned.member_id: bytes(assigned.assignment) for assigned in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        return CoordinatorResult(
            [group_metadata_record(group, assignments)], lambda error: self._assignment_stored(group, generation, assignments, error)
        )

    def _assignment_stored(self, group: ClassicGroup, generation: int, assignments: dict[str, bytes], error: ErrorCode) -> None:
        """Send the assignments, unless the group has begun another rebalance meanwhile, which has answered the SyncGroups."""
        if group.generation != generation:
            return
        if error is not ErrorCode.NONE:
            if group.state is GroupState.COMPLETING_REBALANCE:
                self._rebalance.reset_assignment(group, error)
                self._rebalance.prepare(group, f"the assignment could not be stored: {error.name}")
        elif group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            for member_id, assignment in assignments.items():
                if member_id in group.members:
                    group.members[member_id].assignment = assignment
            if group.state is GroupState.COMPLETING_REBALANCE:
                group.transition_to(GroupState.STABLE, self._clock.now_ms())
            self._rebalance.answer_syncs(group, ErrorCode.NONE)

    # Heartbeat and LeaveGroup.

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Extend the member's session. REBALANCE_IN_PROGRESS tells the member to join again."""
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        try:
            group.validate_member(request.member_id, request.group_instance_id)
        except KafkaError as e:
            return e.code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.reschedule_heartbeat(group, group.members[request.member_id])
        # In the sync phase a member has its JoinGroup response and need not join again.
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def keep_session(self, group: ClassicGroup, member_id: str) -> None:
        """An offset commit extends the member's session, except in the sync phase, where commits are refused."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.reschedule_heartbeat(group, member)

    def leave(self, request: LeaveGroupRequest) -> tuple[CoordinatorResult | None, list[MemberResponse]]:
        """Remove the request's members. A tool names a static member by its instance id alone. Each member gets its own result."""
        group = self.groups.get(request.group_id)
        responses = [
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_member(group, member),
            )
            for member in request.members
        ]
        result = None
        if group is not None and any(response.error_code == ErrorCode.NONE for response in responses) and not group.is_empty:
            result = self._rebalance.maybe_prepare_or_complete_join(group, "members left")
        return result, responses

    def _leave_member(self, group: ClassicGroup, leaving: MemberIdentity) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id:
            if leaving.group_instance_id not in group.static_members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = group.static_members[leaving.group_instance_id]
        elif member_id not in group.pending_join_members:
            try:
                group.validate_member(member_id, leaving.group_instance_id)
            except KafkaError as e:
                return e.code
        log.debug("group %a: member %a leaves: %s", group.group_id, member_id, reason_text(leaving.reason))
        self._rebalance.remove_member(group, member_id)
        return ErrorCode.NONE

    # Durable state, loading and unloading.

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None, _producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record.

        Case A, a tombstone: the group, which was empty, is removed. Case B, loading: the record replaces the group, which has no rebalance
        in progress. Case C, a new group's first record: the group exists once the record is committed. Case D, a known group: the record
        takes effect when it is committed.
        """
        if self._is_loading:
            self.conversions.on_classic_record(key.group, is_tombstone=value is None)
        group = self.groups.get(key.group)
        if value is None:
            self._timeline.remove(self.groups, key.group)
        elif group is None or self._is_loading:
            self._timeline.put(self.groups, key.group, ClassicGroup.from_record(key.group, value))
        elif not group.is_appended:
            group.is_appended = True
            self._timeline.record_added(self.groups, key.group)

    def create_simple_group(self, group_id: str) -> None:
        """Make a simple group, which has offsets and no members. Replaying an offset calls this."""
        self._timeline.put(self.groups, group_id, ClassicGroup(group_id, self._clock.now_ms(), is_appended=True))

    def forget_simple_group(self, group_id: str) -> None:
        """Remove the simple group of a KIP-848 group, whose offsets may have been replayed before its own records."""
        self._timeline.remove(self.groups, group_id)

    # Groups that change their protocol. Called while the records of that change are replayed, inside a write.

    def retire(self, group: ClassicGroup) -> None:
        """A KIP-848 group has the id now. Waiting members are told to join again, in a later turn of the loop."""
        self._rebalance.cancel_timers(group)
        waiting = self._end(group)
        if waiting:
            self._responses.send_later(_end_answers(waiting, ErrorCode.REBALANCE_IN_PROGRESS))

    def take_over(self, group: ClassicGroup, rebalance_reason: str | None) -> None:
        """`group` replaces a KIP-848 group. Its record was just replayed."""
        self.groups[group.group_id] = group  # in place of the object that replay made of the record
        for member in group.members.values():
            self._rebalance.reschedule_heartbeat(group, member)
        if rebalance_reason is not None:
            result = self._rebalance.prepare(group, rebalance_reason)
            assert result is None, "a rebalance without joined members stores nothing"

    def on_loaded(self, run: Callable[[CoordinatorResult | None], None]) -> None:
        """The shard is active: every member gets a whole session timeout to find this coordinator. `run` appends the records."""
        self._is_loading = False
        converted = self.conversions.take()
        for group in list(self.groups.values()):
            for member in group.members.values():
                self._rebalance.reschedule_heartbeat(group, member)
            if len(group.members) > self._config.max_size:
                # The limit was lowered. In the rebalance all members can commit before the surplus ones are refused.
                run(self._rebalance.prepare(group, "more members than group.max.size"))
            elif group.group_id in converted and group.members:
                run(self._rebalance.prepare(group, "the group became classic before this coordinator had it"))

    def on_unloaded(self) -> None:
        """Another broker is the coordinator now: waiting members get NOT_COORDINATOR."""
        for group in list(self.groups.values()):
            self._discard(group, ErrorCode.NOT_COORDINATOR)
        self._timers.cancel_all()

    def _discard(self, group: ClassicGroup, error: ErrorCode) -> None:
        waiting = self._end(group)
        self.groups.pop(group.group_id, None)
        self._responses.send(_end_answers(waiting, error), len(waiting))

    def _end(self, group: ClassicGroup) -> list[_Waiting]:
        """Make the group DEAD: its timers do nothing any more. Returns the members whose requests still wait."""
        waiting = [_Waiting(member.member_id, group.release_join(member), group.release_sync(member)) for member in group.members.values()]
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        return [member for member in waiting if member.join is not None or member.sync is not None]


class _Waiting(NamedTuple):
    """The receivers of the responses to a member's JoinGroup and SyncGroup, if they wait."""

    member_id: str
    join: Reply | None
    sync: Reply | None


def _end_answers(waiting: list[_Waiting], error: ErrorCode) -> Iterator[Answer]:
    for member_id, join, sync in waiting:
        if join is not None:
            yield join, join_error(error, member_id)
        if sync is not None:
            yield sync, SyncGroupResponse(error_code=error)


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    try:
        group.validate_member(request.member_id, request.group_instance_id)
    except KafkaError as e:
        return e.code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # Version 5 has the protocol that the member believes was chosen (KIP-559).
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
