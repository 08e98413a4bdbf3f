"""The phases of a classic group's rebalance, and their timeouts (the second half of GroupMetadataManager).

    EMPTY --first member joins--> PREPARING --all joined, or time is up--> COMPLETING --leader's assignment stored--> STABLE
                                      ^-------------- a member comes, goes or changes ---------------|------------------|
                                      `--no member left--> EMPTY

Join phase (PREPARING): every member's JoinGroup waits. The phase ends when all members have joined, at the latest after the longest
rebalance timeout; dynamic members that have not joined by then are removed. A group that was empty waits
`group.initial.rebalance.delay.ms` instead, and again if members joined meanwhile, so that a deployment's consumers share one generation
(KIP-134).
Sync phase (COMPLETING): every SyncGroup waits for the leader's. Its assignments are stored before any response is sent.

A method returns a CoordinatorResult if it has a record to append (that the group became empty), else None.
GroupMetadataManager calls it, and the timers that it arms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from broker.coordination.records import CoordinatorResult
from broker.coordination.timers import CoordinatorTimers, TimerKey
from broker.groups.classic.classic_group import Answer, ClassicGroup, GroupState, send_answers
from broker.groups.classic.classic_group_member import ClassicGroupMember, Reply
from broker.groups.classic.rebalance_responses import RebalanceResponses
from broker.groups.group_config import GroupConfig
from broker.groups.records import group_metadata_record
from broker.loop.clock import Clock
from broker.observability.limited_log import LimitedLog
from broker.observability.log_fields import Fields
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger("barnabas.groups")


class Rebalance:
    """Drives the groups of one shard from phase to phase."""

    def __init__(
        self, timers: CoordinatorTimers, clock: Clock, config: GroupConfig, limited_log: LimitedLog, responses: RebalanceResponses
    ) -> None:
        self._timers = timers
        self._responses = responses
        self._limited_log = limited_log
        self._clock = clock
        self._config = config

    # Into the join phase.

    def maybe_prepare_or_complete_join(self, group: ClassicGroup, reason: str) -> CoordinatorResult | None:
        """Start a rebalance, or, if one is in its join phase, end that phase if all members have joined."""
        return self.prepare(group, reason) if group.can_rebalance else self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> CoordinatorResult | None:
        """Start a rebalance. Members that wait for an assignment of the old generation are told to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync_members.clear()
        self._timers.cancel(_sync_key(group))
        is_initial = group.is_empty
        group.transition_to(GroupState.PREPARING_REBALANCE, self._clock.now_ms())
        group.rebalance_reason = reason
        log.debug("group %a generation %d prepares a rebalance: %s", group.group_id, group.generation, reason)
        if is_initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._delay_initial_join(group, delay_ms, remaining_ms)
            return None
        return self._complete_join_or_schedule(group)

    def _delay_initial_join(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self._timers.schedule(_join_key(group), delay_ms, lambda: self._complete_initial_join_or_delay(group, delay_ms, remaining_ms))

    def _complete_initial_join_or_delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> CoordinatorResult | None:
        if group.new_member_added and remaining_ms > 0:
            group.new_member_added = False
            next_delay_ms = min(self._config.initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial_join(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
            return None
        return self.complete_join(group)

    # Through the join phase and out of it.

    def _complete_join_or_schedule(self, group: ClassicGroup) -> CoordinatorResult | None:
        if group.has_all_members_joined:
            return self.complete_join(group)
        self._timers.schedule(_join_key(group), group.rebalance_timeout_ms, lambda: self.complete_join(group))
        return None

    def maybe_complete_join(self, group: ClassicGroup) -> CoordinatorResult | None:
        """End the join phase if all members have joined. The first join phase of an empty group always waits for its delay."""
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is not GroupState.EMPTY and group.has_all_members_joined:
            return self.complete_join(group)
        return None

    def complete_join(self, group: ClassicGroup) -> CoordinatorResult | None:
        """End the join phase with the members that have joined. Static members that have not stay until their session ends (KIP-345)."""
        self._timers.cancel(_join_key(group))
        if group.state is not GroupState.PREPARING_REBALANCE:
            return None
        for member in list(group.members.values()):
            if not member.is_awaiting_join and not member.is_static:
                log.debug("group %a drops member %a, which did not rejoin in time", group.group_id, member.member_id)
                self.remove_member(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none of them has joined. Wait until one joins or their sessions end.
            self._timers.schedule(_join_key(group), group.rebalance_timeout_ms, lambda: self.complete_join(group))
            return None
        group.new_member_added = False
        group.start_next_generation(self._clock.now_ms())
        self._log_generation(group)
        if group.is_empty:
            return CoordinatorResult([group_metadata_record(group, {})], lambda error: self._warn_not_stored(group, error))
        self._answer_joins(group)
        return None

    def _log_generation(self, group: ClassicGroup) -> None:
        """One line for each rebalance. Its cause is logged at DEBUG."""
        facts = Fields(group=group.group_id, generation=group.generation, members=len(group.members), reason=group.rebalance_reason)
        group.rebalance_reason = ""
        self._limited_log.info("group rebalanced", "group rebalanced %s", facts)

    def _answer_joins(self, group: ClassicGroup) -> None:
        """Send the JoinGroup responses. The sync phase begins for all members now, even if their responses take several turns."""
        joined = [(member, group.release_join(member)) for member in group.members.values()]
        for member, _ in joined:
            member.is_new = False
            member.is_being_answered = True
        group.pending_sync_members = dict.fromkeys(group.members)
        generation = group.generation
        self._timers.schedule(_sync_key(group), group.rebalance_timeout_ms, lambda: self._expire_sync(group, generation))
        leader_id = group.leader_id
        assert leader_id is not None, "a generation with members has a leader"
        self._responses.send(self._join_answers(group, joined, group.leader_response(leader_id)), len(joined))

    def _join_answers(
        self, group: ClassicGroup, joined: list[tuple[ClassicGroupMember, Reply | None]], leaders: JoinGroupResponse
    ) -> Iterator[Answer]:
        """The responses to all members. `leaders` is the leader's, made when the generation began. A member's session begins with its
        response, also that of a static member that has not joined and gets none."""
        for member, reply in joined:
            self._end_wait(group, member)
            if reply is not None:
                yield reply, leaders if member.member_id == leaders.member_id else _follower_response(leaders, member.member_id)

    def _end_wait(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """The member's response is sent now. The member or its group may be gone meanwhile."""
        member.is_being_answered = False
        if group.state is not GroupState.DEAD and group.members.get(member.member_id) is member:
            self.reschedule_heartbeat(group, member)

    # The sync phase.

    def sync_received(self, group: ClassicGroup, member_id: str) -> None:
        """The member has sent SyncGroup. Once all have, the sync timeout is cancelled."""
        group.pending_sync_members.pop(member_id, None)
        if not group.pending_sync_members:
            self._timers.cancel(_sync_key(group))

    def _expire_sync(self, group: ClassicGroup, generation: int) -> CoordinatorResult | None:
        """Remove the members that joined and never sent SyncGroup (KAFKA-9752), and rebalance the others."""
        if generation != group.generation or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return None
        late_members = list(group.pending_sync_members)
        if not late_members:
            return None
        for member_id in late_members:
            self.remove_member(group, member_id)
        return self.prepare(group, f"{len(late_members)} members sent no SyncGroup in time")

    def reset_assignment(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Drop this generation's assignment. Members that wait for it get `error`."""
        assert group.state is GroupState.COMPLETING_REBALANCE, "only the sync phase has an assignment to drop"
        for member in group.members.values():
            member.assignment = b""
        self.answer_syncs(group, error)

    def answer_syncs(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Answer every waiting SyncGroup. The members' sessions start again, because a timeout while they waited was ignored."""
        answered = [
            (member, reply, member.assignment) for member in group.members.values() if (reply := group.release_sync(member)) is not None
        ]
        for member, _, _ in answered:
            member.is_being_answered = True
        respond = partial(SyncGroupResponse, error_code=error)
        if error is ErrorCode.NONE:
            respond = partial(SyncGroupResponse, protocol_type=group.protocol_type, protocol_name=group.protocol_name)
        self._responses.send(self._sync_answers(group, answered, respond), len(answered))

    def _sync_answers(
        self,
        group: ClassicGroup,
        answered: list[tuple[ClassicGroupMember, Reply, bytes]],
        respond: Callable[..., SyncGroupResponse],
    ) -> Iterator[Answer]:
        for member, reply, assignment in answered:
            self._end_wait(group, member)
            yield reply, respond(assignment=assignment)

    def sync_response(self, group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
        return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)

    # Sessions.

    def reschedule_heartbeat(self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None) -> None:
        """Restart the member's session: it ends in the session timeout, or in `timeout_ms`, from now."""
        self.schedule_session(group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms)

    def schedule_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self._timers.schedule(_session_key(group, member_id), timeout_ms, lambda: self._expire_session(group, member_id))

    def cancel_timers(self, group: ClassicGroup) -> None:
        """Cancel all timers of the group and its members."""
        for key in (_join_key(group), _sync_key(group), *(_session_key(group, member_id) for member_id in group.known_member_ids)):
            self._timers.cancel(key)

    def _expire_session(self, group: ClassicGroup, member_id: str) -> CoordinatorResult | None:
        if group.state is GroupState.DEAD:
            return None
        if member_id in group.pending_join_members:
            log.debug("group %a drops pending member %a, which never joined", group.group_id, member_id)
            self.remove_member(group, member_id)
            return self._complete_join_if_last_missing(group)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return None
        log.debug("group %a drops member %a: no heartbeat within its session timeout", group.group_id, member_id)
        self.remove_member(group, member_id)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare(group, f"member {member_id!a} sent no heartbeat within its session timeout")
        return self._complete_join_if_last_missing(group)

    def _complete_join_if_last_missing(self, group: ClassicGroup) -> CoordinatorResult | None:
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            return self.complete_join(group)
        return None

    def remove_member(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member or pending member, and its session. Its waiting requests are answered, because its client may live and rejoin."""
        answers: list[Answer] = []
        member = group.members.get(member_id)
        if member is not None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            answers = group.take_answers(member, JoinGroupResponse(error_code=error), SyncGroupResponse(error_code=error))
        group.remove(member_id)
        self._timers.cancel(_session_key(group, member_id))
        send_answers(answers)

    def _warn_not_stored(self, group: ClassicGroup, error: ErrorCode) -> None:
        # Harmless: the next coordinator loads the last stored generation, and the sessions of its members soon end.
        if error is not ErrorCode.NONE:
            facts = Fields(group=group.group_id, error=error.name)
            self._limited_log.warning("empty group not stored", "that a group is empty could not be stored %s", facts)


def _follower_response(leaders: JoinGroupResponse, member_id: str) -> JoinGroupResponse:
    """The response to a member that is not the leader. `leaders` is the leader's response."""
    return JoinGroupResponse(
        generation_id=leaders.generation_id,
        protocol_type=leaders.protocol_type,
        protocol_name=leaders.protocol_name,
        leader=leaders.leader,
        member_id=member_id,
    )


def _join_key(group: ClassicGroup) -> TimerKey:
    return ("join", group.group_id)


def _session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("session", group.group_id, member_id)


def _sync_key(group: ClassicGroup) -> TimerKey:
    return ("sync", group.group_id)
