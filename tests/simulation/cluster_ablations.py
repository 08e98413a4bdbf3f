"""Safeguards of a cluster that can be switched off, one at a time, as in tests/simulation/ablations.py. The watch has to notice each.

Some of them random faults show too rarely, and directed worlds do (tests/simulation/directed_worlds.py): pre-votes leave few epochs with
two candidates, and an old fetch does harm only if no other replica is in sync. tests/broker/quorum/test_raft_world.py has the forgotten
vote in random worlds of the raft core alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from broker.cluster.silence_watch import SilenceWatch
from broker.controller.local_controller import LocalController
from broker.controller.partition_change import PartitionChange
from broker.controller.silence_reports import SilenceReports
from broker.metadata.metadata_cache import MetadataCache
from broker.quorum import opening
from broker.quorum.raft_requests import RaftRequests
from broker.quorum.raft_state import Follower, RaftState
from broker.replication import hosted_partitions
from broker.replication.fetcher.fetcher_control import InitialFetch
from broker.replication.fetcher.follower_logs import FollowerLogs
from broker.replication.fetcher.leader_fetcher import LeaderFetcher
from broker.replication.isr.follower import NO_BROKER_EPOCH
from broker.replication.isr.in_sync_replicas import InSyncReplicas
from broker.replication.metadata.broker_metadata_publisher import BrokerMetadataPublisher
from broker.replication.partition import Partition
from broker.replication.partition_environment import ClusterEnvironment
from broker.server import client_server
from config.topic import LogConfig
from storage.compaction import selection
from storage.log import Log
from tests.simulation.ablation_set import AblationSet
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.directed_worlds import ForgottenLogWorld, ForgottenVoteWorld, OldFetchWorld, SilenceWorld
from tests.simulation.reborn_world import RebornWorld
from tests.simulation.silence_world import CutLinksWorld, HungWorld
from tests.simulation.trimmed_world import TrimmedWorld


@contextmanager
def skip_the_epoch_check() -> Iterator[None]:
    """A follower does not let its leader compare the epochs of their logs: what a leader before wrote stays."""
    asked = LeaderFetcher._asked

    def asked_without_epoch(self: LeaderFetcher, key: Any) -> Any:
        partition = asked(self, key)
        if partition is not None:
            partition.last_fetched_epoch = -1
        return partition

    with patch.object(LeaderFetcher, "_asked", asked_without_epoch):
        yield


@contextmanager
def truncate_to_the_high_watermark() -> Iterator[None]:
    """As before KIP-101: a follower of a new epoch forgets what it has acknowledged, and may be elected before it has it again."""

    def initial_fetch(self: Partition) -> InitialFetch:
        self.log.truncate_to(self.log.high_watermark)
        return InitialFetch(self.topic_id, self.leader_id, self.leader_epoch, self.log.high_watermark, -1)

    with patch.object(Partition, "_initial_fetch", initial_fetch):
        yield


@contextmanager
def acknowledge_below_the_minimum_isr() -> Iterator[None]:
    """A leader does as if min.insync.replicas were 1."""
    config_changed = Partition.config_changed

    def forget_the_minimum(self: Partition, config: LogConfig | None = None) -> None:
        config_changed(self, config)
        self.in_sync.min_isr = 1

    with patch.object(Partition, "config_changed", forget_the_minimum):
        yield


@contextmanager
def acknowledge_what_the_leader_alone_has() -> Iterator[None]:
    with patch.object(InSyncReplicas, "find_high_watermark", lambda self, own_end_offset, now_ms: own_end_offset):
        yield


@contextmanager
def vote_for_shorter_logs() -> Iterator[None]:
    """A voter does not compare the candidate's log with its own: what was committed may be forgotten."""
    would_vote_for = RaftState.would_vote_for

    def vote_anyway(self: RaftState, candidate: Any, *, is_log_current: bool, is_pre_vote: bool) -> bool:
        return would_vote_for(self, candidate, is_log_current=True, is_pre_vote=is_pre_vote)

    with patch.object(RaftState, "would_vote_for", vote_anyway):
        yield


@contextmanager
def forget_the_vote() -> Iterator[None]:
    """A voter that is restarted knows its epoch, and not whom it voted for there."""
    read_vote = opening.read_vote

    def forget(*arguments: Any) -> Any:
        vote = read_vote(*arguments)
        return None if vote is None else vote._replace(voted=None)

    with patch.object(opening, "read_vote", forget):
        yield


@contextmanager
def vote_with_a_forgotten_log() -> Iterator[None]:
    """As before KIP-853: a voter is known by its node id alone, also when it comes back with an empty disk."""
    with patch.object(RaftRequests, "_is_for_me", lambda self, voter_id, directory_id: voter_id == self._raft.config.me.node_id):
        yield


@contextmanager
def count_a_restarted_followers_old_fetch() -> Iterator[None]:
    """As before KIP-903: neither leader nor controller looks which process of a follower has fetched."""

    def is_eligible(self: ClusterEnvironment, node_id: int, broker_epoch: int | None) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and broker.is_active

    broker_epoch_of = InSyncReplicas._broker_epoch_of

    def epoch_of(self: InSyncReplicas, node_id: int) -> int:
        return broker_epoch_of(self, node_id) if node_id == self._node_id else NO_BROKER_EPOCH

    with (
        patch.object(ClusterEnvironment, "is_broker_epoch_stale", lambda self, node_id, broker_epoch: False),
        patch.object(ClusterEnvironment, "is_isr_eligible", is_eligible),
        patch.object(InSyncReplicas, "_broker_epoch_of", epoch_of),
    ):
        yield


@contextmanager
def compact_what_is_not_committed() -> Iterator[None]:
    """A record above the high watermark replaces the one before it, and may be cut off later."""
    find_cleanable = selection.find_cleanable

    def find_all(log: Log, now_ms: int) -> Any:
        stable, log.last_stable_offset = log.last_stable_offset, log.log_end_offset
        try:
            return find_cleanable(log, now_ms)
        finally:
            log.last_stable_offset = stable

    with patch.object(selection, "find_cleanable", find_all):
        yield


@contextmanager
def lead_who_left_too_early() -> Iterator[None]:
    """Any replica counts as eligible (KIP-966), also one that left the ISR while others went on to commit."""
    find_eligible_leaders = PartitionChange._find_eligible_leaders

    def find_all(self: PartitionChange) -> None:
        find_eligible_leaders(self)
        if self.is_elr_enabled and len(self.isr) < self.min_isr:
            self._elr = [each for each in self.replicas if each not in self.isr]

    with patch.object(PartitionChange, "_find_eligible_leaders", find_all):
        yield


@contextmanager
def take_logs_by_their_names() -> Iterator[None]:
    """A log is a partition's if it has its name: whose topic it was, and whether this broker still has a replica, is not asked. At the
    start alone a topic of another id is noticed, as before."""

    def topic_ids(metadata: MetadataCache) -> Callable[[str, int], bytes | None]:
        topic_ids_of = metadata.topics
        return lambda name, index: topic_ids_of[name].topic_id if name in topic_ids_of else None

    def end_loading(self: BrokerMetadataPublisher) -> None:
        self._hosted.is_loading = False

    with (
        patch.object(client_server, "_topic_ids", topic_ids),
        patch.object(hosted_partitions, "is_log_of", lambda log, topic_id: True),
        patch.object(BrokerMetadataPublisher, "end_loading", end_loading),
    ):
        yield


@contextmanager
def refuse_the_batch_that_holds_the_start() -> Iterator[None]:
    """A replica that begins at its leader's log start, within a batch, does not begin with the whole batch."""
    with patch.object(FollowerLogs, "_begin_with_batch", lambda self, state, records, now_ms: True):
        yield


@contextmanager
def end_the_watch_of_sessions() -> Iterator[None]:
    """The controller's watch of sessions ends when no broker but its own has one, and only a registration begins it again."""
    watch_sessions, register_broker = LocalController._watch_sessions, LocalController.register_broker

    def watch_while_there_are_any(self: LocalController) -> None:
        if self.is_active and not any(node_id != self._node_id for node_id in self._active.heartbeats._sessions):
            self._session_check = None
        else:
            watch_sessions(self)

    async def register_and_watch(self: LocalController, *arguments: Any) -> Any:
        response = await register_broker(self, *arguments)
        if self._session_check is None:
            self._watch_sessions()
        return response

    with (
        patch.object(LocalController, "_watch_sessions", watch_while_there_are_any),
        patch.object(LocalController, "register_broker", register_and_watch),
    ):
        yield


@contextmanager
def believe_one_observer() -> Iterator[None]:
    """The controller fences a broker that does not answer one other broker and the controller: a single broken link."""

    def is_silent_to_one(self: SilenceReports, broker: Any) -> bool:
        is_meant = not broker.is_fenced and broker.node_id != self._node_id
        return is_meant and any(broker.node_id in silent for silent in self._silent_to.values())

    with patch.object(SilenceReports, "_is_silent_to_all", is_silent_to_one):
        yield


@contextmanager
def fence_without_a_question() -> Iterator[None]:
    """The controller believes the brokers, and does not ask the one that is silent to them."""
    maybe_ask = SilenceReports._maybe_ask

    def believe(self: SilenceReports, node_id: int) -> None:
        self._ask = lambda address, on_end: on_end(True)
        maybe_ask(self, node_id)

    with patch.object(SilenceReports, "_maybe_ask", believe):
        yield


@contextmanager
def vote_against_a_leader_that_answers() -> Iterator[None]:
    """A follower gives its pre-vote although its leader answers it: one voter that does not hear the leader brings another to power."""
    would_vote_for = RaftState.would_vote_for

    def vote(self: RaftState, candidate: Any, *, is_log_current: bool, is_pre_vote: bool) -> bool:
        if is_pre_vote and isinstance(self.role, Follower):
            return is_log_current
        return would_vote_for(self, candidate, is_log_current=is_log_current, is_pre_vote=is_pre_vote)

    with patch.object(RaftState, "would_vote_for", vote):
        yield


@contextmanager
def notice_no_silence() -> Iterator[None]:
    """As before: a node that hangs is missed at the end of its session."""
    with patch.object(SilenceWatch, "_is_silent", lambda self, question, now_ms: False):
        yield


Ablation = Callable[[], AbstractContextManager[None]]

ABLATIONS: dict[str, Ablation] = {
    each.__name__: each
    for each in (
        skip_the_epoch_check,
        truncate_to_the_high_watermark,
        acknowledge_below_the_minimum_isr,
        acknowledge_what_the_leader_alone_has,
        vote_for_shorter_logs,
        forget_the_vote,
        vote_with_a_forgotten_log,
        count_a_restarted_followers_old_fetch,
        compact_what_is_not_committed,
        lead_who_left_too_early,
        take_logs_by_their_names,
        refuse_the_batch_that_holds_the_start,
        end_the_watch_of_sessions,
        believe_one_observer,
        fence_without_a_question,
        vote_against_a_leader_that_answers,
        notice_no_silence,
    )
}

_LOSSES = frozenset({"committed-lost", "committed-changed", "replicas-differ", "unseen", "lost-write", "inconsistent-offsets"})
_METADATA = frozenset({"two-controllers", "metadata-differs", "broker-failure", "unsettled", "stuck", "two-leaders"})

BROKEN_BY: dict[str, frozenset[str]] = {
    "skip_the_epoch_check": _LOSSES,
    "truncate_to_the_high_watermark": _LOSSES,
    "acknowledge_below_the_minimum_isr": _LOSSES | {"below-min-isr"},
    "acknowledge_what_the_leader_alone_has": _LOSSES | {"below-min-isr"},
    "vote_for_shorter_logs": _METADATA,
    "forget_the_vote": frozenset({"two-controllers"}),
    "vote_with_a_forgotten_log": _METADATA,
    "count_a_restarted_followers_old_fetch": frozenset({"below-min-isr"}),
    "compact_what_is_not_committed": _LOSSES | {"compacted lost-key", "compacted replicas-differ"},
    "lead_who_left_too_early": _LOSSES,
    "take_logs_by_their_names": _LOSSES | {"reborn-lost", "reborn-foreign"},
    "refuse_the_batch_that_holds_the_start": frozenset({"unsettled", "trimmed deletion-never-ends"}),
    "end_the_watch_of_sessions": frozenset({"never-fenced"}),
    "believe_one_observer": frozenset({"fenced-unjustly"}),
    "fence_without_a_question": frozenset({"fenced-unjustly"}),
    "vote_against_a_leader_that_answers": frozenset({"fenced-unjustly"}),
    "notice_no_silence": frozenset({"never-missed"}),
}

KEPT_SEEDS: dict[str, int] = {
    "skip_the_epoch_check": 5,
    "truncate_to_the_high_watermark": 6,
    "acknowledge_below_the_minimum_isr": 0,
    "acknowledge_what_the_leader_alone_has": 0,
    "vote_for_shorter_logs": 7,
    "forget_the_vote": 4,
    "vote_with_a_forgotten_log": 0,
    "count_a_restarted_followers_old_fetch": 10,
    "compact_what_is_not_committed": 99,
    "lead_who_left_too_early": 7,
    "take_logs_by_their_names": 1,
    "refuse_the_batch_that_holds_the_start": 2,
    "end_the_watch_of_sessions": 0,
    "believe_one_observer": 0,
    "fence_without_a_question": 1,
    "vote_against_a_leader_that_answers": 3,
    "notice_no_silence": 0,
}

WORLDS: dict[str, type[ClusterWorld]] = {
    "forget_the_vote": ForgottenVoteWorld,
    "vote_with_a_forgotten_log": ForgottenLogWorld,
    "count_a_restarted_followers_old_fetch": OldFetchWorld,
    "take_logs_by_their_names": RebornWorld,
    "refuse_the_batch_that_holds_the_start": TrimmedWorld,
    "end_the_watch_of_sessions": SilenceWorld,
    "believe_one_observer": CutLinksWorld,
    "fence_without_a_question": CutLinksWorld,
    "vote_against_a_leader_that_answers": CutLinksWorld,
    "notice_no_silence": HungWorld,
}
"""Of those that need a directed one."""

ABLATION_SET = AblationSet(ABLATIONS, BROKEN_BY, ClusterWorld, WORLDS)
