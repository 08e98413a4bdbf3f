"""Changes of a cluster that go on while faults strike: replicas move between brokers, voters come and go, preferred leaders are elected.

A change is begun, is carried out by a thread that tries again as an administrator would, and has an end: what was asked for has come to
pass. Moves of replicas and voters need more nodes than there are replicas of a partition, and voters.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from storage.meta_properties import read_meta_properties
from tests.support.cluster import Cluster
from tests.support.wire import WireClient

MOVE_REPLICAS, MOVE_VOTER, ELECT_PREFERRED = "move-replicas", "move-voter", "elect-preferred"
CHANGES = (MOVE_REPLICAS, MOVE_VOTER, ELECT_PREFERRED)
NODES_MIN = {MOVE_REPLICAS: 4, MOVE_VOTER: 4, ELECT_PREFERRED: 1}
END_TIMEOUT_S = 120.0
ASK_TIMEOUT_S = 5.0
TRY_INTERVAL_S = 0.2
TOPICS_MOVED = ("__consumer_offsets",)
"""Topics that move besides the one that is written to: their coordinators go with them."""
PREFERRED = 0


class Change:
    """One that is under way: `is_done` is tried again and again, on a thread, until it returns true. OSError, EOFError and LookupError
    are what a cluster in trouble gives rise to."""

    def __init__(self, name: str, is_done: Callable[[], bool]) -> None:
        self.tries_count = 0
        self._name = name
        self._is_done = is_done
        self._failure: Exception | None = None
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Returns once it is done. AssertionError if it does not come to an end."""
        self._thread.join(END_TIMEOUT_S)
        is_over = not self._thread.is_alive()
        self._given_up.set()
        assert is_over, f"{self._name} has not ended after {self.tries_count} tries: {self._failure}"

    def _run(self) -> None:
        while not self._given_up.is_set():
            self.tries_count += 1
            try:
                if self._is_done():
                    return
                self._failure = None
            except (OSError, EOFError, LookupError) as e:
                self._failure = e
            time.sleep(TRY_INTERVAL_S)


class Changes:
    """Begins changes of `cluster`; `topic` is the one that is written to. One of a kind at a time."""

    def __init__(self, cluster: Cluster, topic: str, draw: random.Random) -> None:
        self._cluster = cluster
        self._topic = topic
        self._random = draw
        # Read now: a node's disk may have no power when its id is needed.
        identities = {node_id: read_meta_properties(cluster.nodes[node_id].data_dir) for node_id in cluster.controller_ports}
        self._directory_ids = {node_id: identity.directory_id or bytes(16) for node_id, identity in identities.items() if identity}

    def begin(self, kind: str) -> Change:
        return {MOVE_REPLICAS: self._move_replicas, MOVE_VOTER: self._move_voter, ELECT_PREFERRED: self._elect_preferred}[kind]()

    def _move_replicas(self) -> Change:
        """Some partitions get other replicas, drawn anew, in another order."""
        brokers = sorted(self._cluster.brokers)
        moves: list[ReassignableTopic] = []
        for topic in self._cluster.metadata(self._topic, *TOPICS_MOVED).topics:
            moved = [each for each in topic.partitions if self._random.random() < 0.5]
            targets = {each.partition_index: self._random.sample(brokers, len(each.replica_nodes)) for each in moved}
            partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets.items()]
            if partitions:
                moves.append(ReassignableTopic(name=topic.name, partitions=partitions))
        is_begun = False

        def is_done() -> bool:
            nonlocal is_begun
            if not is_begun:
                answer = self._cluster.ask(AlterPartitionReassignmentsRequest(topics=moves, timeout_ms=2_000), 0)
                codes = {each.error_code for topic in answer.responses for each in topic.partitions} | {answer.error_code}
                # A broker that was just unregistered or is fenced cannot be a target yet.
                is_begun = codes == {ErrorCode.NONE}
            return is_begun and self._cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []

        return Change(MOVE_REPLICAS, is_done) if moves else Change(MOVE_REPLICAS, lambda: True)

    def _move_voter(self) -> Change:
        """A controller that is no voter becomes one, and then one of the voters leaves; it may be the leader (KIP-853)."""
        voters = self._voters()
        joining = self._random.choice(sorted(set(self._cluster.controller_ports) - set(voters)))
        leaving = self._random.choice(sorted(voters))

        def is_done() -> bool:
            now = self._voters()
            if joining not in now:
                answer = self._ask_active_controller(self._addition(joining), 1)
            elif leaving in now:
                request = RemoveRaftVoterRequest(
                    cluster_id=self._cluster.cluster_id, voter_id=leaving, voter_directory_id=self._directory_ids[leaving]
                )
                answer = self._ask_active_controller(request, 0)
            else:
                return True
            if answer.error_code:
                raise LookupError(f"voters {now}: {ErrorCode(answer.error_code).name}: {answer.error_message}")
            return False

        return Change(f"{MOVE_VOTER} from {leaving} to {joining}", is_done)

    def _elect_preferred(self) -> Change:
        """Every partition whose first replica is in sync is led by it."""

        def is_done() -> bool:
            partitions = [each.partition_index for topic in self._cluster.metadata(self._topic).topics for each in topic.partitions]
            topics = [TopicPartitions(topic=self._topic, partitions=partitions)]
            answer = self._cluster.ask(ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics, timeout_ms=2_000), 2)
            return bool(answer.error_code == ErrorCode.NONE)

        return Change(ELECT_PREFERRED, is_done)

    def _ask_active_controller(self, request: Any, version: int) -> Any:
        """At its own listener. An Apache Kafka broker goes on forwarding what is about voters to a controller that is not the active one
        any more: it looks for another upon NOT_CONTROLLER, and is answered NOT_LEADER_OR_FOLLOWER."""
        leader_id = self._cluster.quorum().leader_id
        with WireClient(self._cluster.nodes[leader_id].host, self._cluster.controller_ports[leader_id], timeout_s=ASK_TIMEOUT_S) as client:
            return client.request(request, version)

    def _voters(self) -> Sequence[int]:
        return [voter.replica_id for voter in self._cluster.quorum().current_voters]

    def _addition(self, node_id: int) -> AddRaftVoterRequest:
        cluster = self._cluster
        listener = Listener(name="CONTROLLER", host=cluster.nodes[node_id].host, port=cluster.controller_ports[node_id])
        return AddRaftVoterRequest(
            cluster_id=cluster.cluster_id,
            timeout_ms=2_000,
            voter_id=node_id,
            voter_directory_id=self._directory_ids[node_id],
            listeners=[listener],
        )
