"""A session over a cluster: three nodes of one kind on this machine, each broker and voter, as its default settings have them.

Node 1 leads partition 0 of every topic, and clients connect to it, so that a client with one connection need not look for the leader. CPU
and memory are those of all nodes together.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from bench.clients.wire import WireClient
from bench.session import LATEST, LEADERS_TIMEOUT_S, MeasurementError, Session
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.cluster import Cluster
from tests.support.process import ServerProcess

NODES = 3
"""Also the replication factor. min.insync.replicas is 2."""
FIRST_NODE = 1
RETRY_S = 0.05


@dataclass(slots=True)
class ClusterSession(Session):
    """Three running nodes under measurement. All replicas of a topic are in sync when a measurement with it begins."""

    _cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "the session is not open"
        return self._cluster

    @property
    def server(self) -> ServerProcess:
        """The node that leads partition 0."""
        return self.cluster.nodes[FIRST_NODE]

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(node.pid for node in self.cluster.nodes.values())

    def open(self) -> Self:
        try:
            self._cluster = self.product.cluster(self.directory / "cluster", NODES, self.settings)
            self._cluster.start()
        except AssertionError as e:
            self.close()
            raise MeasurementError(f"no cluster of {self.product.title}: {e}") from e
        return self

    def close(self) -> None:
        """Kills the nodes and removes their data."""
        if self._cluster is not None:
            self._cluster.close()
        shutil.rmtree(self.directory / "cluster", ignore_errors=True)

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic with a replica on each node, led by the nodes in turn; returns when all replicas are in sync."""
        nodes = list(self.cluster.nodes)
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[nodes[(index + place) % NODES] for place in range(NODES)])
            for index in range(partitions)
        ]
        topic_configs = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=topic_configs)
        with self.wire() as client:
            created = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5).topics[0]
        if created.error_code:
            raise MeasurementError(f"topic {name} was not created: error {created.error_code} {created.error_message}")
        try:
            self.cluster.wait_in_sync(name)
        except AssertionError as e:
            raise MeasurementError(str(e)) from e

    def end_offsets(self, name: str, partitions: int = 1) -> int:
        """The sum of the partitions' high watermarks, each as its leader knows it."""
        return sum(self._end_offset(name, partition) for partition in range(partitions))

    def _end_offset(self, name: str, partition: int) -> int:
        asked = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)])
        deadline_s = time.monotonic() + LEADERS_TIMEOUT_S
        while True:
            leader = self.cluster.nodes[self.cluster.partition(name, partition).leader_id]
            with WireClient(leader.host, leader.port) as client:
                answer = client.request(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5).topics[0].partitions[0]
            if not answer.error_code:
                return int(answer.offset)
            if time.monotonic() > deadline_s:
                raise MeasurementError(f"{name}-{partition}: ListOffsets says error {answer.error_code}")
            time.sleep(RETRY_S)  # leadership has just moved
