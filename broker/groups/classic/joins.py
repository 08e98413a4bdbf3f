"""Joins: JoinGroup of a new member, of a known member, and of a static member that returns (the classicGroupJoin* methods of Kafka's
GroupMetadataManager).

GroupMetadataManager, which owns the groups and makes new ones, calls it. It changes the soft state of the group and returns the records to
store as a CoordinatorResult.
"""

from __future__ import annotations

import random

from broker.coordination.records import CoordinatorResult
from broker.coordination.timers import CoordinatorTimers
from broker.groups.classic.classic_group import ClassicGroup, GroupState
from broker.groups.classic.classic_group_member import (
    ClassicGroupMember,
    Reply,
    is_too_large,
    protocols_size_bytes,
    rebalance_timeout_ms,
    requires_member_id,
)
from broker.groups.classic.rebalance import Rebalance
from broker.groups.client_info import ClientInfo
from broker.groups.group_config import MAX_MEMBERSHIP_SIZE_BYTES, MAX_PENDING_MEMBERS, NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from broker.groups.records import group_metadata_record
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.uuids import random_uuid_text

MEMBER_ID_PREFIX_MAX = 1000
"""Characters of a client or instance id that go into a member id. Kafka takes all of them; the id could then be too long for any
response."""

JOIN_VERSION_SKIPS_ASSIGNMENT = 9
"""From this version of JoinGroup on, the response can tell a returning static leader not to compute an assignment (KIP-814)."""


class Joins:
    """See the module's docstring. Owned by GroupMetadataManager."""

    def __init__(self, timers: CoordinatorTimers, random_source: random.Random, config: GroupConfig, rebalance: Rebalance) -> None:
        self._timers = timers
        self._random = random_source
        self._config = config
        self._rebalance = rebalance

    def join(self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup, reply: Reply) -> CoordinatorResult | None:
        """Add a member to `group`. `reply` gets the response now, or when the join phase ends."""
        if not self._accepts(group, request):
            self._rebalance.remove_member(group, request.member_id)
            reply.complete(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
            # The other members may have waited for it.
            return self._rebalance.maybe_complete_join(group)
        if not group.supports_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
            reply.complete(join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return None
        if request.member_id:
            return self._join_existing_member(client, request, group, reply)
        return self._join_new_member(client, request, group, reply)

    def _accepts(self, group: ClassicGroup, request: JoinGroupRequest) -> bool:
        """Whether the group has room (KIP-389), or the member is in it already.

        In the join phase only waiting members count. If the limit was lowered below the group's size, the members that rejoin last are
        refused.
        """
        if is_too_large(request) or group.metadata_size_bytes + protocols_size_bytes(request) > MAX_MEMBERSHIP_SIZE_BYTES:
            return False
        if not request.member_id and len(group.pending_join_members) >= MAX_PENDING_MEMBERS:
            return False
        if group.is_empty:
            return True
        member = group.members.get(request.member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.is_awaiting_join) or group.awaiting_join_count < self._config.max_size
        return member is not None or len(group.members) < self._config.max_size

    def _join_new_member(
        self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup, reply: Reply
    ) -> CoordinatorResult | None:
        instance_id = request.group_instance_id
        member_id = self._generate_member_id(client.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            old_member_id = group.static_members.get(instance_id)
            if old_member_id is not None:
                return self._rejoin_static_member(client, request, group, old_member_id, member_id, reply)
        elif requires_member_id(request, client.api_version):
            group.pending_join_members[member_id] = None
            self._rebalance.schedule_session(group, member_id, request.session_timeout_ms)
            reply.complete(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return None
        return self._add_member(client, request, group, member_id, reply)

    def _join_existing_member(
        self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup, reply: Reply
    ) -> CoordinatorResult | None:
        member_id = request.member_id
        if member_id in group.pending_join_members and request.group_instance_id is None:
            return self._add_member(client, request, group, member_id, reply)
        try:
            group.validate_member(member_id, request.group_instance_id)
        except KafkaError as e:
            reply.complete(join_error(e.code, member_id))
            return None
        member = group.members[member_id]
        protocols = _protocols(request)
        is_unchanged = member.matches(protocols)
        # Case A: a rebalance waits for this member. Case B: its protocols changed. Case C: the leader asks for a rebalance by joining
        # again, for a change that only it sees, such as new partitions.
        if (
            group.state is GroupState.PREPARING_REBALANCE
            or not is_unchanged
            or (group.state is GroupState.STABLE and group.is_leader(member_id))
        ):
            group.update_member(member, protocols, rebalance_timeout_ms(request), request.session_timeout_ms)
            group.await_join(member, reply)
            return self._rebalance.maybe_prepare_or_complete_join(group, f"member {member_id!a} joins again: {reason_text(request.reason)}")
        # Case D: nothing changed, so the member has missed the response. It gets this generation again and can send SyncGroup.
        leads_now = group.state is GroupState.COMPLETING_REBALANCE and group.is_leader(member_id)
        reply.complete(group.leader_response(member_id) if leads_now else group.join_response(member_id))
        return None

    def _add_member(
        self, client: ClientInfo, request: JoinGroupRequest, group: ClassicGroup, member_id: str, reply: Reply
    ) -> CoordinatorResult | None:
        member = ClassicGroupMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            # As Java's InetAddress.toString(), which tools show for other brokers.
            client_host="/" + client.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        group.await_join(member, reply)
        # The member cannot send heartbeats before the response, so a join timeout instead of its session removes a client that is gone.
        self._rebalance.reschedule_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalance.maybe_prepare_or_complete_join(group, f"new member {member_id!a}: {reason_text(request.reason)}")

    def _rejoin_static_member(
        self,
        client: ClientInfo,
        request: JoinGroupRequest,
        group: ClassicGroup,
        old_member_id: str,
        new_member_id: str,
        reply: Reply,
    ) -> CoordinatorResult | None:
        """A static member returned without its member id. It gets a new one and keeps its place (KIP-345)."""
        old_leader_id = group.leader_id
        old_member = group.members[old_member_id]
        assert request.group_instance_id is not None, "only static members rejoin without a member id"
        member = group.replace_static_member(request.group_instance_id, old_member_id, new_member_id)
        self._timers.cancel(("session", group.group_id, old_member_id))
        group.update_member(member, _protocols(request), rebalance_timeout_ms(request), request.session_timeout_ms)
        group.await_join(member, reply)
        self._rebalance.reschedule_heartbeat(group, member)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            # The chosen protocol stays, so no rebalance is needed. Only the new member id must be stored.
            assignments = {member.member_id: member.assignment for member in group.members.values()}
            return CoordinatorResult(
                [group_metadata_record(group, assignments)],
                lambda error: self._static_member_stored(client, group, member, old_member, old_leader_id, error),
            )
        # In the sync phase the leader may be computing with the old id already, so that generation cannot be used.
        return self._rebalance.maybe_prepare_or_complete_join(group, f"static member {member.group_instance_id!a} is back")

    def _static_member_stored(
        self,
        client: ClientInfo,
        group: ClassicGroup,
        member: ClassicGroupMember,
        old_member: ClassicGroupMember,
        old_leader_id: str | None,
        error: ErrorCode,
    ) -> None:
        if group.members.get(member.member_id) is not member:
            return
        if error is not ErrorCode.NONE:
            group.complete_join(member, join_error(error))
            assert member.group_instance_id is not None, "only static members are replaced"
            group.update_member(member, old_member.protocols, old_member.rebalance_timeout_ms, old_member.session_timeout_ms)
            reverted = group.replace_static_member(member.group_instance_id, member.member_id, old_member.member_id)
            self._timers.cancel(("session", group.group_id, member.member_id))
            self._rebalance.reschedule_heartbeat(group, reverted)
            return
        if group.state is not GroupState.STABLE:
            return  # A rebalance began meanwhile, and the member waits in its join phase.
        skips_assignment = client.api_version >= JOIN_VERSION_SKIPS_ASSIGNMENT and group.is_leader(member.member_id)
        response = group.leader_response(member.member_id) if skips_assignment else group.join_response(member.member_id)
        response.skip_assignment = skips_assignment
        if client.api_version < JOIN_VERSION_SKIPS_ASSIGNMENT:
            # An older client that is named the leader would compute an assignment, so its response names the old leader.
            response.leader = old_leader_id or ""
        group.complete_join(member, response)

    def _generate_member_id(self, prefix: str) -> str:
        return f"{prefix[:MEMBER_ID_PREFIX_MAX]}-{random_uuid_text(self._random.getrandbits)}"


def join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)


def reason_text(reason: str | None) -> str:
    """A member's reason, for the log. Older versions of the requests have none (KIP-800)."""
    return ascii(reason) if reason else "reason not provided"


def _protocols(request: JoinGroupRequest) -> dict[str, bytes]:
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return protocols
