"""What operators do while a broker is away: faults of several steps, each begun with a broker that is down and ended with its return.

remake-topic: a topic is deleted and made anew under its name, perhaps after it was moved away from the broker, which leads it in the end.
move-away: the replicas of a broker that is down move to others, and back when it is there again.
trim: records are deleted up to an offset within a batch while a follower is behind.
wipe-replica, copy-replica: the directory of a replica is lost, or replaced by a copy of the leader's that is still written to.
silence-brokers: all brokers but the active controller's stand still together; when all are back, one of them hangs, and has to be fenced.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence

from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.faults.side_topics import PARTITION, SideTopic
from tests.support.cluster import Cluster

REMADE, TRIMMED = "remade", "trimmed"
PREFERRED = 0
REPLICAS_MAX = 3
RECORDS_OF_A_LIFE = 20
BATCH_RECORDS = 10
SESSION_DEFAULT_MS = 9_000
FENCED_SPARE_S = 15.0  # beside two sessions: slow machines stand still for seconds

Places = Mapping[int, Sequence[int]]
"""The replicas of partitions of one topic, by index."""


class Operations:
    """Owner: Nemesis. `topic` is the one that the clients write to. Each operation is a method that strikes and one that heals."""

    def __init__(self, cluster: Cluster, topic: str, draw: random.Random, side_config: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._random = draw
        self._remade = SideTopic(cluster, REMADE, side_config)
        self._trimmed = SideTopic(cluster, TRIMMED, side_config)
        self._places: dict[int, list[int]] = {}  # where the partitions were before they moved away

    @property
    def side_topics(self) -> tuple[SideTopic, ...]:
        return self._remade, self._trimmed

    # -- who is struck ---------------------------------------------------------------------------------------------

    def a_broker(self) -> tuple[int, ...]:
        """One that may be away: there is a controller without it."""
        return (self._random.choice(self._expendable()),)

    def a_trimmed_follower(self) -> tuple[int, ...]:
        """The same, of those that follow in the topic whose records are deleted, which is made if it is not there."""
        expendable = self._expendable()
        if not self._trimmed.is_made:
            self._trimmed.make(sorted(self._draw_replicas(self._cluster.brokers), key=lambda node_id: node_id in expendable))
        replicas = [node_id for node_id in self._trimmed.replicas if node_id in expendable]

        def find_followers() -> list[int]:
            leader_id = self._elect_preferred(TRIMMED)
            return [node_id for node_id in replicas if node_id != leader_id]

        return (self._random.choice(self._cluster.wait_for(find_followers, f"a follower of {TRIMMED}")),)

    def _expendable(self) -> list[int]:
        controllers = self._cluster.controller_ports
        return [node_id for node_id in sorted(self._cluster.brokers) if node_id not in controllers or len(controllers) > 2]

    def brokers_apart_from_the_controller(self) -> tuple[int, ...]:
        controller_id = self._cluster.controller_id()
        return tuple(node_id for node_id in self._cluster.brokers if node_id != controller_id)

    # -- remake-topic ----------------------------------------------------------------------------------------------

    def remake(self, away_id: int) -> None:
        if not self._remade.is_made:
            self._remade.make([away_id, *self._draw_replicas(self._others(away_id))][: self._replicas_count])
        self._remade.write(RECORDS_OF_A_LIFE)
        self._cluster.kill(away_id)
        if self._random.random() < 0.5:
            self._reassign(REMADE, {PARTITION: self._draw_replicas(self._others(away_id))})
            if self._random.random() < 0.5:
                self._cluster.start(away_id)  # with a log that is nobody's any more
        self._remade.delete()
        self._remade.make(self._draw_replicas(self._others(away_id)))
        self._remade.write(RECORDS_OF_A_LIFE)

    def let_it_lead(self, away_id: int) -> None:
        """The broker that was away leads the topic's new life."""
        if away_id not in self._cluster.running:
            self._cluster.start(away_id)
        replicas = [away_id, *self._draw_replicas(self._others(away_id))][: self._replicas_count]
        self._reassign(REMADE, {PARTITION: replicas})
        self._cluster.wait_in_sync(REMADE)
        self._cluster.wait_for(lambda: self._elect_preferred(REMADE) == away_id, f"broker {away_id} to lead {REMADE}")
        self._remade.write(BATCH_RECORDS)

    # -- move-away -------------------------------------------------------------------------------------------------

    def move_away(self, node_id: int) -> None:
        self._places = self._replicas_of(self._topic)
        self._cluster.kill(node_id)
        self._reassign(self._topic, {index: self._without(replicas, node_id) for index, replicas in self._places.items()})

    def move_back(self, node_id: int) -> None:
        self._cluster.start(node_id)
        self._reassign(self._topic, self._places)

    def _without(self, replicas: Sequence[int], node_id: int) -> list[int]:
        """The same with another broker in its place, or with none if there is no other."""
        left = [each for each in replicas if each != node_id]
        others = [each for each in self._others(node_id) if each not in replicas]
        return [*left, self._random.choice(others)] if len(left) < len(replicas) and others else left

    # -- trim ------------------------------------------------------------------------------------------------------

    def trim(self, follower_id: int) -> None:
        self._trimmed.write(BATCH_RECORDS)
        self._cluster.kill(follower_id)
        for _ in range(2):
            self._trimmed.write(BATCH_RECORDS)
        self._trimmed.delete_records(self._trimmed.end_offset() - self._random.randint(1, BATCH_RECORDS - 1))
        if self._random.random() < 0.5:
            self._trimmed.write(BATCH_RECORDS)

    def end_trim(self, follower_id: int) -> None:
        """The follower comes back; another broker gets a replica, if there is one that has none."""
        self._cluster.start(follower_id)
        self._cluster.wait_in_sync(TRIMMED)
        replicas = self._trimmed.replicas
        others = [node_id for node_id in self._cluster.brokers if node_id not in replicas]
        if others:
            self._reassign(TRIMMED, {PARTITION: [*replicas[1:], self._random.choice(others)]})
        self._trimmed.write(BATCH_RECORDS)

    # -- wipe-replica, copy-replica --------------------------------------------------------------------------------

    def wipe_replica(self, node_id: int) -> None:
        self._take_away(node_id)

    def copy_replica(self, node_id: int) -> None:
        partition = self._take_away(node_id)
        name = f"{self._topic}-{partition}"
        source = self._cluster.nodes[self._cluster.partition(self._topic, partition).leader_id].data_dir / name
        target = self._cluster.nodes[node_id].data_dir / name
        target.mkdir()
        for path in sorted(source.iterdir()):
            try:
                shutil.copy(path, target / path.name)
            except FileNotFoundError:
                continue  # a segment or a snapshot that the leader has deleted meanwhile

    def _take_away(self, node_id: int) -> int:
        """The partition whose directory is gone: the broker is down and out of its ISR, so that others have all that is committed."""
        self._cluster.wait_in_sync(self._topic)
        hosted = [index for index, replicas in self._replicas_of(self._topic).items() if node_id in replicas]
        partition = self._random.choice(hosted)
        self._cluster.kill(node_id)

        def has_left() -> bool:
            told = self._cluster.partition(self._topic, partition)
            return told.leader_id not in (-1, node_id) and node_id not in told.isr_nodes

        self._cluster.wait_for(has_left, f"broker {node_id} to leave the ISR of {self._topic}-{partition}")
        shutil.rmtree(self._cluster.nodes[node_id].data_dir / f"{self._topic}-{partition}")
        return partition

    # -- silence-brokers -------------------------------------------------------------------------------------------

    def end_silence(self, *node_ids: int) -> None:
        """All are back and in sync; then one of them hangs. AssertionError if it is not fenced."""
        cluster = self._cluster
        cluster.resume(*node_ids)
        cluster.wait_in_sync()
        controller_id = cluster.controller_id()
        hung_id = self._random.choice([node_id for node_id in node_ids if node_id != controller_id])
        cluster.pause(hung_id)
        session_s = int(cluster.nodes[hung_id].settings.get("broker.session.timeout.ms", SESSION_DEFAULT_MS)) / 1000
        try:
            cluster.wait_for(
                lambda: hung_id not in {broker.node_id for broker in cluster.metadata().brokers},
                f"broker {hung_id}, which hangs, to be fenced",
                timeout_s=2 * session_s + FENCED_SPARE_S,
            )
        finally:
            cluster.resume(hung_id)

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _replicas_count(self) -> int:
        """Of a side topic: if possible one less than there are brokers, so that it can move away from one."""
        return max(2, min(REPLICAS_MAX, len(self._cluster.brokers) - 1))

    def _draw_replicas(self, among: Sequence[int] | Mapping[int, object]) -> list[int]:
        node_ids = sorted(among)
        return self._random.sample(node_ids, min(self._replicas_count, len(node_ids)))

    def _others(self, node_id: int) -> list[int]:
        return [other for other in self._cluster.brokers if other != node_id]

    def _replicas_of(self, topic: str) -> dict[int, list[int]]:
        (told,) = self._cluster.metadata(topic).topics
        return {each.partition_index: list(each.replica_nodes) for each in told.partitions}

    def _reassign(self, topic: str, places: Places) -> None:
        """Returns once the partitions are there, and nothing moves any more. A broker that has just been fenced, or has just come back, is
        refused for a moment, and the order is given again."""
        moved = [ReassignablePartition(partition_index=index, replicas=list(replicas)) for index, replicas in places.items()]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=moved)], timeout_ms=5_000)

        def is_accepted() -> bool:
            answer = self._cluster.ask(request, 0)
            return {answer.error_code, *(each.error_code for found in answer.responses for each in found.partitions)} == {ErrorCode.NONE}

        def is_over() -> bool:
            is_still = self._cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []
            return is_still and self._replicas_of(topic) | {index: list(each) for index, each in places.items()} == self._replicas_of(topic)

        self._cluster.wait_for(is_accepted, f"{topic} to be reassigned to {dict(places)}")
        self._cluster.wait_for(is_over, f"{topic} to have moved to {dict(places)}")

    def _elect_preferred(self, topic: str) -> int:
        """Who leads the partition now."""
        topics = [TopicPartitions(topic=topic, partitions=[PARTITION])]
        self._cluster.ask(ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics, timeout_ms=5_000), 2)
        return int(self._cluster.partition(topic).leader_id)
