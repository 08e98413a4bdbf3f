"""Handles the answers to a raft replica's own requests, and requests that got no answer.

Source: the handle…Response methods of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from broker.quorum import raft_messages as messages
from broker.quorum.raft import Outgoing, Raft
from broker.quorum.raft_log import OffsetAndEpoch, truncation_offset
from broker.quorum.raft_requests import maybe_follow
from broker.quorum.raft_state import Candidate, Follower, Prospective, Resigned
from broker.quorum.voters import NO_NODE, VoterSet
from protocol.errors import ErrorCode
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from protocol.messages.vote import VoteRequest
from protocol.records import ControlRecordType
from storage.errors import StorageError

logger = logging.getLogger("barnabas.quorum")

_STALE_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class RaftResponses:
    """See the module's docstring. `on_api_versions` gets the ApiVersions answer of a voter to be added."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._told_errors: dict[int, set[tuple[str, int]]] = {}
        """By node: what it answers unexpectedly to which requests. Each is told once until the node answers well again."""
        self.on_api_versions: Callable[[Outgoing, Any, int], bool] = lambda outgoing, response, now_ms: True
        self._handlers: dict[type, Callable[[Outgoing, Any, int], bool]] = {
            VoteRequest: self._vote,
            BeginQuorumEpochRequest: self._begin_quorum_epoch,
            EndQuorumEpochRequest: self._end_quorum_epoch,
            FetchRequest: self._fetch,
            FetchSnapshotRequest: self._fetch_snapshot,
            UpdateRaftVoterRequest: self._update_voter,
            AddRaftVoterRequest: self._changed_voters,
            RemoveRaftVoterRequest: self._changed_voters,
            ApiVersionsRequest: lambda outgoing, response, now_ms: self.on_api_versions(outgoing, response, now_ms),
        }

    def handle(self, outgoing: Outgoing, response: Any | None, now_ms: int) -> None:
        """Handle `response` to `outgoing`; None if there will be no answer. Answers to abandoned requests are ignored."""
        peers = self._raft.peers
        if not peers.is_expected(outgoing.node, outgoing.correlation_id):
            return
        is_good = False
        if response is not None:
            is_good = self._handlers[type(outgoing.request)](outgoing, response, now_ms)
        elif isinstance(outgoing.request, ApiVersionsRequest):
            self.on_api_versions(outgoing, None, now_ms)
        if is_good:
            self._told_errors.pop(outgoing.node.node_id, None)
        peers.note_answered(outgoing.node, outgoing.correlation_id, is_good=is_good, now_ms=now_ms)

    # -- elections -------------------------------------------------------------------------------------------------

    def _vote(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        raft = self._raft
        role = raft.state.role
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
            raft.become_candidate(now_ms)  # a voter without pre-votes: ask for votes
            return True
        partition, handled = self._open(outgoing, response, now_ms)
        if handled is not None:
            return handled
        role = raft.state.role
        asked_for_pre_vote = outgoing.request.topics[0].partitions[0].pre_vote
        if isinstance(role, (Prospective, Candidate)) and asked_for_pre_vote == isinstance(role, Prospective):
            role.election.note(outgoing.node.node_id, is_granted=partition.vote_granted)
            raft.maybe_advance_election(now_ms)
            if isinstance(role, Prospective) and raft.state.role is role and role.election.is_lost:
                raft.end_lost_election(now_ms)
            raft.shorten_lost_election(now_ms)
        return True

    def _begin_quorum_epoch(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        _, handled = self._open(outgoing, response, now_ms)
        if handled is not None:
            return handled
        return True

    def _end_quorum_epoch(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        _, handled = self._open(outgoing, response, now_ms)
        if handled is not None:
            return handled
        role = self._raft.state.role
        if isinstance(role, Resigned):
            role.unacknowledged.pop(outgoing.node.node_id, None)
        return True

    # -- replication -----------------------------------------------------------------------------------------------

    def _fetch(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        raft = self._raft
        partition, handled = self._open(outgoing, response, now_ms)
        if handled is not None:
            # Kafka asks again at once. Voters without a leader would then ask each other as fast as the network allows.
            return handled and raft.leader_id != NO_NODE
        role = raft.state.role
        if not isinstance(role, Follower):
            return False
        asked = outgoing.request.topics[0].partitions[0]
        if asked.current_leader_epoch != raft.epoch or asked.fetch_offset != raft.log.end_offset:
            return True  # the log has changed meanwhile
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(OffsetAndEpoch(partition.diverging_epoch.end_offset, partition.diverging_epoch.epoch), now_ms)
        elif partition.snapshot_id.epoch >= 0 and partition.snapshot_id.end_offset >= 0:
            snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            position = raft.log.begin_snapshot(snapshot)
            if position is not None:
                logger.info("fetching the snapshot of the metadata at offset %d epoch %d", *snapshot)
                role.fetching_snapshot, role.snapshot_position = snapshot, position
        else:
            if partition.records is not None and len(partition.records):
                raft.note_control_records(raft.log.append_fetched(partition.records, leader_epoch=raft.epoch, now_ms=now_ms))
            if partition.high_watermark >= 0:
                raft.state.leader_high_watermark = partition.high_watermark
                raft.advance_high_watermark(min(partition.high_watermark, raft.log.end_offset))
        self._note_success(role, now_ms)
        return True

    def _truncate(self, diverging: OffsetAndEpoch, now_ms: int) -> None:
        raft = self._raft
        offset = truncation_offset(raft.log, diverging)
        if raft.high_watermark is not None and offset < raft.high_watermark:
            raise StorageError(f"the leader asks to cut the metadata log at {offset}, below what is committed ({raft.high_watermark})")
        logger.info("cutting the metadata log at offset %d: it diverges from its leader's", offset)
        raft.log.truncate_to(offset, now_ms=now_ms)
        raft.voter_history.truncate_from(offset)
        raft.version_history.truncate_from(offset)

    def _fetch_snapshot(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        raft = self._raft
        partition, handled = self._open(outgoing, response, now_ms)
        if handled is not None:
            return handled
        role = raft.state.role
        if not isinstance(role, Follower) or role.fetching_snapshot is None:
            return True
        snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        if partition.error_code == ErrorCode.SNAPSHOT_NOT_FOUND or snapshot.offset < 0 or snapshot.epoch < 0:
            role.fetching_snapshot = None  # the leader has a newer one by now, which the next fetch names
        elif snapshot == role.fetching_snapshot and partition.position == role.snapshot_position:
            content = partition.unaligned_records or b""
            raft.log.append_snapshot(snapshot, role.snapshot_position, content)
            role.snapshot_position += len(content)
            if role.snapshot_position >= partition.size:
                role.fetching_snapshot = None
                self._load_snapshot(snapshot, now_ms)
        self._note_success(role, now_ms)
        return True

    def _load_snapshot(self, snapshot: OffsetAndEpoch, now_ms: int) -> None:
        raft = self._raft
        records = raft.log.finish_snapshot(snapshot, now_ms=now_ms)
        version = next((each.value.k_raft_version for each in records if each.type is ControlRecordType.KRAFT_VERSION), None)
        voters = next((VoterSet.from_record(each.value) for each in records if each.type is ControlRecordType.KRAFT_VOTERS), None)
        raft.version_history.reset(version, snapshot.offset - 1)
        raft.voter_history.reset(voters, snapshot.offset - 1)
        raft.advance_high_watermark(snapshot.offset)

    def _note_success(self, role: Follower, now_ms: int) -> None:
        role.has_fetched = True
        self._raft.leader_lives()
        role.fetch_deadline_ms = now_ms + self._raft.config.fetch_timeout_ms

    # -- voters ----------------------------------------------------------------------------------------------------

    def _update_voter(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        raft, leader = self._raft, response.current_leader
        endpoints = {raft.config.listener_name: (leader.host, leader.port)} if leader.host else {}
        handled = self._common(response, response.error_code, leader.leader_id, leader.leader_epoch, now_ms, endpoints)
        if handled is not None:
            return handled
        if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            return self._unexpected(outgoing, response.error_code)
        role = raft.state.role
        if isinstance(role, Follower):
            role.has_updated_leader = True
            self._note_success(role, now_ms)
        return True

    def _changed_voters(self, outgoing: Outgoing, response: Any, now_ms: int) -> bool:
        good = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
        if response.error_code not in good:
            return self._unexpected(outgoing, response.error_code)
        role = self._raft.state.role
        if isinstance(role, Follower):
            role.update_voter_deadline_ms = now_ms + self._raft.config.fetch_timeout_ms
        return True

    # -- inside ----------------------------------------------------------------------------------------------------

    def _open(self, outgoing: Outgoing, response: Any, now_ms: int) -> tuple[Any, bool | None]:
        """Returns the partition of an answer (None if it has none) and, if there is nothing more to process, whether the peer is fine;
        else None."""
        if response.error_code:
            return None, self._unexpected(outgoing, response.error_code)
        partition = messages.only_partition(response, response.responses if isinstance(response, FetchResponse) else response.topics)
        if partition is None:
            return None, False
        leader = getattr(partition, "current_leader", partition)
        handled = self._common(response, partition.error_code, leader.leader_id, leader.leader_epoch, now_ms)
        if handled is None and partition.error_code not in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND):
            handled = self._unexpected(outgoing, partition.error_code)
        return partition, handled

    def _common(
        self, response: Any, error: int, leader_id: int, epoch: int, now_ms: int, endpoints: dict[str, tuple[str, int]] | None = None
    ) -> bool | None:
        """Process the epoch and the leader of an answer. Returns None if the rest has to be processed; else whether the peer is fine."""
        raft = self._raft
        if endpoints is None:
            found = [each for each in getattr(response, "node_endpoints", ()) if each.node_id == leader_id]
            endpoints = {raft.config.listener_name: (found[0].host, found[0].port)} if found else {}
        known = endpoints or raft.voters.endpoints_of(leader_id)
        if epoch < raft.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return True
        if epoch > raft.epoch or error in _STALE_ERRORS:
            maybe_follow(raft, leader_id, epoch, known, now_ms)
            return True
        # A leader that is known by its id alone is one that this replica remembers from its last run, without its log.
        is_new = raft.leader_id == NO_NODE or (raft.leader_id == leader_id and not raft.state.leader_endpoints)
        if leader_id != NO_NODE and is_new and leader_id != raft.config.me.node_id and known:
            raft.become_follower(epoch, leader_id, known, now_ms)
            return None if not error else True
        if error == ErrorCode.BROKER_NOT_AVAILABLE:
            return False
        return True if error == ErrorCode.INVALID_VOTER_KEY else None

    def _unexpected(self, outgoing: Outgoing, error: int) -> bool:
        if error == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._raft.on_other_cluster()
        elif error and error != ErrorCode.BROKER_NOT_AVAILABLE:
            name = type(outgoing.request).__name__
            told = self._told_errors.setdefault(outgoing.node.node_id, set())
            if (name, error) in told:
                return False
            told.add((name, error))
            logger.warning("node %d answers %s to %s of the metadata quorum", outgoing.node.node_id, ErrorCode(error).name, name)
        return False
