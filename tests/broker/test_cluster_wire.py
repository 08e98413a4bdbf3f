"""What three processes of one cluster answer over the wire: who leads, producer ids, and batches that come twice, also after a kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.image import NO_LEADER
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.support.cluster import Cluster

TOPIC = "t"
PRODUCE_VERSIONS = (9, 10, 12)  # v10 first tells the leader
FETCH_VERSIONS = (15, 16, 17)  # v16 does
LEADER_TOLD_FROM = {ProduceRequest: 10, FetchRequest: 16}
IDS_PER_BLOCK = 1000
NOBODY = -1
LATEST = -1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One partition on two of three brokers."""
    with Cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, replication_factor=2, config={"min.insync.replicas": "1"})
        yield cluster


def topic_id(cluster: Cluster) -> bytes:
    found: bytes = cluster.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics[0].topic_id
    return found


def produce(cluster: Cluster, node_id: int, records: bytes, version: int) -> Any:
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
    return cluster.ask_node(node_id, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), version)


def fetch(cluster: Cluster, node_id: int, version: int, *, leader_epoch: int = -1) -> Any:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch)
    topics = [FetchTopic(topic_id=topic_id(cluster), partitions=[asked])]
    return cluster.ask_node(node_id, FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics), version)


def batch(*texts: str, **fields: int) -> bytes:
    return bytes(build_batch([SimpleRecord(None, text.encode()) for text in texts], **fields))


def end_offset(cluster: Cluster, node_id: int) -> int:
    """Of the leader's log, as far as it is committed."""
    asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    (topic,) = cluster.ask_node(node_id, ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics
    offset: int = topic.partitions[0].offset
    return offset


def assert_leader_is_named(cluster: Cluster, response: Any, partition: Any, *, is_told: bool) -> None:
    leader = cluster.partition(TOPIC)
    if not is_told:
        assert (partition.current_leader.leader_id, response.node_endpoints) == (NOBODY, [])
        return
    node = cluster.nodes[leader.leader_id]
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (leader.leader_id, leader.leader_epoch)
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(leader.leader_id, node.host, node.port)]


def assert_all_others_name_the_leader(cluster: Cluster) -> None:
    placed = cluster.partition(TOPIC)
    for node_id in cluster.running:
        if node_id == placed.leader_id:
            continue
        for version in PRODUCE_VERSIONS:
            response = produce(cluster, node_id, batch("x"), version)
            (partition,) = response.responses[0].partition_responses
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert_leader_is_named(cluster, response, partition, is_told=version >= LEADER_TOLD_FROM[ProduceRequest])
        for version in FETCH_VERSIONS:
            response = fetch(cluster, node_id, version)
            (partition,) = response.responses[0].partitions
            if node_id in placed.replica_nodes:  # a follower serves consumers
                assert partition.error_code == ErrorCode.NONE
                continue
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert_leader_is_named(cluster, response, partition, is_told=version >= LEADER_TOLD_FROM[FetchRequest])


def test_brokers_that_do_not_lead_name_the_leader_before_and_after_it_dies(cluster: Cluster) -> None:
    assert_all_others_name_the_leader(cluster)

    before = cluster.partition(TOPIC)
    cluster.kill(before.leader_id)
    cluster.wait_known(TOPIC, lambda partition: partition.leader_id not in (before.leader_id, NOBODY), "another leader")
    new = cluster.partition(TOPIC)
    others = [node_id for node_id in cluster.running if node_id != new.leader_id]

    def all_know() -> bool:
        return all(fetch(cluster, node_id, 16).responses[0].partitions[0].current_leader.leader_id == new.leader_id for node_id in others)

    cluster.wait_for(all_know, "the others to hear of it")
    assert_all_others_name_the_leader(cluster)
    # A consumer of the epoch before is told the same.
    response = fetch(cluster, new.leader_id, 16, leader_epoch=before.leader_epoch)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert_leader_is_named(cluster, response, partition, is_told=True)


def test_producer_ids_of_all_brokers_are_different_also_after_a_restart(cluster: Cluster) -> None:
    def blocks_of(node_id: int) -> set[int]:
        ids = [cluster.ask_node(node_id, InitProducerIdRequest(transactional_id=None), 4) for _ in range(3)]
        assert [(each.error_code, each.producer_epoch) for each in ids] == [(ErrorCode.NONE, 0)] * 3
        assert len({each.producer_id for each in ids}) == 3
        return {each.producer_id // IDS_PER_BLOCK for each in ids}

    blocks = [blocks_of(node_id) for node_id in (1, 2, 3)]
    cluster.restart(2, hard=True)
    blocks.append(blocks_of(2))

    assert sorted(block for each in blocks for block in each) == [0, 1, 2, 3]


def test_a_new_leader_knows_a_batch_that_the_dead_one_acknowledged(cluster: Cluster) -> None:
    producer_id = cluster.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
    first = batch("a", "b", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    second = batch("c", producer_id=producer_id, producer_epoch=0, base_sequence=2)
    dead = cluster.partition(TOPIC).leader_id
    for records in (first, second):
        assert produce(cluster, dead, records, 12).responses[0].partition_responses[0].error_code == ErrorCode.NONE

    cluster.kill(dead)

    def find_new_leader() -> int:
        leader_id = cluster.partition(TOPIC).leader_id
        return leader_id if leader_id not in (dead, NO_LEADER) else 0

    leader = cluster.wait_for(find_new_leader, "another leader")

    def answer(records: bytes) -> tuple[int, int]:
        (partition,) = produce(cluster, leader, records, 12).responses[0].partition_responses
        return partition.error_code, partition.base_offset

    cluster.wait_for(lambda: answer(first) == (ErrorCode.NONE, 0), "the new leader to lead")
    assert answer(second) == (ErrorCode.NONE, 2)
    assert answer(batch("d", producer_id=producer_id, producer_epoch=0, base_sequence=3)) == (ErrorCode.NONE, 3)
    assert end_offset(cluster, leader) == 4
