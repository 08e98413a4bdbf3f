"""The answers of a raft replica to its peers' requests.

Every request names its sender's epoch; a newer one ends this replica's older epoch. Fetches without new records are parked until there are
some, their wait is over, or the leadership ends.

Source: the handle…Request methods of org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from broker.quorum import raft_messages as messages
from broker.quorum.leadership import Leadership, ReplicaProgress
from broker.quorum.peers import NEVER_MS
from broker.quorum.raft import Raft
from broker.quorum.raft_log import METADATA_TOPIC, PARTITION, OffsetAndEpoch, Position, check_position
from broker.quorum.raft_messages import LeaderFacts
from broker.quorum.raft_state import Follower, Prospective, Unattached
from broker.quorum.voters import NO_NODE, ReplicaKey
from protocol.errors import ErrorCode
from protocol.messages import describe_quorum, fetch_snapshot
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, PartitionData, SnapshotId
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.messages.vote import VoteRequest, VoteResponse
from protocol.uuids import ZERO_UUID

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)  # written by `format`; it is never sent
PARKED_FETCHES_MAX = 1_000  # of voters and observers; beyond it a fetch is answered at once, empty


class _Request(NamedTuple):
    """One request: its token, version and listener."""

    token: Any
    message: Any
    version: int
    listener_name: str


class _ParkedFetch(NamedTuple):
    request: _Request
    replica: ReplicaKey
    partition: FetchPartition
    deadline_ms: int


class RaftRequests:
    """Answers through `Raft.reply`. Owner: the driver, which calls `expire` with each poll."""

    def __init__(self, raft: Raft) -> None:
        self._raft = raft
        self._parked: list[_ParkedFetch] = []
        self._handlers: dict[type, Callable[[_Request, int], None]] = {
            VoteRequest: self._vote,
            BeginQuorumEpochRequest: self._begin_quorum_epoch,
            EndQuorumEpochRequest: self._end_quorum_epoch,
            FetchRequest: self._fetch,
            FetchSnapshotRequest: self._fetch_snapshot,
            DescribeQuorumRequest: self._describe_quorum,
        }

    def handle(self, token: Any, message: Any, version: int, listener_name: str, now_ms: int) -> None:
        """Answer `message`, now or later, with `token`. Endpoints in the answer are those of the listener by which it came."""
        self._handlers[type(message)](_Request(token, message, version, listener_name), now_ms)

    # -- parked fetches --------------------------------------------------------------------------------------------

    def progress(self, now_ms: int) -> None:
        """Called when the log has grown or the high watermark has moved: answer the fetches that have something to get."""
        parked, self._parked = self._parked, []
        for each in parked:
            self._answer_or_park(each, now_ms)

    def expire(self, now_ms: int) -> int:
        """Answer the fetches whose wait is over. Returns when the next wait ends."""
        due = [each for each in self._parked if now_ms >= each.deadline_ms]
        if due:
            self._parked = [each for each in self._parked if now_ms < each.deadline_ms]
            for each in due:
                self._raft.reply(each.request.token, self._fetch_answer(each, now_ms))
        return min((each.deadline_ms for each in self._parked), default=NEVER_MS)

    def leadership_ends(self) -> None:
        """Called when the leadership ends: all parked fetches are answered with an error, so that their senders look for the new leader."""
        parked, self._parked = self._parked, []
        for each in parked:
            self._raft.reply(each.request.token, self._failed_fetch(each.request, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # -- elections -------------------------------------------------------------------------------------------------

    def _vote(self, request: _Request, now_ms: int) -> None:
        raft, message = self._raft, request.message
        partition = self._check(request, VoteResponse)
        if partition is None:
            return
        epoch, candidate = partition.replica_epoch, ReplicaKey(partition.replica_id, partition.replica_directory_id)
        is_epoch_wrong = partition.last_offset_epoch > epoch if partition.pre_vote else partition.last_offset_epoch >= epoch
        if partition.last_offset < 0 or partition.last_offset_epoch < 0 or is_epoch_wrong:
            error: ErrorCode | None = ErrorCode.INVALID_REQUEST
        else:
            error = self._voter_error(epoch, candidate.node_id)
        if error is None and epoch > raft.epoch:
            raft.become_unattached(epoch, now_ms)
        if error is None and not self._is_for_me(message.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        is_granted = False
        if error is None:
            # Logs are compared by epoch first, then by length.
            is_current = (partition.last_offset_epoch, partition.last_offset) >= (raft.log.last_epoch, raft.log.end_offset)
            is_granted = raft.state.would_vote_for(candidate, is_log_current=is_current, is_pre_vote=partition.pre_vote)
            if is_granted and partition.pre_vote:
                is_granted = raft.gives_way_to(
                    candidate.node_id, OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch), now_ms
                )
            is_new = raft.state.vote.voted is None and isinstance(raft.state.role, (Unattached, Prospective))
            if is_granted and not partition.pre_vote and is_new:
                raft.state.add_vote(candidate, raft.draw_election_deadline(now_ms, is_patient=True))
        facts = self._facts(request)
        raft.reply(request.token, messages.vote_response(facts, request.version, error or ErrorCode.NONE, is_granted=is_granted))

    def _begin_quorum_epoch(self, request: _Request, now_ms: int) -> None:
        raft, message = self._raft, request.message
        partition = self._check(request, BeginQuorumEpochResponse)
        if partition is None:
            return
        error = self._voter_error(partition.leader_epoch, partition.leader_id)
        if error is None:
            self._follow(message, partition, now_ms)
            if not self._is_for_me(message.voter_id, partition.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
        facts = self._facts(request)
        raft.reply(request.token, messages.begin_quorum_epoch_response(facts, request.version, error or ErrorCode.NONE))

    def _end_quorum_epoch(self, request: _Request, now_ms: int) -> None:
        raft, message = self._raft, request.message
        partition = self._check(request, EndQuorumEpochResponse)
        if partition is None:
            return
        error = self._voter_error(partition.leader_epoch, partition.leader_id)
        if error is None:
            self._follow(message, partition, now_ms)
            role = raft.state.role
            if isinstance(role, Follower) and raft.leader_id == partition.leader_id:
                role.fetch_deadline_ms = raft.succession_deadline(role, now_ms + self._succession_backoff_ms(partition))
                role.has_fetched = False  # the leader itself has resigned
        facts = self._facts(request)
        raft.reply(request.token, messages.end_quorum_epoch_response(facts, request.version, error or ErrorCode.NONE))

    def _follow(self, message: Any, partition: Any, now_ms: int) -> None:
        """Follow the leader that sent this request."""
        raft = self._raft
        endpoints = {each.name: (each.host, each.port) for each in message.leader_endpoints}
        self_or_known = endpoints or raft.voters.endpoints_of(partition.leader_id)
        maybe_follow(raft, partition.leader_id, partition.leader_epoch, self_or_known, now_ms)

    def _succession_backoff_ms(self, partition: Any) -> int:
        """Returns the delay of this voter's candidacy: the first of the preferred successors stands at once, the others follow one by
        one."""
        raft, me = self._raft, self._raft.config.me
        candidates = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
        candidates = candidates or [ReplicaKey(node_id) for node_id in partition.preferred_successors]
        places = [
            place for place, key in enumerate(candidates) if key.node_id == me.node_id and key.directory_id in (ZERO_UUID, me.directory_id)
        ]
        longest_ms = raft.config.election_backoff_max_ms
        if not places:
            return longest_ms
        if places[0] == 0:
            return 0
        return min(longest_ms, (longest_ms >> (len(candidates) - 1)) << (places[0] - 1))

    # -- replication -----------------------------------------------------------------------------------------------

    def _fetch(self, request: _Request, now_ms: int) -> None:
        raft, message = self._raft, request.message
        partition = self._check(request, FetchResponse)
        if partition is None:
            return
        replica_id = message.replica_state.replica_id if message.replica_state.replica_id >= 0 else message.replica_id
        if (
            message.max_wait_ms < 0
            or partition.fetch_offset < 0
            or not 0 <= partition.last_fetched_epoch <= partition.current_leader_epoch
            or (replica_id == raft.config.me.node_id and raft.is_leader)
        ):
            raft.reply(request.token, self._failed_fetch(request, ErrorCode.INVALID_REQUEST))
            return
        replica = ReplicaKey(replica_id, partition.replica_directory_id)
        wait_ms = message.max_wait_ms if len(self._parked) < PARKED_FETCHES_MAX else 0
        self._answer_or_park(_ParkedFetch(request, replica, partition, now_ms + wait_ms), now_ms)

    def _answer_or_park(self, fetch: _ParkedFetch, now_ms: int) -> None:
        answer = self._fetch_answer(fetch, now_ms)
        data = answer.responses[0].partitions[0]
        has_something = (
            data.error_code
            or len(data.records or b"")
            or data.diverging_epoch.epoch >= 0
            or data.snapshot_id.epoch >= 0
            or fetch.partition.high_watermark < data.high_watermark
        )
        if has_something or now_ms >= fetch.deadline_ms:
            self._raft.reply(fetch.request.token, answer)
        else:
            self._parked.append(fetch)

    def _fetch_answer(self, fetch: _ParkedFetch, now_ms: int) -> FetchResponse:
        raft, partition = self._raft, fetch.partition
        error = self._leader_error(partition.current_leader_epoch)
        if error is not None:
            return self._failed_fetch(fetch.request, error)
        leadership = raft.state.leadership
        assert leadership is not None
        data = PartitionData(log_start_offset=raft.log.start_offset, records=b"", aborted_transactions=None)
        latest = raft.log.latest_snapshot
        if partition.fetch_offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            data.snapshot_id = SnapshotId(end_offset=latest.offset, epoch=latest.epoch)
        else:
            check = check_position(raft.log, partition.fetch_offset, partition.last_fetched_epoch)
            if check.position is Position.DIVERGING:
                data.diverging_epoch = EpochEndOffset(epoch=check.end.epoch, end_offset=check.end.offset)
            elif check.position is Position.SNAPSHOT:
                data.snapshot_id = SnapshotId(end_offset=check.end.offset, epoch=check.end.epoch)
            else:
                if leadership.note_fetch(fetch.replica, partition.fetch_offset, raft.log.end_offset, now_ms):
                    raft.advance_high_watermark(leadership.high_watermark)
                max_bytes = min(max(fetch.request.message.max_bytes, 1), messages.ANSWER_BYTES_MAX)
                data.records = raft.log.read(partition.fetch_offset, max_bytes=max_bytes)
        data.high_watermark = -1 if leadership.high_watermark is None else leadership.high_watermark
        return messages.fetch_response(self._facts(fetch.request), fetch.request.version, data)

    def _failed_fetch(self, request: _Request, error: ErrorCode) -> FetchResponse:
        data = PartitionData(
            error_code=error, high_watermark=-1, log_start_offset=self._raft.log.start_offset, records=b"", aborted_transactions=None
        )
        return messages.fetch_response(self._facts(request), request.version, data)

    def _fetch_snapshot(self, request: _Request, now_ms: int) -> None:
        raft, message = self._raft, request.message
        partition = self._check(request, FetchSnapshotResponse)
        if partition is None:
            return
        data = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(unaligned_records=b"")
        error = self._leader_error(partition.current_leader_epoch)
        if error is None:
            snapshot = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            max_bytes = min(max(message.max_bytes, 1), messages.ANSWER_BYTES_MAX)
            found = None if snapshot == BOOTSTRAP_SNAPSHOT else raft.log.read_snapshot(snapshot, max(partition.position, 0), max_bytes)
            if found is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= partition.position < found[1]:
                error = ErrorCode.POSITION_OUT_OF_RANGE
            else:
                leadership = raft.state.leadership
                assert leadership is not None
                leadership.note_alive(ReplicaKey(message.replica_id, partition.replica_directory_id), now_ms)
                data.snapshot_id = fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
                data.size, data.position, data.unaligned_records = found[1], partition.position, found[0]
        data.error_code = error or ErrorCode.NONE
        raft.reply(request.token, messages.fetch_snapshot_response(self._facts(request), request.version, data))

    # -- inspection ------------------------------------------------------------------------------------------------

    def _describe_quorum(self, request: _Request, now_ms: int) -> None:
        raft = self._raft
        partition = messages.only_partition(request.message, request.message.topics)
        if partition is None:
            raft.reply(request.token, DescribeQuorumResponse(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=None))
            return
        leadership = raft.state.leadership
        data = describe_quorum.DescribeQuorumResponsePartitionData(partition_index=PARTITION, error_message=None)
        nodes = []
        if leadership is None:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            data.leader_id, data.leader_epoch = raft.leader_id, raft.epoch
            data.high_watermark = -1 if leadership.high_watermark is None else leadership.high_watermark
            data.current_voters = [self._described(each, leadership, request.version, now_ms) for each in leadership.voters.values()]
            data.observers = [self._described(each, leadership, request.version, now_ms) for each in leadership.observers.values()]
            nodes = messages.describe_quorum_nodes(raft.voters, request.version)
        topic = describe_quorum.DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[data])
        raft.reply(request.token, DescribeQuorumResponse(topics=[topic], nodes=nodes, error_message=None))

    def _described(self, progress: ReplicaProgress, leadership: Leadership, version: int, now_ms: int) -> describe_quorum.ReplicaState:
        to_wall_clock_ms = self._raft.to_wall_clock_ms
        is_leader = progress.is_replica(leadership.me.key)
        return describe_quorum.ReplicaState(
            replica_id=progress.key.node_id,
            replica_directory_id=progress.key.directory_id if version >= 2 else ZERO_UUID,
            log_end_offset=-1 if progress.end_offset is None else progress.end_offset,
            last_fetch_timestamp=_wall_clock_ms(now_ms if is_leader else progress.last_fetch_ms, to_wall_clock_ms),
            last_caught_up_timestamp=_wall_clock_ms(now_ms if is_leader else progress.last_caught_up_ms, to_wall_clock_ms),
        )

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check(self, request: _Request, response_class: Any) -> Any | None:
        """Returns the request's partition; None if the request was refused as a whole."""
        raft, message = self._raft, request.message
        if message.cluster_id is not None and message.cluster_id != raft.config.cluster_id:
            raft.reply(request.token, response_class(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return None
        partition = messages.only_partition(message, message.topics)
        if partition is None:
            raft.reply(request.token, response_class(error_code=ErrorCode.INVALID_REQUEST))
        return partition

    def _voter_error(self, epoch: int, node_id: int) -> ErrorCode | None:
        if epoch < self._raft.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else None

    def _leader_error(self, epoch: int) -> ErrorCode | None:
        raft = self._raft
        if epoch < raft.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > raft.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not raft.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if raft.is_stopping else None

    def _is_for_me(self, voter_id: int, directory_id: bytes) -> bool:
        """Whether the request's target is this replica. The sender may not know the directory, or (version 0) name no target."""
        me = self._raft.config.me
        return voter_id == NO_NODE or (voter_id == me.node_id and directory_id in (ZERO_UUID, me.directory_id))

    def _facts(self, request: _Request) -> LeaderFacts:
        state = self._raft.state
        return LeaderFacts(state.epoch, state.leader_id, state.leader_endpoints, request.listener_name)


def maybe_follow(raft: Raft, leader_id: int, epoch: int, endpoints: Any, now_ms: int) -> None:
    """Handle another node's statement that `leader_id` leads `epoch`, or (NO_NODE) that the epoch has begun: follow if it is new."""
    knows_better = leader_id != NO_NODE and len(endpoints) > len(raft.state.leader_endpoints) and isinstance(raft.state.role, Follower)
    if leader_id == raft.config.me.node_id:
        return  # the other node remembers an epoch of our leadership that has ended
    if epoch > raft.epoch:
        if leader_id != NO_NODE and endpoints:
            raft.become_follower(epoch, leader_id, endpoints, now_ms)
        else:
            raft.become_unattached(epoch, now_ms, leader_id=leader_id)
    elif epoch == raft.epoch and leader_id != NO_NODE and endpoints and not raft.is_leader:
        is_new = raft.leader_id == NO_NODE or not isinstance(raft.state.role, (Follower, Prospective))
        if raft.leader_id in (NO_NODE, leader_id) and (is_new or knows_better):
            raft.become_follower(epoch, leader_id, endpoints, now_ms)


def _wall_clock_ms(time_ms: int, to_wall_clock_ms: Callable[[int], int]) -> int:
    """Converts a monotonic time. -1 stays -1: the replica has never fetched, or never caught up."""
    return time_ms if time_ms < 0 else to_wall_clock_ms(time_ms)
