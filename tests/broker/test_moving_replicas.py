"""Replicas move between real processes while a producer goes on: nothing that was acknowledged is lost, nothing is left behind."""

from __future__ import annotations

import threading
from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.records import iterate_records
from tests.broker.test_controlled_shutdown import Producer
from tests.support.cluster import BARNABAS, BROKER_ONLY, Cluster
from tests.support.wire import WireClient

BROKER = {"process.roles": BROKER_ONLY}


def count_records(cluster: Cluster, node_id: int, topic_id: bytes) -> int:
    """Of the partition, up to the high watermark, read from its leader."""
    node, offset = cluster.nodes[node_id], 0
    with WireClient(node.host, node.port) as client:
        while True:
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
            request = FetchRequest(max_wait_ms=0, max_bytes=2**20, topics=[FetchTopic(topic_id=topic_id, partitions=[asked])])
            partition = client.request(request, 13).responses[0].partitions[0]
            assert partition.error_code == ErrorCode.NONE
            if not partition.records:
                return offset
            position, data = 0, memoryview(partition.records)
            while position < len(data):
                size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                offset += sum(1 for _ in iterate_records(data, position))
                position += size


def test_a_partition_moves_to_other_brokers_while_it_is_written_to(tmp_path: Path) -> None:
    roles = {2: BROKER, 3: BROKER, 4: BROKER}
    with Cluster(tmp_path, [BARNABAS] * 4, settings={"min.insync.replicas": "1"}, node_settings=roles) as cluster:
        cluster.create_topic("a", replication_factor=2)
        (topic,) = cluster.metadata("a").topics
        before = topic.partitions[0].replica_nodes
        target = sorted(set(cluster.brokers) - set(before))
        producer = Producer(cluster, "a")
        is_over = threading.Event()

        def produce() -> None:
            while not is_over.is_set():
                producer.produce()

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            partition = ReassignablePartition(partition_index=0, replicas=target)
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="a", partitions=[partition])])
            answer = cluster.ask(request, 0)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
            cluster.wait_for(lambda: cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == [], "the end of the move")
            cluster.wait_for(lambda: cluster.partition("a").replica_nodes == target, "all to know of it")
            cluster.wait_for(lambda: producer.leader in target, "the producer to find the new leader")
        finally:
            is_over.set()
            thread.join()

        cluster.wait_in_sync("a")
        left = before[0] if before[0] != 1 else before[1]
        acknowledged, refused = producer.outcomes[ErrorCode.NONE], producer.outcomes[ErrorCode.NOT_LEADER_OR_FOLLOWER]
        # What the old leader appended before it knew may be there although it was answered NOT_LEADER_OR_FOLLOWER.
        cluster.wait_readable("a", acknowledged)
        assert count_records(cluster, cluster.partition("a").leader_id, topic.topic_id) <= acknowledged + refused
        assert set(producer.outcomes) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        cluster.wait_for(lambda: not any(cluster.directory.glob(f"node{left}/**/a-0")), "the old replica's files to go")

        cluster.stop(left)
        answer = cluster.ask(UnregisterBrokerRequest(broker_id=left), 0)
        assert answer.error_code == ErrorCode.NONE
        cluster.wait_for(lambda: left not in [broker.node_id for broker in cluster.metadata("a").brokers], "the broker to be forgotten")
