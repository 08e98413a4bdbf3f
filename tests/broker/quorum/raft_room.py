"""Room: one raft replica whose peers are played by a test."""

from __future__ import annotations

import random
from typing import Any

from broker.quorum import raft_messages as messages
from broker.quorum.raft import Outgoing, RaftConfig
from broker.quorum.raft_log import ControlRecord, OffsetAndEpoch
from broker.quorum.raft_state import Follower, Vote
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, PartitionData
from protocol.messages.stored.control_records import KRaftVersionRecord
from protocol.messages.vote import VoteRequest
from protocol.records import ControlRecordType
from protocol.schema import schema_of
from tests.broker.quorum.memory_log import Entry, MemoryRaftLog, Slice

LISTENER, CLUSTER = "CONTROLLER", "cluster"
ELECTION_MS, FETCH_MS = 1_000, 2_000
FETCH_BYTES, SNAPSHOT_BYTES = 70_000, 80_000


def endpoints(node_id: int) -> dict[str, tuple[str, int]]:
    return {LISTENER: ("host", node_id)}


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


class Room:
    """Replica 1 of voters 1, 2, 3; the test plays the others. `knows_voters`: False for a replica whose log has not told it the voters."""

    def __init__(
        self,
        *,
        vote: Vote | None = None,
        entries: list[Entry] | None = None,
        voters: int = 3,
        is_reconfigurable: bool = False,
        knows_voters: bool = True,
    ) -> None:
        self.now_ms = 0
        self.log = MemoryRaftLog()
        self.log.entries = list(entries or [])
        self.log.durable_end_offset = self.log.end_offset
        self.votes: list[Vote] = []
        self.sent: list[Outgoing] = []
        self.replies: list[Any] = []
        records: list[ControlRecord] = []
        if is_reconfigurable:  # as the snapshot says that formatting leaves
            voter_set = VoterSet(Voter(key(node_id), endpoints(node_id), (0, 1)) for node_id in range(1, voters + 1))
            records.append(ControlRecord(-1, ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=1)))
            records.append(ControlRecord(-1, ControlRecordType.KRAFT_VOTERS, voter_set.to_record()))
        config = RaftConfig(
            me=key(1),
            cluster_id=CLUSTER,
            listener_name=LISTENER,
            endpoints=endpoints(1),
            bootstrap=[("host", node_id) for node_id in range(2, voters + 1)],
            static_voters=VoterSet(Voter(ReplicaKey(node_id), endpoints(node_id)) for node_id in range(1, voters + 1) if knows_voters),
            election_timeout_ms=ELECTION_MS,
            fetch_timeout_ms=FETCH_MS,
            fetch_max_bytes=FETCH_BYTES,
            fetch_snapshot_max_bytes=SNAPSHOT_BYTES,
        )
        self.replica = RaftReplica(config, self.log, vote, records, random_source=random.Random(1), now_ms=0)
        self.take()

    @property
    def raft(self) -> Any:
        return self.replica.raft

    def take(self) -> list[Outgoing]:
        """What a driver does; returns the requests of this step."""
        ready = self.replica.take_ready()
        if ready.vote is not None:
            self.votes.append(ready.vote)
        self.sent += ready.outgoing
        self.replies += [reply.response for reply in ready.replies]
        return ready.outgoing

    def pass_time(self, ms: int) -> list[Outgoing]:
        self.now_ms += ms
        self.replica.poll(self.now_ms)
        return self.take()

    def flush(self) -> list[Outgoing]:
        self.log.durable_end_offset = self.log.end_offset
        self.replica.log_is_durable(self.now_ms)
        return self.take()

    def ask(self, request: Any) -> Any:
        """The answer of replica 1, None when it is parked."""
        before = len(self.replies)
        self.replica.handle_request("token", request, schema_of(type(request)).versions[1], LISTENER, self.now_ms)
        self.take()
        return self.replies[-1] if len(self.replies) > before else None

    def answer(self, outgoing: Outgoing, response: Any | None) -> list[Outgoing]:
        self.replica.handle_response(outgoing, response, self.now_ms)
        return self.take()

    def vote_request(self, candidate: int, epoch: int, end: OffsetAndEpoch, *, is_pre_vote: bool = False) -> Any:
        request = messages.vote_request(CLUSTER, epoch, key(candidate), ReplicaKey(1), end, is_pre_vote=is_pre_vote)
        return self.ask(request).topics[0].partitions[0]

    def follow(self, leader: int, epoch: int) -> None:
        self.ask(messages.begin_quorum_epoch_request(CLUSTER, epoch, leader, endpoints(leader), ReplicaKey(1)))
        assert isinstance(self.raft.state.role, Follower)

    def fetched(self, leader: int, epoch: int, data: PartitionData) -> list[Outgoing]:
        """Answer the fetch that is under way."""
        facts = messages.LeaderFacts(epoch, leader, endpoints(leader), LISTENER)
        fetch = next(each for each in reversed(self.sent) if isinstance(each.request, FetchRequest))
        return self.answer(fetch, messages.fetch_response(facts, 17, data))

    def win(self) -> None:
        """Become leader by the votes of node 2."""
        self.pass_time(2 * ELECTION_MS + FETCH_MS)
        for _ in range(2):
            request = next(each for each in reversed(self.sent) if isinstance(each.request, VoteRequest) and each.node.node_id == 2)
            facts = messages.LeaderFacts(self.raft.epoch, -1, {}, LISTENER)
            self.answer(request, messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=True))
        assert self.raft.is_leader
        self.flush()

    def fetch_from(self, follower: int, offset: int, last_epoch: int, *, wait_ms: int = 500, max_bytes: int = 1000) -> Any:
        request = messages.fetch_request(
            CLUSTER, self.raft.epoch, key(follower), OffsetAndEpoch(offset, last_epoch), self.raft.high_watermark, max_bytes
        )
        request.max_wait_ms = wait_ms
        response = self.ask(request)
        return None if response is None else response.responses[0].partitions[0]


def data(*entries: Entry, at: int = 0, high_watermark: int = -1) -> PartitionData:
    return PartitionData(records=Slice(at, list(entries)), high_watermark=high_watermark)
