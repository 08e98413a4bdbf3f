"""A member of a KIP-848 group: heartbeats, fetches and commits, as the Java client does them, and what the members of a group may hold.

A member owns what it was told, from the answer on, until it gives it up before its next heartbeat says so. It lives through lost answers
with the epoch that it has; it comes and goes, and sometimes vanishes without a farewell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.simulation.clients import RETRIED, Address
from tests.simulation.connection import LostError
from tests.simulation.consumers import Fetcher
from tests.simulation.history import Commit, History, Key

HEARTBEAT_VERSION, COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_VERSION, METADATA_VERSION = 1, 9, 9, 3, 12
JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
REBALANCE_TIMEOUT_MS = 1_500
HEARTBEAT_MAX_S = 0.15
GO_SHARE = 0.01  # of the steps: the member goes and comes back
NARROW_SHARE = 0.02  # of the steps: it reads other topics from now on

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "600",
}
"""Of a broker, so that a member that vanished is missed within a run."""

REJOINED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
AS_ANOTHER = frozenset({ErrorCode.FENCED_INSTANCE_ID})


@dataclass(slots=True)
class Ledger:
    """Who of a group's members holds which partition, as they are told.

    A coordinator gives a partition to the next member when the one before has given it up, or is fenced. So a member that still holds what
    another was given after it is fenced: no heartbeat of it is accepted any more, nor a commit of that partition. (A heartbeat that changes
    nothing may be answered by a broker of a cluster that does not know yet that it coordinates no more.)"""

    group: str
    history: History
    holders: dict[Key, str] = field(default_factory=dict)
    may_epochs_restart: bool = False
    """An empty group that changes its protocol begins anew: then epochs do not tell which of two answers is the newer one."""
    given_epochs: dict[Key, int] = field(default_factory=dict)
    given_s: dict[Key, float] = field(default_factory=dict)
    superseded_s: dict[tuple[str, Key], float] = field(default_factory=dict)

    @property
    def may_be_forgotten(self) -> bool:
        """Whether a power cut may have taken what the coordinator had written, and with it the whole group."""
        return bool(self.history.power_cuts_s) and not self.history.are_commits_durable

    def given(self, member: str, keys: Iterable[Key], epoch: int, *, asked_s: float, now_s: float) -> None:
        """By an answer with that member epoch. One that a cut link held back may come after the next member was told of its own."""
        for key in keys:
            holder = self.holders.get(key, member)
            if holder != member and (asked_s <= self.given_s[key] if self.may_epochs_restart else epoch < self.given_epochs[key]):
                if not self.may_epochs_restart:
                    self.superseded_s[member, key] = now_s
                continue
            if holder != member:
                self.superseded_s[holder, key] = now_s
                if epoch == self.given_epochs[key] and not self.may_be_forgotten and not self.may_epochs_restart:
                    self.history.find("double-owner", (self.group, key, epoch, holder, member))
            self.holders[key] = member
            self.given_epochs[key] = epoch
            self.given_s[key] = now_s

    def given_up(self, member: str, keys: Iterable[Key]) -> None:
        for key in keys:
            self.superseded_s.pop((member, key), None)
            if self.holders.get(key) == member:
                del self.holders[key]

    def joined_again(self, member: str, keys: Iterable[Key]) -> None:
        """A classic member of a consumer group has joined with `keys`: whether they are its own is known once it is synchronized.

        One that was fenced and did not hear of it joins under the id that it had. The coordinator keeps no ids that it has only handed out,
        so it takes the member for a new one without partitions, as Kafka does, and may give `keys` to others at once; what the member
        commits of them until it gives them up is of its new epoch."""
        self.given_up(member, keys)

    def accepted(self, what: str, member: str, keys: Iterable[Key], sent_s: float) -> None:
        """A request that the member sent holding `keys` was answered without an error."""
        for key in keys:
            if self.superseded_s.get((member, key), sent_s) < sent_s and not self.may_be_forgotten:
                self.history.find(f"zombie-{what}", (self.group, key, member, self.holders.get(key), sent_s))

    def place(self, key: Key) -> Key:
        """Under which the history keeps this group's commits of a partition."""
        return f"{self.group}/{key[0]}", key[1]


class ConsumerGroupMember(Fetcher):
    """See the module's docstring. `keys` are all partitions of the topics that the group reads."""

    def __init__(
        self, *arguments: Any, ledger: Ledger, keys: Iterable[Key], commit_share: float, instance_id: str | None, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._ledger = ledger
        self._keys = list(keys)
        self._commit_share = commit_share
        self._instance_id = instance_id
        self._coordinator: Address | None = None
        self._topic_ids: dict[str, bytes] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        """As a new process does."""
        self._member_id = f"{random.Random(self.draw.random()).getrandbits(64):016x}-{self.name}"
        self._epoch = JOIN_EPOCH
        self._owned: set[Key] = set()
        self._told: set[Key] | None = None  # what the coordinator knows that it owns; None if that is in doubt
        self._topics = sorted({topic for topic, _ in self._keys})
        self._heartbeat_due_s = 0.0
        self._asked_s = 0.0  # when the request was sent whose answer tells what it is to own
        self.positions = {}

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._find_coordinator()
                while not self.is_stopping and self._coordinator is not None:
                    await self._step()
            except LostError:
                self._told = None
                await self.back_off()
        try:
            await self._go()
        except LostError:
            pass

    async def _find_coordinator(self) -> None:
        while len(self._topic_ids) < len({topic for topic, _ in self._keys}):
            response = await self.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in self._topics]), METADATA_VERSION
            )
            self._topic_ids = {topic.name: bytes(topic.topic_id) for topic in response.topics if not topic.error_code}
            if self.is_stopping:
                return
            if any(topic.error_code not in (ErrorCode.NONE, *RETRIED) for topic in response.topics):
                await self.back_off()  # who is refused would ask again and again
        found = await self.ask(FindCoordinatorRequest(key=self._ledger.group, key_type=0), FIND_VERSION)
        if found.error_code == 0:
            self._coordinator = (found.host, found.port)
        else:
            self._note_error("FindCoordinator", found.error_code)
            await self.back_off()

    async def _step(self) -> None:
        invoked_s = self.now_s
        if invoked_s >= self._heartbeat_due_s:
            await self._heartbeat()
        if self._epoch > JOIN_EPOCH and self._owned - self.positions.keys():
            await self._fetch_committed(self._owned - self.positions.keys())
        if self.positions:
            polled = await self.fetch()
            self.record(polled, invoked_s, rebalanced=self._keys)
            if polled and self.draw.random() < self._commit_share:
                await self._commit(dict(self.positions))
        await self._maybe_change()
        await asyncio.sleep(self.draw.uniform(0.0, 0.1))

    async def _maybe_change(self) -> None:
        if self.draw.random() < GO_SHARE:
            await self._go()
        elif self.draw.random() < NARROW_SHARE:
            topics = sorted({topic for topic, _ in self._keys})
            self._read_topics(sorted(self.draw.sample(topics, self.draw.randint(1, len(topics)))))

    def _read_topics(self, topics: list[str]) -> None:
        """The coordinator is told with the next heartbeat."""
        self._topics = topics
        self._told = None

    # -- membership ------------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        request = self._request(self._epoch)
        if self._epoch == JOIN_EPOCH or self._told is None:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self._topics
        claimed, sent_s = set(self._owned), self.now_s
        if self._epoch == JOIN_EPOCH or claimed != self._told:
            request.topic_partitions = self._by_topic(claimed)
        self._asked_s = sent_s
        response = await self.ask(request, HEARTBEAT_VERSION, self._coordinator)
        self._heartbeat_due_s = self.now_s + self.draw.uniform(0.02, HEARTBEAT_MAX_S)
        if response.error_code:
            self._refused("Heartbeat", response.error_code)
            return
        if not self.is_of_cluster:
            self._ledger.accepted("member", self._member_id, claimed, sent_s)
        self._epoch, self._told = response.member_epoch, claimed
        if response.assignment is not None:
            names = {topic_id: name for name, topic_id in self._topic_ids.items()}
            await self._own(
                {(names[bytes(topic.topic_id)], each) for topic in response.assignment.topic_partitions for each in topic.partitions}
            )

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._ledger.group, member_id=self._member_id, member_epoch=epoch, instance_id=self._instance_id
        )

    def _by_topic(self, keys: Iterable[Key]) -> list[HeartbeatTopicPartitions]:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(keys):
            topics.setdefault(topic, []).append(partition)
        return [HeartbeatTopicPartitions(topic_id=self._topic_ids[topic], partitions=numbers) for topic, numbers in topics.items()]

    async def _own(self, keys: set[Key]) -> None:
        """What it is to own from now on. Of what it gives up, what it has read may be committed before."""
        revoked, added = self._owned - keys, keys - self._owned
        if revoked or added:
            self.note(f"epoch {self._epoch}: owns {sorted(keys)}")
            self._heartbeat_due_s = self.now_s
        self._ledger.given(self._member_id, added, self._epoch, asked_s=self._asked_s, now_s=self.now_s)
        self._owned |= added
        read = {key: self.positions[key] for key in sorted(revoked) if key in self.positions}
        try:
            if read and self.draw.random() < self._commit_share:
                await self._commit(read)
        finally:
            self._give_up(revoked & self._owned)

    def _give_up(self, keys: set[Key]) -> None:
        self._ledger.given_up(self._member_id, keys)
        self._owned -= keys
        self.positions = {key: position for key, position in self.positions.items() if key in self._owned}
        self.reset_sessions()

    async def _go(self) -> None:
        """Leave, or vanish; a new process may begin."""
        self._give_up(set(self._owned))
        request, version = self._farewell()
        says_so = self._epoch > JOIN_EPOCH and self.draw.random() < 0.6
        self.note(f"goes in epoch {self._epoch}" if says_so else "vanishes")
        self._begin_anew()
        if says_so:
            await self.ask(request, version, self._coordinator)

    def _farewell(self) -> tuple[Any, int]:
        """The request by which the member leaves, and its version. A static one may say that it will be back."""
        epoch = LEAVE_EPOCH if self._instance_id is None or self.draw.random() < 0.3 else STATIC_LEAVE_EPOCH
        return self._request(epoch), HEARTBEAT_VERSION

    def _refused(self, what: str, error: int) -> None:
        self.note(f"{what}: {ErrorCode(error).name}")
        if error in REJOINED:
            self._give_up(set(self._owned))
            self._epoch, self._told = JOIN_EPOCH, None
        elif error in AS_ANOTHER or (error == ErrorCode.GROUP_ID_NOT_FOUND and self._ledger.may_be_forgotten):
            self._give_up(set(self._owned))
            self._begin_anew()
        elif error == ErrorCode.UNRELEASED_INSTANCE_ID and self._instance_id is not None:
            self._heartbeat_due_s = self.now_s + HEARTBEAT_MAX_S  # until the session of its predecessor ends
        elif error != ErrorCode.STALE_MEMBER_EPOCH:
            self._note_error(what, error)
            self._coordinator = None
            self._told = None

    def _note_error(self, what: str, error: int) -> None:
        if error not in self.retried:
            self.unexpected(what, error)

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def _fetch_committed(self, keys: set[Key]) -> None:
        invoked_s = self.now_s
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(keys):
            topics.setdefault(topic, []).append(partition)
        member_id, member_epoch = self._as_reader()
        group = OffsetFetchRequestGroup(
            group_id=self._ledger.group, member_id=member_id, member_epoch=member_epoch,
            topics=[OffsetFetchRequestTopics(name=name, partition_indexes=partitions) for name, partitions in topics.items()],
        )  # fmt: skip
        response = await self.ask(OffsetFetchRequest(groups=[group], require_stable=True), OFFSET_FETCH_VERSION, self._coordinator)
        (answer,) = response.groups
        if answer.error_code:
            self._refused("OffsetFetch", answer.error_code)
            return
        for topic in answer.topics:
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                if each.error_code:
                    self._note_error("OffsetFetch", each.error_code)
                elif key in self._owned:
                    self.history.saw_committed(self._ledger.place(key), each.committed_offset, invoked_s)
                    self.positions[key] = max(each.committed_offset, 0)
                    self.note_leader_epoch(key, each.committed_leader_epoch)
        self.reset_sessions()

    def _note_committed(self, key: Key, offset: int) -> None:
        """The coordinator has acknowledged it."""

    def _as_reader(self) -> tuple[str | None, int]:
        """Member id and epoch of OffsetFetch."""
        return self._member_id, self._epoch

    async def _commit(self, positions: dict[Key, int]) -> None:
        sent_s = self.now_s
        commits = {key: Commit(self._ledger.place(key), offset, self._epoch, sent_s) for key, offset in positions.items()}
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for key, offset in positions.items():
            epoch = self._leader_epochs.get(key, -1)
            each = OffsetCommitRequestPartition(partition_index=key[1], committed_offset=offset, committed_leader_epoch=epoch)
            topics.setdefault(key[0], []).append(each)
        request = OffsetCommitRequest(
            group_id=self._ledger.group, generation_id_or_member_epoch=self._epoch, member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )  # fmt: skip
        self.history.commits += commits.values()
        member_id = self._member_id
        response = await self.ask(request, COMMIT_VERSION, self._coordinator)
        self.operations_count += 1
        for topic in response.topics:
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                if each.error_code:
                    self._refused("OffsetCommit", each.error_code)
                    return
                commits[key].returned_s = self.now_s
                self._ledger.accepted("commit", member_id, [key], sent_s)
                self._note_committed(key, commits[key].offset)
        self.note("commits " + ", ".join(f"{topic}-{partition}@{offset}" for (topic, partition), offset in positions.items()))
