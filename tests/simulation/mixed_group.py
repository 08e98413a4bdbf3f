"""A group whose members speak the classic protocol or KIP-848's, and change it when they start anew: groups are converted both ways.

Members come, go and vanish as in tests/simulation/consumer_group.py, whose ledger notes who holds what. At the end, when nobody writes any
more, those that are left share all partitions, read them to their ends and commit that; together the group must have been given every
record, whatever protocol its members spoke.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest
from tests.simulation.clients import Client
from tests.simulation.consumer_group import HEARTBEAT_MAX_S, JOIN_EPOCH, REBALANCE_TIMEOUT_MS, ConsumerGroupMember, Ledger
from tests.simulation.consumer_protocol import COOPERATIVE, RANGE, SUBSCRIPTION_VERSIONS, assign, assigned_keys, encode_subscription
from tests.simulation.history import History, Key
from tests.support.history_checker import Position

JOIN_VERSION, SYNC_VERSION, CLASSIC_HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 4
SESSION_TIMEOUTS_MS = (600, 1_500)
MEMBERS_MAX = 4
CLASSIC_SHARE = 0.5  # of the processes
STATIC_SHARE = 0.3  # of the members

ASSIGNORS: tuple[tuple[tuple[str, ...], ...], ...] = (
    ((RANGE,),),
    ((COOPERATIVE,),),
    ((RANGE,), (COOPERATIVE, RANGE)),  # on its way to the cooperative one, by two rolling bounces (KIP-429)
)
"""What the classic members of one group may be configured with: one of the tuples each."""

LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND})
"""Whatever the member had is another's by now. The last: an empty KIP-848 group ends with the JoinGroup of a member that it has fenced."""
GONE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION})  # the group has become classic without the member


class MixedGroup:
    """The group of one run. `make` is the world's."""

    def __init__(self, draw: random.Random, history: History, keys: list[Key], make: Callable[..., Any]) -> None:
        self._history = history
        self._keys = keys
        assignors = draw.choice(ASSIGNORS)
        ledger = Ledger("m", history, may_epochs_restart=True)
        self.members: list[Client] = []
        self._mixed: list[MixedGroupMember] = []
        for index in range(draw.randint(2, MEMBERS_MAX)):
            instance_id = f"mixed{index}" if draw.random() < STATIC_SHARE else None
            member = make(
                MixedGroupMember, f"mixed-member{index}", group=self, assignors=assignors, ledger=ledger, keys=keys,
                commit_share=draw.choice((0.3, 1.0)), instance_id=instance_id, max_bytes=2_000,
            )  # fmt: skip
            self.members.append(member)
            self._mixed.append(member)

    def read_to_the_end(self) -> None:
        """Nobody writes any more, and nobody has to go: members end when the group has read and committed everything."""
        for member in self._mixed:
            member.read_to_the_end()

    def maybe_end(self) -> None:
        """A member has read all that is its own: if each partition is one member's, that is everything."""
        owned = sorted(key for member in self._mixed for key in member.read_keys)
        if owned == sorted(self._keys):
            for member in self._mixed:
                member.is_stopping = True

    def find_unconsumed(self, final: dict[Key, list[Position]]) -> dict[str, list[Any]]:
        """The records that no member was ever given. Where records may be lost, others come in their places: commits say nothing there."""
        names = {member.name for member in self.members}
        given: set[tuple[Key, Position]] = set()
        for operation in self._history.operations:
            if operation["p"] in names:
                given.update((key, each) for _, polled in operation["m"] for key, positions in polled.items() for each in positions)
        missing = [(key, each) for key in final if self.is_lossless(key) for each in final[key] if (key, each) not in given]
        return {"not-consumed": missing} if missing else {}

    def is_lossless(self, key: Key) -> bool:
        """Whether all that was read is still there, and everything can be read."""
        return self._history.is_durable(key) or not self._history.power_cuts_s


class MixedGroupMember(ConsumerGroupMember):
    """See the module's docstring. In a classic group its epoch is the generation."""

    def __init__(self, *arguments: Any, group: MixedGroup, assignors: tuple[tuple[str, ...], ...], **more: Any) -> None:
        self._group = group
        self._assignors = assignors
        self._is_at_the_end = False
        self._ends: dict[Key, int] = {}
        self._committed: dict[Key, int] = {}
        super().__init__(*arguments, **more)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._is_classic = self.draw.random() < CLASSIC_SHARE
        self._protocol_names = self.draw.choice(self._assignors)
        self._subscription_version = self.draw.choice(SUBSCRIPTION_VERSIONS)
        self._session_timeout_ms = self.draw.choice(SESSION_TIMEOUTS_MS)
        self._joined_topics: list[str] | None = None  # None while the member has to join
        if self._is_classic:
            self._member_id = ""

    @property
    def _is_eager(self) -> bool:
        """As Java has it: one assignor that cannot cooperate is enough."""
        return RANGE in self._protocol_names

    # -- the end ---------------------------------------------------------------------------------------------------

    @property
    def read_keys(self) -> set[Key]:
        """What it has, if it has read and committed all of that."""
        is_done = all(key in self.positions and self._is_at_its_end(key) for key in self._owned)
        is_committed = all(self._committed.get(key) == position for key, position in self.positions.items())
        return set(self._owned) if is_done and is_committed else set()

    def _is_at_its_end(self, key: Key) -> bool:
        """Nobody gets past a hole that a power cut has left in a log (storage/recovery.py, as in Kafka)."""
        return self._ends.get(key) == self.positions[key] or not self._group.is_lossless(key)

    def read_to_the_end(self) -> None:
        self._is_at_the_end = True
        self._forget_ends()
        self._read_topics(sorted({topic for topic, _ in self._keys}))

    async def _maybe_change(self) -> None:
        if not self._is_at_the_end:
            await super()._maybe_change()
            return
        uncommitted = {key: position for key, position in self.positions.items() if self._committed.get(key) != position}
        if uncommitted:
            await self._commit(uncommitted)
        self._group.maybe_end()

    def _read(self, key: Key, data: bytes, high_watermark: int, polled: dict[Key, list[Position]]) -> None:
        self._ends[key] = high_watermark
        super()._read(key, data, high_watermark, polled)

    async def fetch(self) -> dict[Key, list[Position]]:
        was_at_the_end = self._is_at_the_end
        polled = await super().fetch()
        if self._is_at_the_end and not was_at_the_end:
            self._forget_ends()
        return polled

    def _forget_ends(self) -> None:
        """Those that are known may be older than the last record."""
        self._ends.clear()
        self.reset_sessions()

    def _note_committed(self, key: Key, offset: int) -> None:
        self._committed[key] = offset

    def _give_up(self, keys: set[Key]) -> None:
        super()._give_up(keys)
        for key in keys:
            self._committed.pop(key, None)

    # -- membership ------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        if not self._is_classic:
            await super()._heartbeat()
        elif self._joined_topics != self._topics:
            await self._join()
        else:
            await self._classic_heartbeat()

    async def _join(self) -> None:
        self._joined_topics = None
        if self._is_eager:
            await self._own(set())
        topics = self._topics
        metadata = encode_subscription(self._subscription_version, topics, self._owned, self._epoch if self._owned else -1)
        request = JoinGroupRequest(
            group_id=self._ledger.group, session_timeout_ms=self._session_timeout_ms, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id, group_instance_id=self._instance_id, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self._protocol_names],
        )  # fmt: skip
        joined = await self.ask(request, JOIN_VERSION, self._coordinator)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
        elif joined.error_code:
            self._refused("JoinGroup", joined.error_code)
        else:
            self._member_id, self._epoch = joined.member_id, joined.generation_id
            self._ledger.joined_again(self._member_id, self._owned)
            await self._sync(joined, topics)

    async def _sync(self, joined: JoinGroupResponse, topics: list[str]) -> None:
        is_leader = joined.leader == self._member_id and not joined.skip_assignment
        assert joined.protocol_name is not None, "a member that has joined is told the protocol"
        request = SyncGroupRequest(
            group_id=self._ledger.group, generation_id=self._epoch, member_id=self._member_id, group_instance_id=self._instance_id,
            protocol_type="consumer", protocol_name=joined.protocol_name,
            assignments=assign(joined.protocol_name, joined.members, self._keys) if is_leader else [],
        )  # fmt: skip
        self._asked_s = self.now_s
        synced = await self.ask(request, SYNC_VERSION, self._coordinator)
        self._heartbeat_due_s = self.now_s + self.draw.uniform(0.02, HEARTBEAT_MAX_S)
        if synced.error_code:
            self._refused("SyncGroup", synced.error_code)
            return
        keys = set(assigned_keys(bytes(synced.assignment)))
        is_whole = self._owned <= keys
        self._joined_topics = topics
        self._ledger.given(self._member_id, self._owned & keys, self._epoch, asked_s=self._asked_s, now_s=self.now_s)
        await self._own(keys)
        if not is_whole:  # others may have what it has given up once it joins without
            self._joined_topics = None

    async def _classic_heartbeat(self) -> None:
        claimed, sent_s = set(self._owned), self.now_s
        request = HeartbeatRequest(
            group_id=self._ledger.group, generation_id=self._epoch, member_id=self._member_id, group_instance_id=self._instance_id
        )
        response = await self.ask(request, CLASSIC_HEARTBEAT_VERSION, self._coordinator)
        self._heartbeat_due_s = self.now_s + self.draw.uniform(0.02, HEARTBEAT_MAX_S)
        if response.error_code:
            self._refused("Heartbeat", response.error_code)
        elif not self.is_of_cluster:
            self._ledger.accepted("member", self._member_id, claimed, sent_s)

    def _farewell(self) -> tuple[Any, int]:
        if not self._is_classic:
            return super()._farewell()
        identity = MemberIdentity(member_id=self._member_id, group_instance_id=self._instance_id)
        return LeaveGroupRequest(group_id=self._ledger.group, members=[identity]), LEAVE_VERSION

    def _refused(self, what: str, error: int) -> None:
        if not self._is_classic:
            is_gone = error in GONE and self._epoch > JOIN_EPOCH
            super()._refused(what, ErrorCode.UNKNOWN_MEMBER_ID if is_gone else error)
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._joined_topics = None
        elif error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and (len(self._protocol_names) == 1 or what == "SyncGroup"):
            # What is stored of the others is the assignor that they chose, of two: until they have joined again after a failover.
            # And a KIP-848 group has told each member the first assignor of its own: the group became classic before the member's sync.
            self.note(f"{what}: {ErrorCode(error).name}")
            self._joined_topics = None
        elif error in LOST:
            self.note(f"{what}: {ErrorCode(error).name}")
            self._give_up(set(self._owned))
            self._epoch, self._joined_topics = JOIN_EPOCH, None
            if error != ErrorCode.ILLEGAL_GENERATION:
                self._member_id = ""
        else:
            super()._refused(what, error)

    def _as_reader(self) -> tuple[str | None, int]:
        return (None, -1) if self._is_classic else super()._as_reader()
