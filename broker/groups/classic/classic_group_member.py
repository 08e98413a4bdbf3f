"""One member of a classic group: its identity, the protocols that it offers, and its waiting requests (Kafka's ClassicGroupMember).

Its ClassicGroup owns it and counts waiting members and offered protocols, so change those through the group.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from broker.groups.group_config import MAX_MEMBER_PROTOCOLS, MAX_MEMBER_SIZE_BYTES
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.stored.group_records import MemberMetadata

JOIN_VERSION_REQUIRES_MEMBER_ID = 4
"""From this version of JoinGroup on, a dynamic member's first request only fetches its member id (KIP-394)."""


class Reply(Protocol):
    """The receiver of one response: a broker.loop.deferred.Deferred, or a double in a test."""

    @property
    def is_done(self) -> bool: ...

    def complete(self, value: Any) -> None: ...


class ClassicGroupMember:
    """A member, dynamic or static (with a group.instance.id).

    `protocols` maps each offered protocol's name to the member's metadata for it, most preferred first. `is_new` is true from the
    member's first JoinGroup until the response: until then the member has no member id and cannot send heartbeats. `is_being_answered`
    is true while its response waits for its turn in RebalanceResponses.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_being_answered",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Reply | None = None
        self.awaiting_sync: Reply | None = None
        self.is_new = False
        self.is_being_answered = False

    @classmethod
    def from_record(cls, stored: MemberMetadata, protocol_type: str, protocol_name: str | None) -> ClassicGroupMember:
        """The member of a stored record. The log keeps only the chosen protocol of those that the member offered."""
        return cls(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
            session_timeout_ms=stored.session_timeout,
            protocol_type=protocol_type,
            protocols={protocol_name or "": stored.subscription},
            assignment=stored.assignment,
        )

    def to_record(self, protocol_name: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.awaiting_join is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.awaiting_sync is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the session timeout does not apply now, because a member that waits for a response cannot send heartbeats.

        It applies to a new member: its client may have reconnected as another member, and the timeout removes the old one.
        """
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync or self.is_being_answered)

    @property
    def metadata_size_bytes(self) -> int:
        """Bytes of the names and metadata of the protocols that it offers."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols.items())

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for the chosen protocol. The group chooses only protocols that all members offer."""
        return self.protocols[protocol_name or ""]

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Whether these protocols are the same as before, in the same order of preference."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Collection[str]) -> str:
        return next(name for name in self.protocols if name in candidates)

    def with_member_id(self, member_id: str) -> ClassicGroupMember:
        """The same static member with a new id and no waiting requests."""
        return ClassicGroupMember(
            member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocol_type,
            self.protocols,
            self.assignment,
        )


# Questions about a JoinGroup.


def requires_member_id(request: JoinGroupRequest, api_version: int) -> bool:
    """Whether the response is MEMBER_ID_REQUIRED, with the id that the member is to join with."""
    return not request.member_id and request.group_instance_id is None and api_version >= JOIN_VERSION_REQUIRES_MEMBER_ID


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """The request's rebalance timeout. In version 0 the session timeout is both (KIP-62)."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def protocols_size_bytes(request: JoinGroupRequest) -> int:
    """Bytes of the protocols' names and metadata."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)


def is_too_large(request: JoinGroupRequest) -> bool:
    """Whether the request offers more than one member may."""
    return len(request.protocols) > MAX_MEMBER_PROTOCOLS or protocols_size_bytes(request) > MAX_MEMBER_SIZE_BYTES
