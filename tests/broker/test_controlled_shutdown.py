"""A leader that is asked to stop hands its partitions over first: producers see no other error than NOT_LEADER_OR_FOLLOWER."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.support.cluster import Cluster
from tests.support.wire import WireClient

BATCH = bytes(build_batch([SimpleRecord(None, b"x" * 100, (), 0)]))


class Producer:
    """Sends to the leader that it knows of, one request after another, with acks=all. Asks anew, another node, when that leads no more."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.outcomes: Counter[ErrorCode] = Counter()
        self.leader = cluster.partition(topic).leader_id

    def produce(self) -> ErrorCode:
        node = self._cluster.nodes[self.leader]
        topic = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=BATCH)])
        try:
            client = WireClient(node.host, node.port)
        except ConnectionRefusedError:  # it has gone since the last request
            self._find_leader()
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        with client:
            response = client.request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        self.outcomes[code] += 1
        if code is not ErrorCode.NONE:
            self._find_leader()
        return code

    def _find_leader(self) -> None:
        other = next(node_id for node_id in self._cluster.running if node_id != self.leader)
        answer = self._cluster.ask_node(other, MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)]), 12)
        self.leader = answer.topics[0].partitions[0].leader_id


def test_the_stop_of_a_leader_costs_producers_nothing_but_a_new_leader(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("a")
        producer = Producer(cluster, "a")
        first = producer.leader
        producer.produce()

        statuses: list[int] = []
        stop = threading.Thread(target=lambda: statuses.append(cluster.nodes[first].stop()))
        stop.start()
        while producer.leader == first:
            producer.produce()
        stop.join()
        cluster.wait_for(lambda: producer.produce() is ErrorCode.NONE, "the new leader to know that it leads")
        later = [producer.produce() for _ in range(20)]
        cluster.start(first)
        cluster.wait_in_sync("a")

        assert statuses == [0]
        assert set(producer.outcomes) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert later == [ErrorCode.NONE] * 20

        answer = cluster.ask(ElectLeadersRequest(topic_partitions=None), 2)
        assert answer.error_code == ErrorCode.NONE
        cluster.wait_for(lambda: cluster.partition("a").leader_id == first, "the preferred replica to lead again")
