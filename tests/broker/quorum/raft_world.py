"""Raft replicas in a world of one seed: drawn latencies, lost messages, cuts, crashes and power cuts, checked after every event.

The replicas are the real core; logs are in memory. What a driver does is done here too: the vote is durable before anything of the same
Ready is sent, and the log is durable only some time after it was asked to be.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.quorum.raft import Outgoing, RaftConfig
from broker.quorum.raft_state import Vote
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import KafkaError
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.stored.control_records import KRaftVersionRecord
from protocol.records import ControlRecordType
from protocol.schema import schema_of
from tests.broker.quorum.memory_log import Entry, MemoryRaftLog, control_records

LISTENER = "CONTROLLER"
CLUSTER = "simulated-cluster"
HEAL_TIME_MS = 60_000


class Node:
    """One replica with its disk, which outlives its processes."""

    def __init__(self, world: World, node_id: int, voters: VoterSet, *, is_reconfigurable: bool) -> None:
        self.world = world
        self.key = ReplicaKey(node_id, bytes([node_id]) * 16)
        self.log = MemoryRaftLog()
        self.vote: Vote | None = None
        self.replica: RaftReplica | None = None
        self.life = 0
        self.static_voters = VoterSet() if is_reconfigurable else voters
        if is_reconfigurable and self.key in [voter.key for voter in voters]:
            bootstrap = [
                Entry(0, KRaftVersionRecord(k_raft_version=1), ControlRecordType.KRAFT_VERSION),
                Entry(0, voters.to_record(), ControlRecordType.KRAFT_VOTERS),
            ]
            self.bootstrap: list[Entry] = bootstrap
        else:
            self.bootstrap = []
        self.is_persisting = False
        self.is_flushing = False
        self.poll_at_ms: int | None = None
        self.votes: dict[int, ReplicaKey] = {}  # by epoch: what this node ever promised durably
        self.high_watermark = 0

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.is_persisting = self.is_flushing = False
        self.poll_at_ms = None
        records = self.log.restore()
        if self.bootstrap and not records:
            records = [record._replace(offset=-1) for record in control_records(self.bootstrap, 0)]  # the snapshot that formatting leaves
        config = RaftConfig(
            me=self.key,
            cluster_id=CLUSTER,
            listener_name=LISTENER,
            endpoints={LISTENER: address_of(self.key.node_id)},
            bootstrap=[address_of(node_id) for node_id in world.nodes],
            static_voters=self.static_voters,
        )
        self.replica = RaftReplica(
            config,
            self.log,
            self.vote,
            records,
            random_source=random.Random(f"{world.seed}:{self.key.node_id}:{self.life}"),
            now_ms=world.now_ms,
        )
        self.drive()

    def crash(self, *, loses_power: bool) -> None:
        self.replica = None
        self.log.high_watermark = self.log.start_offset  # it is not kept on the disk
        if loses_power:
            self.log.lose_power(self.world.draw)

    def drive(self) -> None:
        """What a driver does after every event."""
        replica, world = self.replica, self.world
        if replica is None:
            return
        self.note_high_watermark()
        if not self.is_persisting:
            ready = replica.take_ready()
            if ready.vote is not None:
                self.is_persisting = True
                vote = ready.vote

                def persisted() -> None:
                    self.note_vote(vote)
                    self.is_persisting = False
                    self.send(ready)
                    self.drive()

                world.call_later(world.draw_disk_ms(), self, persisted)
            else:
                self.send(ready)
        if replica.needs_flush and not self.is_flushing:
            self.flush()
        wake_ms = max(replica.wake_ms, world.now_ms + 1)
        if self.poll_at_ms is None or wake_ms < self.poll_at_ms:
            self.poll_at_ms = wake_ms
            world.call_later(wake_ms - world.now_ms, self, lambda: self.poll(wake_ms))
        world.check(self)

    def poll(self, due_ms: int) -> None:
        if self.poll_at_ms == due_ms and self.replica is not None:
            self.poll_at_ms = None
            self.replica.poll(self.world.now_ms)
            self.drive()

    def flush(self) -> None:
        self.is_flushing = True
        end_offset, cuts = self.log.end_offset, self.log.cuts_count

        def flushed() -> None:
            self.is_flushing = False
            if self.log.cuts_count == cuts:
                self.log.durable_end_offset = max(self.log.durable_end_offset, end_offset)
            if self.replica is not None:
                self.replica.log_is_durable(self.world.now_ms)
                self.drive()

        self.world.call_later(self.world.draw_disk_ms(), self, flushed)

    def send(self, ready: Any) -> None:
        for outgoing in ready.outgoing:
            self.world.send(self, outgoing)
        for reply in ready.replies:
            reply.token(reply.response)

    def note_vote(self, vote: Vote) -> None:
        assert self.vote is None or vote.epoch >= self.vote.epoch, "an epoch goes back"
        if vote.voted is not None:
            promised = self.votes.setdefault(vote.epoch, vote.voted)
            assert promised.node_id == vote.voted.node_id, f"node {self.key} votes twice in epoch {vote.epoch}"
        self.vote = vote

    def note_high_watermark(self) -> None:
        assert self.replica is not None
        high_watermark = self.replica.raft.high_watermark
        if high_watermark is not None:
            self.high_watermark = max(self.high_watermark, high_watermark)


class World:
    """See the module's docstring. `ablation` names a safeguard to switch off: tests must then find a failing seed."""

    def __init__(self, seed: int, *, voters_count: int = 3, observers_count: int = 0, is_reconfigurable: bool = False) -> None:
        self.seed = seed
        self.draw = random.Random(seed)
        self.now_ms = 0
        self.events: list[tuple[int, int, Node | None, int, Callable[[], None]]] = []
        self.sequence = 0
        self.counts: Counter[str] = Counter()
        self.committed: dict[int, Entry] = {}
        self.leaders: dict[int, int] = {}
        self.cuts: dict[tuple[int, int], None] = {}
        self.loss_share = 0.0
        self.proposals = 0
        self.nodes: dict[int, Node] = {}
        keys = [ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in range(1, voters_count + 1)]
        if is_reconfigurable:
            voters = VoterSet(Voter(key, {LISTENER: address_of(key.node_id)}, (0, 1)) for key in keys)
        else:
            voters = VoterSet(Voter(ReplicaKey(key.node_id), {LISTENER: address_of(key.node_id)}) for key in keys)
        for node_id in range(1, voters_count + observers_count + 1):
            self.nodes[node_id] = Node(self, node_id, voters, is_reconfigurable=is_reconfigurable)
        for node in self.nodes.values():
            node.start()

    # -- time and network ------------------------------------------------------------------------------------------

    def call_later(self, delay_ms: int, node: Node | None, action: Callable[[], None]) -> None:
        self.sequence += 1
        life = 0 if node is None else node.life
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.sequence, node, life, action))

    def run_until(self, end_ms: int, *, stop: Callable[[], bool] = lambda: False) -> bool:
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, node, life, action = heapq.heappop(self.events)
            if node is not None and (node.replica is None or node.life != life):
                continue  # the process that waited for this is gone
            action()
            if stop():
                return True
        self.now_ms = end_ms
        return stop()

    def draw_disk_ms(self) -> int:
        return self.draw.choice((0, 1, 1, 2, 5, 40))

    def draw_latency_ms(self) -> int:
        return self.draw.choice((1, 1, 1, 2, 3, 8)) if self.draw.random() > 0.02 else 300

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts or self.draw.random() < self.loss_share

    def send(self, source: Node, outgoing: Outgoing) -> None:
        """Carry a request and its answer; what is lost is found out by the timeout, a refused connection at once."""
        target = self.nodes[outgoing.node.port]  # the address tells the node, also that of a bootstrap server

        def fail() -> None:
            assert source.replica is not None
            source.replica.handle_response(outgoing, None, self.now_ms)
            source.drive()

        def arrive() -> None:
            if self.is_cut(source.key.node_id, target.key.node_id):
                self.counts["lost request"] += 1
                return
            if target.replica is None:
                self.call_later(self.draw_latency_ms(), source, fail)
                return
            if isinstance(outgoing.request, ApiVersionsRequest):
                features = [SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)]
                answer(ApiVersionsResponse(supported_features=features))
                return
            version = schema_of(type(outgoing.request)).versions[1]
            target.replica.handle_request(answer, outgoing.request, version, LISTENER, self.now_ms)
            target.drive()

        def answer(response: Any) -> None:
            if self.is_cut(target.key.node_id, source.key.node_id):
                self.counts["lost answer"] += 1
                return

            def deliver() -> None:
                assert source.replica is not None
                source.replica.handle_response(outgoing, response, self.now_ms)
                source.drive()

            self.call_later(self.draw_latency_ms(), source, deliver)

        self.call_later(self.draw_latency_ms(), None, arrive)

    # -- clients ---------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> Node | None:
        """The leader of the newest epoch, if its process runs."""
        leading = [node for node in self.nodes.values() if node.replica is not None and node.replica.raft.is_leader]
        return max(leading, key=lambda node: node.replica.raft.epoch if node.replica else 0, default=None)

    def propose(self) -> None:
        node = self.draw.choice([node for node in self.nodes.values() if node.replica is not None] or [None])
        if node is None or node.replica is None:
            return
        self.proposals += 1
        try:
            epoch = node.replica.raft.epoch
            node.replica.propose(epoch, [f"{self.proposals}.{part}" for part in range(self.draw.randint(1, 3))], now_ms=self.now_ms)
            self.counts["proposal"] += 1
        except KafkaError:
            self.counts["refused proposal"] += 1
        node.drive()

    def change_voters(self) -> None:
        """Ask the leader to add or remove a voter."""
        leader = self.leader
        if leader is None or leader.replica is None:
            return
        voters = leader.replica.raft.voters
        others = [node for node in self.nodes.values() if voters.find(node.key.node_id) is None]

        def answered(response: AddRaftVoterResponse | RemoveRaftVoterResponse) -> None:
            self.counts[f"voters: {type(response).__name__} {response.error_code}"] += 1

        request: Any
        if others and (len(voters) < 3 or self.draw.random() < 0.5):
            key = self.draw.choice(others).key
            host, port = address_of(key.node_id)
            listeners = [Listener(name=LISTENER, host=host, port=port)]
            request = AddRaftVoterRequest(
                cluster_id=CLUSTER, voter_id=key.node_id, voter_directory_id=key.directory_id, listeners=listeners
            )
        elif len(voters) > 1:
            key = self.draw.choice([voter.key for voter in voters])
            request = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=key.node_id, voter_directory_id=key.directory_id)
        else:
            return
        leader.replica.handle_request(answered, request, 1, LISTENER, self.now_ms)
        leader.drive()

    # -- faults ----------------------------------------------------------------------------------------------------

    def break_something(self) -> None:
        kinds = ("kill", "power", "power of most", "cut", "one way", "isolate", "heal", "heal", "snapshot", "loss", "tell of crash")
        kind = self.draw.choice(kinds)
        node = self.draw.choice(list(self.nodes.values()))
        other = self.draw.choice([each for each in self.nodes.values() if each is not node])
        one, two = node.key.node_id, other.key.node_id
        self.counts[kind] += 1
        if kind in ("kill", "power"):
            self.crash(node, loses_power=kind == "power")
        elif kind == "power of most":
            for each in self.draw.sample(list(self.nodes.values()), len(self.nodes) // 2 + 1):
                self.crash(each, loses_power=True)
        elif kind == "cut":
            self.cuts[one, two] = self.cuts[two, one] = None
        elif kind == "one way":
            self.cuts[one, two] = None
        elif kind == "isolate":
            for each in self.nodes:
                self.cuts[one, each] = self.cuts[each, one] = None
        elif kind == "heal":
            self.cuts.clear()
            self.loss_share = 0.0
        elif kind == "loss":
            self.loss_share = self.draw.choice((0.0, 0.05, 0.2))
        elif kind == "snapshot":
            node.log.take_snapshot()
        elif node.replica is None:  # tell of crash
            for each in self.nodes.values():
                if each.replica is not None:
                    each.replica.leader_has_failed(one, self.now_ms)
                    each.drive()

    def crash(self, node: Node, *, loses_power: bool) -> None:
        """End the process; it is started again after a while, often at once."""
        node.crash(loses_power=loses_power)
        life = node.life

        def restart() -> None:
            if node.replica is None and node.life == life:
                self.counts["start"] += 1
                node.start()

        self.call_later(self.draw.choice((1, 5, 20, 20, 100, 800, 4_000)), None, restart)

    def heal(self) -> None:
        """Everything works from now on."""
        self.cuts.clear()
        self.loss_share = 0.0
        for node in self.nodes.values():
            if node.replica is None:
                node.start()

    # -- checks ----------------------------------------------------------------------------------------------------

    def check(self, node: Node) -> None:
        """After each event of `node`: one leader an epoch, and nothing that was committed changes."""
        replica = node.replica
        assert replica is not None
        raft = replica.raft
        if raft.is_leader:
            leader = self.leaders.setdefault(raft.epoch, node.key.node_id)
            assert leader == node.key.node_id, f"epoch {raft.epoch} is led by {leader} and {node.key.node_id}"
        high_watermark = raft.high_watermark or 0
        assert high_watermark <= node.log.end_offset
        content = node.log.content()
        for offset in range(len(self.committed), high_watermark):
            self.committed[offset] = content[offset]
        known = min(len(content), len(self.committed), high_watermark)
        first = max(known - 60, 0)
        for offset in range(first, known):
            assert content[offset] == self.committed[offset], f"node {node.key} changes offset {offset}, which was committed"

    def check_all(self) -> None:
        """At the end: every replica has every committed record, and nothing else below its high watermark."""
        for node in self.nodes.values():
            content = node.log.content()
            high_watermark = min(node.high_watermark, len(content))
            for offset in range(high_watermark):
                assert content[offset] == self.committed[offset], f"node {node.key} has another record at offset {offset}"

    @property
    def is_quiet(self) -> bool:
        """A leader leads, and everyone has committed all that it has."""
        leader = self.leader
        if leader is None or leader.replica is None or leader.replica.raft.high_watermark != leader.log.end_offset:
            return False
        return all(
            node.replica is not None
            and node.replica.raft.high_watermark == leader.log.end_offset
            and node.log.end_offset == leader.log.end_offset
            for node in self.nodes.values()
        )


def run_seed(
    seed: int, *, voters_count: int = 3, observers_count: int = 0, is_reconfigurable: bool = False, duration_ms: int = 20_000
) -> World:
    """One history: faults and proposals for a while, then everything heals and the replicas must agree."""
    world = World(seed, voters_count=voters_count, observers_count=observers_count, is_reconfigurable=is_reconfigurable)
    next_fault_ms = 3_000
    while world.now_ms < duration_ms:
        world.run_until(world.now_ms + world.draw.choice((5, 20, 100)))
        world.propose()
        if is_reconfigurable and world.draw.random() < 0.05:
            world.change_voters()
        if world.now_ms >= next_fault_ms:
            world.break_something()
            next_fault_ms = world.now_ms + world.draw.choice((50, 300, 1_500))
    world.heal()
    proposed = world.run_until(world.now_ms + HEAL_TIME_MS, stop=lambda: world.is_quiet)
    assert proposed, "the replicas do not agree after everything has healed"
    world.check_all()
    return world


def address_of(node_id: int) -> tuple[str, int]:
    return "node", node_id
