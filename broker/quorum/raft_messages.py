"""The raft requests and their errors, each about the one partition of the metadata topic.

Builders fill in what every version of a message can carry; the endpoints of a leader are left out of versions without a place for them.
"""

from __future__ import annotations

from typing import Any

from broker.quorum.raft_log import METADATA_TOPIC, METADATA_TOPIC_ID, PARTITION, OffsetAndEpoch
from broker.quorum.voters import NO_NODE, Endpoints, ReplicaKey, VoterSet
from protocol.errors import ErrorCode
from protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)

FETCH_WAIT_MS = 500
ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Of the log or a snapshot in one answer, whatever is asked for: Kafka's nodes before 4.3 set no limit to a Fetch."""


# -- requests ------------------------------------------------------------------------------------------------------


def vote_request(
    cluster_id: str, epoch: int, me: ReplicaKey, to: ReplicaKey, end: OffsetAndEpoch, *, is_pre_vote: bool
) -> vote.VoteRequest:
    partition = vote.VoteRequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=me.node_id,
        replica_directory_id=me.directory_id,
        voter_directory_id=to.directory_id,
        last_offset_epoch=end.epoch,
        last_offset=end.offset,
        pre_vote=is_pre_vote,
    )
    topics = [vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=to.node_id, topics=topics)


def begin_quorum_epoch_request(
    cluster_id: str, epoch: int, leader_id: int, endpoints: Endpoints, to: ReplicaKey
) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
        partition_index=PARTITION, voter_directory_id=to.directory_id, leader_id=leader_id, leader_epoch=epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=to.node_id,
        topics=[begin_quorum_epoch.BeginQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[begin_quorum_epoch.LeaderEndpoint(name=name, host=host, port=port) for name, (host, port) in endpoints.items()],
    )


def end_quorum_epoch_request(
    cluster_id: str, epoch: int, leader_id: int, endpoints: Endpoints, successors: list[ReplicaKey]
) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        partition_index=PARTITION,
        leader_id=leader_id,
        leader_epoch=epoch,
        preferred_successors=[key.node_id for key in successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id) for key in successors
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[end_quorum_epoch.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[end_quorum_epoch.LeaderEndpoint(name=name, host=host, port=port) for name, (host, port) in endpoints.items()],
    )


def fetch_request(
    cluster_id: str, epoch: int, me: ReplicaKey, end: OffsetAndEpoch, high_watermark: int | None, max_bytes: int
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=end.offset,
        last_fetched_epoch=end.epoch,
        replica_directory_id=me.directory_id,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    topic = fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=me.node_id),
        max_wait_ms=FETCH_WAIT_MS,
        max_bytes=max_bytes,
        topics=[topic],
    )


def fetch_snapshot_request(
    cluster_id: str, epoch: int, me: ReplicaKey, snapshot: OffsetAndEpoch, position: int, max_bytes: int
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=me.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=me.node_id,
        max_bytes=max_bytes,
        topics=[fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def update_voter_request(
    cluster_id: str, epoch: int, me: ReplicaKey, endpoints: Endpoints, kraft_versions: tuple[int, int]
) -> update_raft_voter.UpdateRaftVoterRequest:
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=me.node_id,
        voter_directory_id=me.directory_id,
        listeners=[update_raft_voter.Listener(name=name, host=host, port=port) for name, (host, port) in endpoints.items()],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=kraft_versions[0], max_supported_version=kraft_versions[1]
        ),
    )


def add_voter_request(cluster_id: str, timeout_ms: int, me: ReplicaKey, endpoints: Endpoints) -> add_raft_voter.AddRaftVoterRequest:
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=me.node_id,
        voter_directory_id=me.directory_id,
        listeners=[add_raft_voter.Listener(name=name, host=host, port=port) for name, (host, port) in endpoints.items()],
        ack_when_committed=False,
    )


def remove_voter_request(cluster_id: str, voter: ReplicaKey) -> remove_raft_voter.RemoveRaftVoterRequest:
    return remove_raft_voter.RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter.node_id, voter_directory_id=voter.directory_id)


# -- what answers have in common -----------------------------------------------------------------------------------


class LeaderFacts:
    """The leader of the epoch, and its endpoint on the listener by which a request came. Every answer carries them."""

    __slots__ = ("address", "epoch", "leader_id")

    def __init__(self, epoch: int, leader_id: int, endpoints: Endpoints, listener_name: str) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.address = endpoints.get(listener_name) if leader_id != NO_NODE else None

    def endpoints(self, node_endpoint: Any, is_carried: bool) -> list[Any]:
        if self.address is None or not is_carried:
            return []
        host, port = self.address
        return [node_endpoint(node_id=self.leader_id, host=host, port=port)]


def vote_response(facts: LeaderFacts, version: int, error: ErrorCode, *, is_granted: bool = False) -> vote.VoteResponse:
    partition = vote.VoteResponsePartitionData(
        partition_index=PARTITION, error_code=error, leader_id=facts.leader_id, leader_epoch=facts.epoch, vote_granted=is_granted
    )
    return vote.VoteResponse(
        topics=[vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=facts.endpoints(vote.NodeEndpoint, version >= 1),
    )


def begin_quorum_epoch_response(facts: LeaderFacts, version: int, error: ErrorCode) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    partition = begin_quorum_epoch.BeginQuorumEpochResponsePartitionData(
        partition_index=PARTITION, error_code=error, leader_id=facts.leader_id, leader_epoch=facts.epoch
    )
    return begin_quorum_epoch.BeginQuorumEpochResponse(
        topics=[begin_quorum_epoch.BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=facts.endpoints(begin_quorum_epoch.NodeEndpoint, version >= 1),
    )


def end_quorum_epoch_response(facts: LeaderFacts, version: int, error: ErrorCode) -> end_quorum_epoch.EndQuorumEpochResponse:
    partition = end_quorum_epoch.EndQuorumEpochResponsePartitionData(
        partition_index=PARTITION, error_code=error, leader_id=facts.leader_id, leader_epoch=facts.epoch
    )
    return end_quorum_epoch.EndQuorumEpochResponse(
        topics=[end_quorum_epoch.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=facts.endpoints(end_quorum_epoch.NodeEndpoint, version >= 1),
    )


def fetch_response(facts: LeaderFacts, version: int, partition: fetch.PartitionData) -> fetch.FetchResponse:
    partition.partition_index = PARTITION
    partition.current_leader = fetch.LeaderIdAndEpoch(leader_id=facts.leader_id, leader_epoch=facts.epoch)
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(responses=[topic], node_endpoints=facts.endpoints(fetch.NodeEndpoint, version >= 16))


def fetch_snapshot_response(
    facts: LeaderFacts, version: int, partition: fetch_snapshot.FetchSnapshotResponsePartitionSnapshot
) -> fetch_snapshot.FetchSnapshotResponse:
    partition.index = PARTITION
    partition.current_leader = fetch_snapshot.LeaderIdAndEpoch(leader_id=facts.leader_id, leader_epoch=facts.epoch)
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=facts.endpoints(fetch_snapshot.NodeEndpoint, version >= 1),
    )


def update_voter_response(facts: LeaderFacts, error: ErrorCode) -> update_raft_voter.UpdateRaftVoterResponse:
    host, port = facts.address or ("", 0)
    leader = update_raft_voter.CurrentLeader(leader_id=facts.leader_id, leader_epoch=facts.epoch, host=host, port=port)
    return update_raft_voter.UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def describe_quorum_nodes(voters: VoterSet, version: int) -> list[describe_quorum.Node]:
    """Returns the voters' endpoints, which answers carry since version 2."""
    if version < 2:
        return []
    return [
        describe_quorum.Node(
            node_id=voter.key.node_id,
            listeners=[describe_quorum.Listener(name=name, host=host, port=port) for name, (host, port) in voter.endpoints.items()],
        )
        for voter in voters
    ]


def only_partition(message: Any, topics: Any) -> Any | None:
    """Returns the metadata partition's part of a request or response; None if it has any other partition, or none."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic = topics[0]
    name = getattr(topic, "topic_name", None) or getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name != METADATA_TOPIC and getattr(topic, "topic_id", None) != METADATA_TOPIC_ID:
        return None
    partition = topic.partitions[0]
    index = next(getattr(partition, field) for field in ("partition_index", "partition", "index") if hasattr(partition, field))
    return partition if index == PARTITION else None
