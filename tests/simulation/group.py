"""A member of a classic consumer group: join, sync, heartbeat, fetch and commit, as the Java client does it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.sync_group import SyncGroupRequest
from tests.simulation.clients import Address
from tests.simulation.connection import LostError
from tests.simulation.consumer_protocol import RANGE, assign, assigned_keys, encode_subscription
from tests.simulation.consumers import Fetcher
from tests.simulation.history import Commit, Key

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 4
COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_VERSION = 8, 7, 3
SESSION_TIMEOUT_MS = 1_500
POLLS_PER_HEARTBEAT = 3

REJOINED = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class RejoinError(Exception):
    """The member has to join again."""


class GroupMember(Fetcher):
    """One consumer of `group`, which shares `keys` among its members; each poll is committed with the share `commit_share`."""

    def __init__(
        self, *arguments: Any, group: str, keys: Iterable[Key], commit_share: float, subscription_version: int, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._group = group
        self._keys = list(keys)
        self._commit_share = commit_share
        self._subscription = encode_subscription(subscription_version, {topic for topic, _ in self._keys}, owned=(), generation=-1)
        self._member_id = ""
        self._generation = -1
        self._polls_count = 0
        self._coordinator: Address | None = None

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._find_coordinator()
                await self._join()
                while not self.is_stopping:
                    await self._poll()
                if self.draw.random() < 0.5:
                    await self._leave()
            except RejoinError:
                self.positions = {}
            except LostError:
                await self.back_off()

    # -- becoming a member -----------------------------------------------------------------------------------------

    async def _find_coordinator(self) -> None:
        while not self.is_stopping:
            response = await self.ask(FindCoordinatorRequest(key=self._group, key_type=0), FIND_VERSION)
            if response.error_code == 0:
                self._coordinator = (response.host, response.port)
                return
            self._check("FindCoordinator", response.error_code)
            await self.back_off()

    async def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(name=RANGE, metadata=self._subscription)
        request = JoinGroupRequest(
            group_id=self._group, session_timeout_ms=SESSION_TIMEOUT_MS, rebalance_timeout_ms=1_500, member_id=self._member_id,
            protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        joined = await self.ask(request, JOIN_VERSION, self._coordinator)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            raise RejoinError
        self._check("JoinGroup", joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = assign(RANGE, joined.members, self._keys) if joined.leader == self._member_id else []
        sync = SyncGroupRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id, protocol_type="consumer",
            protocol_name=RANGE, assignments=assignments,
        )  # fmt: skip
        synced = await self.ask(sync, SYNC_VERSION, self._coordinator)
        self._check("SyncGroup", synced.error_code)
        keys = assigned_keys(bytes(synced.assignment))
        self.history.generations_s.append((self.now_s, self._generation))
        self.history.saw_assignment(self._member_id, self._generation, keys)
        self.note(f"generation {self._generation}: {keys}")
        await self._fetch_committed(keys)

    async def _fetch_committed(self, keys: list[Key]) -> None:
        invoked_s = self.now_s
        topics: dict[str, list[int]] = {}
        for topic, partition in keys:
            topics.setdefault(topic, []).append(partition)
        asked = [OffsetFetchRequestTopic(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
        self.positions = {}
        self.reset_sessions()
        if not asked:
            return
        # As Java's consumers ask. An unstable read after a failover is answered from below the high watermark, which may be behind.
        request = OffsetFetchRequest(group_id=self._group, topics=asked, require_stable=self.is_of_cluster)
        response = await self.ask(request, OFFSET_FETCH_VERSION, self._coordinator)
        self._check("OffsetFetch", response.error_code)
        for each in response.topics:
            for partition in each.partitions:
                self._check("OffsetFetch", partition.error_code)
                key = (each.name, partition.partition_index)
                self.history.saw_committed(key, partition.committed_offset, invoked_s)
                self.positions[key] = max(partition.committed_offset, 0)
                self.note_leader_epoch(key, partition.committed_leader_epoch)

    # -- as a member -----------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        invoked_s = self.now_s
        if self.positions:
            polled = await self.fetch()
            self.record(polled, invoked_s, rebalanced=self._keys)  # what a rebalance moves is checked by the commits
            if polled and self.draw.random() < self._commit_share:
                await self._commit(dict(self.positions))
        self._polls_count += 1
        if self._polls_count % POLLS_PER_HEARTBEAT == 0 or not self.positions:
            request = HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
            self._check("Heartbeat", (await self.ask(request, HEARTBEAT_VERSION, self._coordinator)).error_code)
        await asyncio.sleep(self.draw.uniform(0.0, 0.1))

    async def _commit(self, positions: dict[Key, int]) -> None:
        commits = [Commit(key, offset, self._generation, self.now_s) for key, offset in positions.items()]
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for key, offset in positions.items():
            epoch = self._leader_epochs.get(key, -1)
            each = OffsetCommitRequestPartition(partition_index=key[1], committed_offset=offset, committed_leader_epoch=epoch)
            topics.setdefault(key[0], []).append(each)
        request = OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=self._generation, member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )  # fmt: skip
        self.history.commits += commits
        response = await self.ask(request, COMMIT_VERSION, self._coordinator)
        errors = {(topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions}
        for commit in commits:
            if errors[commit.key] == 0:
                self.history.commit_acknowledged(commit, self.now_s)
        self.operations_count += 1
        self.note("commits " + ", ".join(f"{c.key[0]}-{c.key[1]}@{c.offset} {errors[c.key]}" for c in commits))
        for error in errors.values():
            self._check("OffsetCommit", error)

    async def _leave(self) -> None:
        request = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._member_id)])
        await self.ask(request, LEAVE_VERSION, self._coordinator)

    def _check(self, what: str, error: int) -> None:
        """Raises RejoinError when there is nothing to go on with."""
        if error == 0:
            return
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif error not in REJOINED and error not in self.retried:
            self.unexpected(what, error)
        raise RejoinError
