"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter at the leader, and the change from kraft.version 0 to 1 (KIP-853).

Changes are made one at a time, each after the previous one is committed, so any two majorities of neighbouring sets share a voter.

Source: org.apache.kafka.raft.internals.AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler; LeaderState.
"""

from __future__ import annotations

import logging
from typing import Any

from broker.quorum import raft_messages as messages
from broker.quorum.leadership import Leadership
from broker.quorum.raft import RECONFIGURABLE, Outgoing, Raft
from broker.quorum.voter_changes import ChangeKind, VoterChange
from broker.quorum.voters import ReplicaKey, Voter
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.stored.control_records import KRaftVersionRecord
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from protocol.records import ControlRecordType
from protocol.uuids import ZERO_UUID

logger = logging.getLogger("barnabas.quorum")

KRAFT_VERSION_FEATURE = "kraft.version"
_RESPONSES = {ChangeKind.ADD: AddRaftVoterResponse, ChangeKind.REMOVE: RemoveRaftVoterResponse}


class VoterHandlers:
    """Owner: RaftReplica. Answers through `Raft.reply`."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft

    # -- requests --------------------------------------------------------------------------------------------------

    def add(self, token: Any, request: AddRaftVoterRequest, version: int, now_ms: int) -> None:
        raft = self._raft
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = {listener.name: (listener.host, listener.port) for listener in request.listeners}
        try:
            leadership = self._check(request.cluster_id, key)
            if raft.config.listener_name not in endpoints:
                why = f"Add voter request didn't include the endpoint for the default listener {raft.config.listener_name}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, why)
            self._check_idle(leadership, now_ms)
            if raft.voters.find(key.node_id) is not None:
                why = f"The voter id for {key} is already part of the set of voters {raft.voters}."
                raise KafkaError(ErrorCode.DUPLICATE_VOTER, why)
            newcomer = raft.node_of(key.node_id, endpoints)
            if not raft.peers.is_ready(newcomer, now_ms):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"New voter {key} is not ready to receive requests")
        except KafkaError as error:
            self._answer(ChangeKind.ADD, token, error.code, error.message)
            return
        is_early = version >= 1 and not request.ack_when_committed
        deadline_ms = now_ms + raft.config.answer_timeout_ms
        leadership.change = VoterChange(ChangeKind.ADD, token, key, endpoints, deadline_ms, is_early)
        raft.send(newcomer, _api_versions_request, now_ms)

    def remove(self, token: Any, request: RemoveRaftVoterRequest, version: int, now_ms: int) -> None:
        raft = self._raft
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        try:
            leadership = self._check(request.cluster_id, key)
            self._check_idle(leadership, now_ms)
            voters = raft.voters.remove(key)
            if voters is None:
                raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Cannot remove voter {key} from the set of voters {raft.voters}")
            if not len(voters):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot remove the only voter {key}")
        except KafkaError as error:
            self._answer(ChangeKind.REMOVE, token, error.code, error.message)
            return
        change = VoterChange(ChangeKind.REMOVE, token, key, {}, now_ms + raft.config.answer_timeout_ms)
        change.offset = raft.append_voters(voters, now_ms)
        leadership.change = change

    def update(self, token: Any, request: UpdateRaftVoterRequest, listener_name: str, now_ms: int) -> None:
        raft = self._raft
        error = self._update_error(request, now_ms)
        state = raft.state
        facts = messages.LeaderFacts(state.epoch, state.leader_id, state.leader_endpoints, listener_name)
        raft.reply(token, messages.update_voter_response(facts, error))

    # -- events ----------------------------------------------------------------------------------------------------

    def api_versions_answered(self, outgoing: Outgoing, response: Any | None, now_ms: int) -> bool:
        """Handle the new voter's ApiVersions answer, or its absence. Returns whether the peer is fine."""
        raft, leadership = self._raft, self._raft.state.leadership
        change = None if leadership is None else leadership.change
        if leadership is None or change is None or change.offset is not None or change.key.node_id != outgoing.node.node_id:
            return True
        if response is None or response.error_code:
            self._end(leadership, ErrorCode.REQUEST_TIMED_OUT, "Aborted add voter operation since API_VERSIONS returned an error")
            return False
        found = [feature for feature in response.supported_features if feature.name == KRAFT_VERSION_FEATURE]
        versions = (found[0].min_version, found[0].max_version) if found else (0, 0)
        if not versions[0] <= raft.kraft_version <= versions[1]:
            why = f"Aborted add voter operation for {change.key} since it does not support kraft.version {raft.kraft_version}"
            self._end(leadership, ErrorCode.INVALID_REQUEST, why)
        elif not leadership.is_caught_up(change.key, now_ms):
            self._end(leadership, ErrorCode.REQUEST_TIMED_OUT, f"Aborted add voter operation for {change.key} since it is lagging behind")
        else:
            voters = raft.voters.add(Voter(change.key, change.endpoints, versions))
            assert voters is not None, "one change at a time"
            change.offset = raft.append_voters(voters, now_ms)
            if change.is_answered_when_appended:
                self._answer(change.kind, change.token, ErrorCode.NONE, None)
                change.token = None
        return True

    def high_watermark_moved(self) -> None:
        """Complete a change whose record is committed. A leader that is not a voter any more resigns."""
        raft, leadership = self._raft, self._raft.state.leadership
        if leadership is None or leadership.change is None or leadership.change.offset is None:
            return
        if leadership.high_watermark is not None and leadership.high_watermark > leadership.change.offset:
            kind = leadership.change.kind
            self._end(leadership, ErrorCode.NONE, None)
            if kind is ChangeKind.REMOVE and not raft.is_voter:
                leadership.is_resigning = True

    def expire(self, now_ms: int) -> None:
        leadership = self._raft.state.leadership
        if leadership is not None and leadership.change is not None and now_ms >= leadership.change.deadline_ms:
            self._end(leadership, ErrorCode.REQUEST_TIMED_OUT, None)

    def leadership_lost(self, change: VoterChange | None) -> None:
        if change is not None:
            self._answer(change.kind, change.token, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    def upgrade_kraft_version(self, level: int, *, is_validated_only: bool, now_ms: int) -> int | None:
        """Finalise kraft.version at `level`: the voters move into the log. Returns the offset of the last record; None if there is
        nothing to do. KafkaError if it is refused (LeaderState.maybeAppendUpgradedKRaftVersion)."""
        raft, leadership = self._raft, self._raft.state.leadership
        if leadership is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if level == raft.kraft_version:
            return None
        prefix = f"Invalid upgrade of {KRAFT_VERSION_FEATURE} from version {raft.kraft_version} to {level}"
        voters = leadership.volatile_voters
        if level < raft.kraft_version or voters is None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{prefix} because the new version is a downgrade")
        if any(not voter.kraft_versions[0] <= level <= voter.kraft_versions[1] or voter.key.directory_id == ZERO_UUID for voter in voters):
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{prefix} because not all of the voters support it")
        if is_validated_only:
            return None
        records: list[tuple[ControlRecordType, Any]] = [
            (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=level)),
            (ControlRecordType.KRAFT_VOTERS, voters.to_record()),
        ]
        offset = raft.log.append_control_records(records, epoch=raft.epoch, now_ms=now_ms)
        raft.version_history.add(offset - 1, level)
        raft.voter_history.add(offset, voters)
        leadership.volatile_voters = None
        return offset

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check(self, cluster_id: str | None, key: ReplicaKey) -> Leadership:
        raft = self._raft
        if cluster_id is not None and cluster_id != raft.config.cluster_id:
            why = f"The given id {cluster_id!r} doesn't match the cluster id {raft.config.cluster_id!r}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        leadership = raft.state.leadership
        if leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if key.node_id < 0 or key.directory_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The request didn't include a valid voter")
        return leadership

    def _check_idle(self, leadership: Leadership, now_ms: int) -> None:
        """Check that a change may begin: none is pending, the voters are in the log, and the last set there is committed."""
        raft = self._raft
        self.expire(now_ms)
        if leadership.change is not None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for leader to handle previous voter change request")
        high_watermark = leadership.high_watermark
        if high_watermark is None:
            why = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
        if raft.kraft_version < RECONFIGURABLE:
            why = f"Cluster doesn't support changing voters because the {KRAFT_VERSION_FEATURE} feature is {raft.kraft_version}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
        offset = raft.voter_history.last_offset
        if offset is None or offset >= high_watermark:
            why = f"Request timed out waiting for voters to commit the latest voter change at {offset} with HWM {high_watermark}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)

    def _update_error(self, request: UpdateRaftVoterRequest, now_ms: int) -> ErrorCode:
        raft = self._raft
        if request.cluster_id is not None and request.cluster_id != raft.config.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if request.current_leader_epoch != raft.epoch:
            is_old = request.current_leader_epoch < raft.epoch
            return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        leadership = raft.state.leadership
        if leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = {listener.name: (listener.host, listener.port) for listener in request.listeners}
        versions = (request.k_raft_version_feature.min_supported_version, request.k_raft_version_feature.max_supported_version)
        is_valid = key.node_id >= 0 and key.directory_id != ZERO_UUID and raft.config.listener_name in endpoints
        if not is_valid or not 0 <= versions[0] <= raft.kraft_version <= versions[1]:
            return ErrorCode.INVALID_REQUEST
        try:
            voter = Voter(key, endpoints, versions)
            if raft.kraft_version >= RECONFIGURABLE:
                self._check_idle(leadership, now_ms)
                voters = raft.voters.update(voter)
                if voters is not None:
                    raft.append_voters(voters, now_ms)
            else:
                known = leadership.volatile_voters or raft.voters
                voters = leadership.volatile_voters = known.update(voter, is_directory_ignored=True) or known
                if voters.find(key.node_id) is None:
                    voters = None
        except KafkaError as error:
            return error.code
        if voters is None:
            return ErrorCode.VOTER_NOT_FOUND
        leadership.note_alive(key, now_ms)
        return ErrorCode.NONE

    def _end(self, leadership: Leadership, error: ErrorCode, message: str | None) -> None:
        change, leadership.change = leadership.change, None
        if change is not None:
            logger.info("changing the voters: %s %s: %s", change.kind.value, change.key, error.name)
            self._answer(change.kind, change.token, error, message)

    def _answer(self, kind: ChangeKind, token: Any, error: ErrorCode, message: str | None) -> None:
        if token is not None:
            self._raft.reply(token, _RESPONSES[kind](error_code=error, error_message=message))


def _api_versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="barnabas", client_software_version="0")
