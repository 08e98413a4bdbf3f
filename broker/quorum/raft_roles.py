"""A raft replica's actions in its role: fetching, requests for votes, announcements, and candidacies at their deadlines.

Source: the poll… methods of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from broker.quorum.leadership import Leadership
from broker.quorum.peers import NEVER_MS, Node
from broker.quorum.raft import KRAFT_VERSIONS, RECONFIGURABLE, Raft
from broker.quorum.raft_state import Candidate, Follower, Prospective, Resigned, Unattached
from broker.quorum.voters import ReplicaKey

POLL_STEPS_MAX = 8  # changes of role at one moment: from follower to leader, in a quorum of one, takes three


class RaftRoles:
    """Sends through `raft`, and changes its role when a deadline has passed."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._state = raft.state
        self._config = raft.config
        self._peers = raft.peers

    def poll(self, now_ms: int) -> int:
        """Do everything that is due. Returns when to call again at the latest (ms). It has to be called after every other event too."""
        for _ in range(POLL_STEPS_MAX):
            role = self._state.role
            wake_ms = self._poll_role(now_ms)
            if self._state.role is role:
                return wake_ms
        return now_ms

    def _poll_role(self, now_ms: int) -> int:
        role = self._state.role
        if isinstance(role, Leadership):
            return self._poll_leader(role, now_ms)
        if isinstance(role, (Candidate, Prospective)):
            return self._poll_nominee(role, now_ms)
        if isinstance(role, Follower):
            return self._poll_follower(role, now_ms)
        if isinstance(role, Unattached):
            return self._poll_unattached(role, now_ms)
        return self._poll_resigned(role, now_ms)

    def _poll_leader(self, role: Leadership, now_ms: int) -> int:
        if self._raft.is_stopping or role.is_resigning or now_ms >= role.check_quorum_deadline_ms:
            self._raft.become_resigned(role, now_ms)
            return now_ms
        role.forget_silent_observers(now_ms)
        wake_ms = min(role.check_quorum_deadline_ms, role.begin_quorum_deadline_ms)
        if now_ms >= role.begin_quorum_deadline_ms:
            for key in role.voters_to_notify(now_ms):
                self._send_to_voter(key, lambda key=key: self._begin_quorum_request(key), now_ms)  # type: ignore[misc]
            wake_ms = min(role.check_quorum_deadline_ms, role.begin_quorum_deadline_ms)
        return wake_ms if role.change is None else min(wake_ms, role.change.deadline_ms)

    def _poll_nominee(self, role: Candidate | Prospective, now_ms: int) -> int:
        if now_ms >= role.election_deadline_ms and not self._raft.is_stopping:
            if isinstance(role, Candidate):
                self._raft.become_prospective(now_ms)
            else:
                self._raft.end_lost_election(now_ms)
            return now_ms
        wake_ms = role.election_deadline_ms if not self._raft.is_stopping else NEVER_MS
        if not role.election.is_lost:
            for key in role.election.unanswered:
                wake_ms = min(wake_ms, self._send_to_voter(key, lambda key=key: self._vote_request(key), now_ms))  # type: ignore[misc]
        return wake_ms

    def _poll_follower(self, role: Follower, now_ms: int) -> int:
        if self._raft.is_stopping:
            return NEVER_MS
        if not self._raft.is_voter:
            return self._poll_observer(role, now_ms)
        if now_ms >= role.fetch_deadline_ms:
            self._raft.become_prospective(now_ms)
            return now_ms
        if now_ms >= role.update_voter_deadline_ms:
            leader = self._leader_node()
            is_in_log = self._raft.kraft_version >= RECONFIGURABLE
            is_due = self._raft.voters.needs_update(self._raft.as_voter) if is_in_log else not role.has_updated_leader
            if not is_due or self._peers.is_ready(leader, now_ms):
                role.update_voter_deadline_ms = now_ms + self._config.fetch_timeout_ms
            if is_due:
                return min(self._raft.send(leader, self._update_voter_request, now_ms), role.fetch_deadline_ms)
        return min(self._fetch(role, now_ms), role.fetch_deadline_ms)

    def _poll_observer(self, role: Follower, now_ms: int) -> int:
        wants_to_join = self._config.auto_join and self._config.can_become_voter and self._raft.kraft_version >= RECONFIGURABLE
        if wants_to_join and now_ms >= role.update_voter_deadline_ms:
            leader = self._leader_node()
            if self._peers.is_ready(leader, now_ms):
                role.update_voter_deadline_ms = now_ms + self._config.fetch_timeout_ms
            namesake = self._raft.voters.find(self._config.me.node_id)
            if namesake is not None:  # this node with another directory: that voter will never vote again
                key = namesake.key
                return self._raft.send(leader, lambda: self._messages.remove_voter_request(self._config.cluster_id, key), now_ms)
            return self._raft.send(leader, self._add_voter_request, now_ms)
        return self._fetch(role, now_ms)

    def _fetch(self, role: Follower, now_ms: int) -> int:
        """Fetch from the leader. If it does not answer, ask the bootstrap servers for another one."""
        if self._raft.needs_flush:
            return NEVER_MS  # the fetch would acknowledge records that are not durable; `poll` is called after the flush
        leader = self._leader_node()
        if self._peers.has_timed_out(leader, now_ms):
            self._peers.reset(leader)
            return self._fetch_from_bootstrap(now_ms)
        if self._peers.is_backing_off(leader, now_ms):
            return self._fetch_from_bootstrap(now_ms)
        if self._peers.has_request_under_way(now_ms):
            return self._peers.earliest_wait_ms(now_ms)
        return self._raft.send(leader, lambda: self._fetch_or_snapshot_request(role), now_ms)

    def _fetch_from_bootstrap(self, now_ms: int) -> int:
        node = self._peers.find_bootstrap(now_ms)
        return self._peers.earliest_wait_ms(now_ms) if node is None else self._raft.send(node, self._fetch_request, now_ms)

    def _poll_unattached(self, role: Unattached, now_ms: int) -> int:
        if self._raft.is_stopping:
            return NEVER_MS
        if self._raft.is_voter and now_ms >= role.election_deadline_ms:
            self._raft.become_prospective(now_ms)
            return now_ms
        if self._raft.needs_flush:
            return role.election_deadline_ms
        return min(self._fetch_from_bootstrap(now_ms), role.election_deadline_ms)

    def _poll_resigned(self, role: Resigned, now_ms: int) -> int:
        if now_ms >= role.election_deadline_ms and not self._raft.is_stopping:
            self._raft.become_unattached(self._raft.epoch + 1, now_ms)
            return now_ms
        wake_ms = role.election_deadline_ms if not self._raft.is_stopping else NEVER_MS
        for node_id in list(role.unacknowledged):
            voter = self._raft.voters.find(node_id)
            if voter is None:
                del role.unacknowledged[node_id]
            else:
                wake_ms = min(wake_ms, self._send_to_voter(voter.key, lambda: self._end_quorum_request(role), now_ms))
        return wake_ms

    def _leader_node(self) -> Node:
        return self._raft.node_of(self._state.leader_id, self._state.leader_endpoints)

    def _send_to_voter(self, key: ReplicaKey, make_request: Callable[[], Any], now_ms: int) -> int:
        endpoints = self._raft.voters.endpoints_of(key.node_id)
        if self._config.listener_name not in endpoints:
            return NEVER_MS
        return self._raft.send(self._raft.node_of(key.node_id, endpoints), make_request, now_ms)

    # -- requests ----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _messages(self) -> ModuleType:
        from broker.quorum import raft_messages  # late: a quorum of one sends nothing and need not load them

        return raft_messages

    def _fetch_request(self) -> Any:
        # If this replica does not know the leader's high watermark, the fetch has none, so the leader answers at once: a starting node
        # waits for it.
        known = None if self._state.leader_high_watermark is None else self._raft.high_watermark
        config = self._config
        return self._messages.fetch_request(
            config.cluster_id, self._raft.epoch, config.me, self._raft.log_end, known, config.fetch_max_bytes
        )

    def _vote_request(self, to: ReplicaKey) -> Any:
        is_pre_vote = isinstance(self._state.role, Prospective)
        return self._messages.vote_request(
            self._config.cluster_id, self._raft.epoch, self._config.me, to, self._raft.log_end, is_pre_vote=is_pre_vote
        )

    def _begin_quorum_request(self, to: ReplicaKey) -> Any:
        return self._messages.begin_quorum_epoch_request(
            self._config.cluster_id, self._raft.epoch, self._config.me.node_id, self._config.endpoints, to
        )

    def _end_quorum_request(self, role: Resigned) -> Any:
        return self._messages.end_quorum_epoch_request(
            self._config.cluster_id, self._raft.epoch, self._config.me.node_id, self._config.endpoints, role.successors
        )

    def _fetch_or_snapshot_request(self, role: Follower) -> Any:
        if role.fetching_snapshot is None:
            return self._fetch_request()
        config, snapshot = self._config, role.fetching_snapshot
        return self._messages.fetch_snapshot_request(
            config.cluster_id, self._raft.epoch, config.me, snapshot, role.snapshot_position, config.fetch_snapshot_max_bytes
        )

    def _update_voter_request(self) -> Any:
        return self._messages.update_voter_request(
            self._config.cluster_id, self._raft.epoch, self._config.me, self._config.endpoints, KRAFT_VERSIONS
        )

    def _add_voter_request(self) -> Any:
        return self._messages.add_voter_request(
            self._config.cluster_id, self._config.answer_timeout_ms, self._config.me, self._config.endpoints
        )
