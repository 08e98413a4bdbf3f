"""Descriptions of groups for clients: copies, which do not change with the group."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from broker.groups.classic.classic_group import ClassicGroup, GroupState
from broker.groups.classic.classic_group_member import ClassicGroupMember

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
"""The types of groups, as responses name them."""

STATES = frozenset({*(state.value.lower() for state in GroupState), "assigning", "reconciling"})
"""The states of groups of all types, in lower case, because ListGroups compares them without case."""


class GroupListing(NamedTuple):
    """A group in a list. `state` and `group_type` are the names in responses."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class MemberDescription(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group with its members. Metadata and protocol are empty unless the group is stable: before that no protocol is chosen."""

    group_id: str
    protocol_type: str
    protocol: str
    state: GroupState
    members: list[MemberDescription]


def listing(group: ClassicGroup) -> GroupListing:
    return GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC_TYPE)


def description(group: ClassicGroup) -> Generator[None, None, GroupDescription]:
    """State and members as of now. Yields after each member."""
    is_stable = group.state is GroupState.STABLE
    protocol = (group.protocol_name or "") if is_stable else ""
    described = GroupDescription(group.group_id, group.protocol_type or "", protocol, group.state, [])
    for member in list(group.members.values()):
        described.members.append(_member(member, protocol, is_stable=is_stable))
        yield
    return described


def _member(member: ClassicGroupMember, protocol: str, *, is_stable: bool) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.protocols.get(protocol, b"") if is_stable else b"",
        member.assignment,
    )
