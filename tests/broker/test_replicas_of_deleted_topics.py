"""A topic is deleted and made anew while a broker that has had a replica of it is away: nothing of the old one comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch, iterate_headers, iterate_records
from tests.support.cluster import BARNABAS, BROKER_ONLY, Cluster
from tests.support.wire import WireClient

PREFERRED = 0
ACKS_ALL = -1
OLD = [f"old-{number}" for number in range(60)]
NEW = [f"new-{number}" for number in range(20)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Four brokers, the first three of which vote. Broker 3 has 60 records of a topic that was moved away from it while it was down,
    and deleted when it had come back."""
    with Cluster(tmp_path, [BARNABAS] * 4, node_settings={4: {"process.roles": BROKER_ONLY}}) as cluster:
        cluster.create_topic("a", assignment=[[1, 2, 3]])
        produce(cluster, OLD)
        cluster.kill(3)
        cluster.wait_for(lambda: 3 not in cluster.partition("a").isr_nodes, "broker 3 to leave the ISR")
        reassign(cluster, [1, 2, 4])
        cluster.start(3)
        cluster.wait_known("a", lambda partition: partition.replica_nodes == [1, 2, 4], "all to know of the move")
        assert cluster.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=10_000), 6).responses[0].error_code == 0
        cluster.wait_for(lambda: not any(cluster.directory.glob("node1/**/a-0")), "the topic's files to go")
        yield cluster


def test_replica_that_comes_back_to_a_topic_made_anew_begins_empty(cluster: Cluster) -> None:
    cluster.create_topic("a", assignment=[[1, 2, 4]])
    produce(cluster, NEW)

    reassign(cluster, [3, 1, 2])
    lead_by_the_first(cluster)

    assert [consume(cluster, node_id) for node_id in (3, 1, 2)] == [NEW] * 3
    assert len(list(cluster.directory.glob("node3/**/a-0.*-stray"))) == 1


def test_topic_made_anew_where_an_old_replica_lies_begins_empty(cluster: Cluster) -> None:
    cluster.create_topic("a", assignment=[[3, 1, 2]])

    produce(cluster, NEW)

    assert [consume(cluster, node_id) for node_id in (3, 1, 2)] == [NEW] * 3


def produce(cluster: Cluster, values: list[str]) -> None:
    """A batch for each, with acks=all."""
    leader = cluster.nodes[cluster.partition("a").leader_id]
    with WireClient(leader.host, leader.port) as client:
        for value in values:
            records = build_batch([SimpleRecord(None, value.encode(), (), 0)])
            topic = TopicProduceData(name="a", partition_data=[PartitionProduceData(index=0, records=records)])
            response = client.request(ProduceRequest(acks=ACKS_ALL, timeout_ms=30_000, topic_data=[topic]), 9)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def reassign(cluster: Cluster, replicas: list[int]) -> None:
    """Move the partition, and wait until it has moved."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="a", partitions=[partition])])
    assert cluster.ask(request, 0).responses[0].partitions[0].error_code == ErrorCode.NONE
    cluster.wait_for(lambda: cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == [], "the end of the move")
    cluster.wait_in_sync("a")


def lead_by_the_first(cluster: Cluster) -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[TopicPartitions(topic="a", partitions=[0])], timeout_ms=10_000)
    assert cluster.ask(request, 2).error_code == ErrorCode.NONE
    first = cluster.partition("a").replica_nodes[0]
    cluster.wait_known("a", lambda partition: partition.leader_id == first, "the preferred leader to lead")


def consume(cluster: Cluster, node_id: int) -> list[str]:
    """What a consumer reads from this replica, as many records as are committed: followers serve those that are in their rack, which no
    broker has here, so each is made the leader first."""
    others = [each for each in cluster.partition("a").replica_nodes if each != node_id]
    if cluster.partition("a").leader_id != node_id:
        reassign(cluster, [node_id, *others])
        lead_by_the_first(cluster)
    cluster.wait_readable("a", len(NEW))
    node = cluster.nodes[node_id]
    values: list[str] = []
    with WireClient(node.host, node.port) as client:
        while True:
            asked = FetchPartition(partition=0, fetch_offset=len(values), partition_max_bytes=2**20)
            topics = [FetchTopic(topic="a", partitions=[asked])]
            answer = client.request(FetchRequest(max_wait_ms=0, max_bytes=2**20, topics=topics), 12).responses[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            if not answer.records:
                return values
            data = bytes(answer.records)
            values += [_text(record.value) for position, _ in iterate_headers(data) for record in iterate_records(data, position)]


def _text(value: object) -> str:
    assert isinstance(value, bytes | memoryview)
    return bytes(value).decode()
