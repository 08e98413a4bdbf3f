"""What an operator does to a replica's files while its broker is down: its directory is lost, or replaced by a copy of the leader's.

Nobody tells the cluster. So the replica must have left the ISR first, and others must have all that is committed; whoever wipes the last
replica that is in sync loses records, in Kafka too.
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from broker.metadata.image import PartitionImage
from tests.simulation.cluster_watch import ClusterWatch
from tests.simulation.node import Node

LOOKS_MAX, LOOK_INTERVAL_S = 60, 0.1
CUT_SHARE = 0.5  # of the copies end within a batch, as of a log that grows meanwhile


class Replica(NamedTuple):
    """One that is in sync, as all of its partition are."""

    topic: str
    topic_id: bytes
    partition: int
    node: Node


class ReplicaLoss:
    """Chooses replicas on `brokers` and does the harm. Its caller starts the broker again."""

    def __init__(self, brokers: list[Node], watch: ClusterWatch, draw: random.Random) -> None:
        self._brokers = brokers
        self._watch = watch
        self._draw = draw

    async def wipe(self) -> Node | None:
        """A broker that is down, and one of its replicas is gone. None if no replica could be spared."""
        found = await self._take_away()
        if found is None:
            return None
        replica, path, _ = found
        replica.node.wipe(path)
        return replica.node

    async def copy(self) -> Node | None:
        """The same, with a copy of the leader's files in its place."""
        found = await self._take_away()
        if found is None:
            return None
        replica, path, leader = found
        source = leader.find_partition(replica.topic, replica.partition)
        files = {} if source is None else leader.files(source)
        replica.node.wipe(path)
        if files:
            last = max((name for name in files if name.endswith(".log")), default="")
            if last and self._draw.random() < CUT_SHARE:
                files[last] = files[last][: self._draw.randint(0, len(files[last]))]
            replica.node.copy_files(path, files)
        return replica.node

    async def _take_away(self) -> tuple[Replica, str, Node] | None:
        """A replica, its directory and its leader's node, once its broker is down and out of the ISR."""
        replica = self._find_replica()
        if replica is None:
            return None
        replica.node.kill()
        for _ in range(LOOKS_MAX):
            await asyncio.sleep(LOOK_INTERVAL_S)
            image = self._image_of(replica)
            leader = None if image is None else next((each for each in self._brokers if each.node_id == image.leader), None)
            if image is None or leader is None or replica.node.is_up:
                continue
            if replica.node.is_ailing or leader.is_ailing:  # nobody removes or copies the files of a disk that fails
                break
            if replica.node.node_id not in image.isr:
                path = replica.node.find_partition(replica.topic, replica.partition)
                if path is None:
                    break
                return replica, path, leader
        replica.node.start()
        return None

    def _find_replica(self) -> Replica | None:
        host = self._watch.controller_host
        publisher = None if host is None else self._watch.publishers.get(host)
        if publisher is None:
            return None
        by_id = {node.node_id: node for node in self._brokers if node.is_running}
        found = [
            Replica(topic.name, bytes(topic.topic_id), index, by_id[node_id])
            for topic in publisher._cache.state.topics.values()
            for index, image in enumerate(topic.partitions)
            if len(image.isr) > 1 and set(image.isr) == set(image.replicas)
            for node_id in image.isr
            if node_id in by_id and by_id[node_id].find_partition(topic.name, index) is not None
        ]
        return self._draw.choice(found) if found else None

    def _image_of(self, replica: Replica) -> PartitionImage | None:
        """The partition as the active controller has committed it."""
        host = self._watch.controller_host
        publisher = None if host is None else self._watch.publishers.get(host)
        topic = None if publisher is None else publisher._cache.state.topics_by_id.get(replica.topic_id)
        return None if topic is None else topic.partitions[replica.partition]
