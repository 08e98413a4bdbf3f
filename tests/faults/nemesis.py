"""What does harm to a cluster of processes, and mends it again: one fault at a time, drawn by its name.

A fault strikes some nodes and is healed later; between the two the others are expected to serve, if they are a majority.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.faults.changes import CHANGES, Change, Changes
from tests.faults.operations import Operations
from tests.faults.side_topics import SideTopic
from tests.support.cluster import Cluster
from tests.support.cluster_network import CLIENTS, ClusterNetwork
from tests.support.power import PowerCutDisk

OF_DISK = ("power-cut-", "full-disk-")
"""How the names of the faults begin that need a disk for each node."""
OF_NETWORK = ("isolate-", "cut-off-", "mute-", "deafen-")
"""How the names of the faults begin that need a network of the cluster's own."""
OPERATIONS = ("remake-topic", "move-away", "trim", "wipe-replica", "copy-replica", "silence-brokers")
"""What operators do while a broker is away (tests/faults/operations.py). No change goes on beside them."""
IN_SYNC_MIN = 2  # min.insync.replicas


@dataclass(slots=True)
class Strike:
    """One fault as it happened. `led` are the partitions whose leaders it took away."""

    kind: str
    nodes: tuple[int, ...]
    struck_ns: int
    led: list[int]
    first_send: int
    """How many sends had been answered by then."""
    healed_ns: int = 0
    leaves_majority: bool = True
    change: Change | None = None
    ack_after_s: dict[int, float] = field(default_factory=dict)
    """By partition: the time from the strike to the first ack of a record that was sent after it."""

    def __str__(self) -> str:
        whom = f" of {', '.join(map(str, self.nodes))}" if self.nodes else ""
        slowest = f", acks again after {max(self.ack_after_s.values()):.2f} s" if self.ack_after_s else ""
        since_heal = f", {self.ack_after_heal_s:.2f} s after it was healed" if self.ack_after_heal_s > 0 else ""
        return f"{self.kind}{whom}{slowest}{since_heal}"

    @property
    def ack_after_heal_s(self) -> float:
        """The time from the beginning of the healing to the last partition's first ack; not above 0 if the others did without it."""
        return max(self.ack_after_s.values(), default=0.0) - (self.healed_ns - self.struck_ns) / 1e9 if self.healed_ns else 0.0


class Nemesis:
    """Strikes and heals. `topic` is the one whose leaders are meant; `pause_s` is longer than the session timeout."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        seed: int,
        pause_s: float,
        network: ClusterNetwork | None = None,
        disks: Mapping[int, PowerCutDisk] | None = None,
        side_config: Mapping[str, str] | None = None,
    ) -> None:
        """`side_config` is that of the topics which some faults make for themselves."""
        self._cluster = cluster
        self._network = network
        self._disks = disks or {}
        self._topic = topic
        self._random = random.Random(seed)
        self.pause_s = pause_s
        self._changes = Changes(cluster, topic, self._random)
        operations = self._operations = Operations(cluster, topic, self._random, side_config or {})
        self._faults: dict[str, tuple[Callable[[], tuple[int, ...]], Callable[..., None], Callable[..., object]]] = {
            "kill-leader": (self._a_leader, cluster.kill, cluster.start),
            "kill-follower": (self._a_follower, cluster.kill, cluster.start),
            "kill-controller": (self._the_controller, cluster.kill, cluster.start),
            "kill-all": (self._all, cluster.kill, cluster.start),
            "pause-leader": (self._a_leader, cluster.pause, cluster.resume),
            "pause-controller": (self._the_controller, cluster.pause, cluster.resume),
            "restart": (self._any, cluster.stop, cluster.start),
            "isolate-leader": (self._a_leader, self._isolate, self._reconnect),
            "isolate-controller": (self._the_controller, self._isolate, self._reconnect),
            "cut-off-leader": (self._a_leader, self._cut_off, self._reconnect),
            "mute-leader": (self._a_leader, self._mute, self._reconnect),
            "mute-controller": (self._the_controller, self._mute, self._reconnect),
            "deafen-leader": (self._a_leader, self._deafen, self._reconnect),
            "deafen-controller": (self._the_controller, self._deafen, self._reconnect),
            "power-cut-leader": (self._a_leader, self._cut_power, self._restore_power),
            "power-cut-controller": (self._the_controller, self._cut_power, self._restore_power),
            "power-cut-all": (self._all, self._cut_power, self._restore_power),
            "full-disk-leader": (self._a_leader, self._fill_disk, self._free_disk),
            "remake-topic": (operations.a_broker, operations.remake, operations.let_it_lead),
            "move-away": (operations.a_broker, operations.move_away, operations.move_back),
            "trim": (operations.a_trimmed_follower, operations.trim, operations.end_trim),
            "wipe-replica": (operations.a_broker, operations.wipe_replica, cluster.start),
            "copy-replica": (operations.a_broker, operations.copy_replica, cluster.start),
            "silence-brokers": (operations.brokers_apart_from_the_controller, cluster.pause, operations.end_silence),
        }

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*self._faults, *CHANGES)

    @property
    def side_topics(self) -> tuple[SideTopic, ...]:
        return self._operations.side_topics

    def strike(self, kind: str, answered_count: Callable[[], int]) -> Strike:
        """Do that harm now, or begin that change."""
        if kind in CHANGES:
            return Strike(kind, (), time.monotonic_ns(), [], answered_count(), change=self._changes.begin(kind))
        choose, harm, _ = self._faults[kind]
        nodes = choose()
        leaders = self._leaders()
        first_send = answered_count()
        struck_ns = time.monotonic_ns()
        harm(*nodes)
        led = [partition for partition, leader in leaders.items() if leader in nodes]
        return Strike(kind, nodes, struck_ns, led, first_send, leaves_majority=self._serves_without(nodes))

    def heal(self, strike: Strike) -> None:
        """Let the nodes come back, at once; a change has come to its end when this returns."""
        strike.healed_ns = time.monotonic_ns()
        if strike.change is not None:
            strike.change.wait()
            return
        self._faults[strike.kind][2](*strike.nodes)

    def _serves_without(self, nodes: tuple[int, ...]) -> bool:
        """Whether the others elect a controller and acknowledge what is sent with acks=all."""
        controllers_left = [node_id for node_id in self._cluster.controller_ports if node_id not in nodes]
        brokers_left = [node_id for node_id in self._cluster.brokers if node_id not in nodes]
        return 2 * len(controllers_left) > len(self._cluster.controller_ports) and len(brokers_left) >= IN_SYNC_MIN

    def _isolate(self, node_id: int) -> None:
        """From the other nodes, both ways; clients still reach it, and it may believe that it leads."""
        self._mute(node_id)
        self._deafen(node_id)

    def _cut_off(self, node_id: int) -> None:
        """From the other nodes and the clients."""
        self._isolate(node_id)
        self._need_network().cut(node_id, CLIENTS)

    def _mute(self, node_id: int) -> None:
        """Nothing that it sends reaches the other nodes."""
        for other in self._others(node_id):
            self._need_network().cut(node_id, other)

    def _deafen(self, node_id: int) -> None:
        """Nothing that the other nodes send reaches it."""
        for other in self._others(node_id):
            self._need_network().cut(other, node_id)

    def _reconnect(self, *node_ids: int) -> None:
        self._need_network().heal()

    def _cut_power(self, *node_ids: int) -> None:
        """Nobody hears from a node after its power went off: it stands still before its disk is cut (faults/power_cut.py says why)."""
        for node_id in node_ids:
            self._cluster.pause(node_id)
        for node_id in node_ids:
            self._disks[node_id].cut()
            self._cluster.kill(node_id)

    def _restore_power(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._disks[node_id].unmount()
            self._disks[node_id].mount()
        self._cluster.start(*node_ids)

    def _fill_disk(self, node_id: int) -> None:
        """Its only log directory fails at the next append, and the broker stops."""
        self._disks[node_id].fill()

    def _free_disk(self, node_id: int) -> None:
        self._disks[node_id].free()
        if not self._cluster.nodes[node_id].is_running:
            self._cluster.start(node_id)

    def _others(self, node_id: int) -> list[int]:
        return [other for other in self._cluster.nodes if other != node_id]

    def _need_network(self) -> ClusterNetwork:
        assert self._network is not None, "this fault needs a network of the cluster's own"
        return self._network

    def _leaders(self) -> dict[int, int]:
        (topic,) = self._cluster.metadata(self._topic).topics
        return {partition.partition_index: partition.leader_id for partition in topic.partitions}

    def _a_leader(self) -> tuple[int, ...]:
        return (self._random.choice(sorted(set(self._leaders().values()))),)

    def _a_follower(self) -> tuple[int, ...]:
        leader = self._random.choice(sorted(self._leaders().values()))
        return (self._random.choice([node_id for node_id in self._cluster.brokers if node_id != leader]),)

    def _the_controller(self) -> tuple[int, ...]:
        return (self._cluster.controller_id(),)

    def _any(self) -> tuple[int, ...]:
        return (self._random.choice(sorted(self._cluster.nodes)),)

    def _all(self) -> tuple[int, ...]:
        return tuple(self._cluster.nodes)
