"""DeleteRecords up to an offset within a batch: replicas that begin anew there get in sync, between real processes.

Kafka Streams trims its repartition topics so all the time. A replica that has nothing of the log begins with the whole batch that holds
the log's start (kafka.cluster.Partition.appendRecordsToFollowerOrFutureReplica), and then takes over the leader's start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.faults.replicas import differences
from tests.support.cluster import Cluster

EARLIEST = -2
TIMEOUT_MS = 30_000
IN_SYNC_MAX_S = 30.0  # it takes a second; before the mend it took for ever


def produce(cluster: Cluster, count: int) -> None:
    """One batch of `count` records, acknowledged by all that are in sync."""
    records = bytes(build_batch([SimpleRecord(None, b"%d" % number, (), 0) for number in range(count)]))
    topic = TopicProduceData(name="a", partition_data=[PartitionProduceData(index=0, records=records)])

    def is_acknowledged() -> bool:
        response = cluster.ask_node(cluster.partition("a").leader_id, ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic]), 9)
        return bool(response.responses[0].partition_responses[0].error_code == ErrorCode.NONE)

    cluster.wait_for(is_acknowledged, "the batch to be acknowledged")


def delete_records(cluster: Cluster, offset: int) -> tuple[int, int]:
    """Error code and low watermark."""
    topic = DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    leader = cluster.partition("a").leader_id
    result = cluster.ask_node(leader, DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2).topics[0].partitions[0]
    return result.error_code, result.low_watermark


def earliest(cluster: Cluster) -> int:
    asked = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)])
    answer = cluster.ask_node(cluster.partition("a").leader_id, ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    return int(answer.topics[0].partitions[0].offset)


def reassign(cluster: Cluster, *replicas: int) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="a", partitions=[partition])])
    assert cluster.ask(request, 0).responses[0].partitions[0].error_code == ErrorCode.NONE
    is_over = ListPartitionReassignmentsRequest(topics=None)
    cluster.wait_for(lambda: cluster.ask(is_over, 0).topics == [], "the reassignment to end", timeout_s=IN_SYNC_MAX_S)


def check_equal(cluster: Cluster, newest: int, *, start: int, end: int) -> None:
    """Every replica is in sync with the same batches; then `newest` leads, from the same start on, and deletes and appends further."""
    cluster.wait_in_sync("a", timeout_s=IN_SYNC_MAX_S)
    cluster.wait_readable("a", end)
    assert differences(cluster, "a", {0: end}) == []
    assert earliest(cluster) == start

    reassign(cluster, newest, *(node_id for node_id in cluster.nodes if node_id != newest))
    assert cluster.ask(ElectLeadersRequest(topic_partitions=None), 2).error_code == ErrorCode.NONE
    cluster.wait_known("a", lambda partition: partition.leader_id == newest, "the new one to lead")
    cluster.wait_readable("a", end)
    assert earliest(cluster) == start
    assert delete_records(cluster, start + 1) == (ErrorCode.NONE, start + 1)
    produce(cluster, 2)
    cluster.wait_in_sync("a", timeout_s=IN_SYNC_MAX_S)
    cluster.wait_readable("a", end + 2)
    assert differences(cluster, "a", {0: end + 2}) == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings={"min.insync.replicas": "2", "auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def test_a_new_replica_gets_in_sync(cluster: Cluster) -> None:
    cluster.create_topic("a", assignment=[[1, 2]])
    produce(cluster, 100)
    assert delete_records(cluster, 50) == (ErrorCode.NONE, 50)
    produce(cluster, 10)

    reassign(cluster, 1, 2, 3)

    check_equal(cluster, 3, start=50, end=110)


def test_a_replica_that_was_down_meanwhile_gets_in_sync(cluster: Cluster) -> None:
    cluster.create_topic("a", assignment=[[1, 2, 3]])
    produce(cluster, 10)
    cluster.kill(3)
    produce(cluster, 100)
    cluster.wait_known("a", lambda partition: 3 not in partition.isr_nodes, "the dead one to leave the ISR")
    assert delete_records(cluster, 60)[0] in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)  # Kafka counts replicas that live
    produce(cluster, 10)

    cluster.start(3)

    check_equal(cluster, 3, start=60, end=120)


def test_a_replica_that_comes_after_the_deletion_counts_for_the_minimum_and_for_later_deletions(cluster: Cluster) -> None:
    """min.insync.replicas=2 and two replicas: with the new one instead of the old, acks=all and DeleteRecords go on."""
    cluster.create_topic("a", assignment=[[1, 2]])
    produce(cluster, 100)
    assert delete_records(cluster, 50) == (ErrorCode.NONE, 50)
    reassign(cluster, 1, 2, 3)
    cluster.wait_in_sync("a", timeout_s=IN_SYNC_MAX_S)

    cluster.kill(2)

    produce(cluster, 10)
    cluster.wait_known("a", lambda partition: 2 not in partition.isr_nodes, "the dead one to leave the ISR")
    assert delete_records(cluster, 70) == (ErrorCode.NONE, 70)
    assert earliest(cluster) == 70
