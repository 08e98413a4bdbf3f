"""One simulated run of a cluster: whole nodes that replicate, their clients, the faults that befall them, and the checks. Most clusters
have three nodes, each broker and controller; some have controllers apart, or two nodes (tests/simulation/shapes.py).

Beside what one broker must keep (tests/simulation/world.py), the watch checks after every event what a cluster must; at the end all
replicas are in sync again and equal.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from itertools import chain
from typing import Any

from broker.metadata.features import ELR_FEATURE
from broker.metadata.image import PartitionImage
from broker.metadata.snapshot_writer import state_records
from broker.server.formatting import new_id
from protocol.uuids import uuid_to_text
from tests.simulation.admin import Admin
from tests.simulation.clients import Client, Producer
from tests.simulation.cluster_admin import ClusterAdmin
from tests.simulation.cluster_nemesis import CLUSTER_PROFILES, ELR_FAULTS, UNCLEAN_FAULTS, ClusterNemesis
from tests.simulation.cluster_watch import Batch, ClusterWatch
from tests.simulation.consumers import Consumer
from tests.simulation.disk import ProcessDiedError
from tests.simulation.fencing_watch import FencingWatch
from tests.simulation.history import Key
from tests.simulation.nemesis import COMPACTION_FAULTS
from tests.simulation.node import Node
from tests.simulation.reborn import KEY, REBORN, RebornClient
from tests.simulation.shapes import CONTROLLER_PORT, Shape, combined, draw_shape
from tests.simulation.silence_judge import SilenceJudge
from tests.simulation.trimmed import TrimmedTopic
from tests.simulation.unclean import UncleanTopic
from tests.simulation.world import DATA_DIR, FLUSHED, PLAIN, PORT, World
from tests.support.history_checker import Position

REPLICAS_COUNT = 3
SETTLE_MAX_S = 60.0  # after the clients came to rest every replica is in sync by then
WATCHED_PARTITIONS_COUNT = 2
RACKS_COUNT = 3
SILENCE_MS = 900  # barnabas.fast.fencing.silence.ms: less than the shortest session

SMALL_METADATA_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "internal.metadata.log.segment.bytes": "1000",
    "metadata.max.retention.bytes": "4000",
}
"""So that a node that was away for a second has to fetch a snapshot."""
STEPS_TO_UPGRADE_MAX = 10  # of the admin


class ClusterWorld(World):
    """All parts of one run."""

    OPTIONS = " --nodes 3"
    IS_REPLICATED = True
    MOVED_VOTES_SHARE = 0.5  # of the seeds have their voters in the log, and change them
    UPGRADE_SHARE = 0.3  # of the others put them there on the way
    UNCLEAN_SHARE = 0.3  # of the seeds have a topic that allows unclean elections
    REBORN_SHARE = 0.3  # of the seeds have a topic that is deleted and made anew under its name
    TRIMMED_SHARE = 0.3  # of the seeds have a topic whose records are deleted
    SILENCE_SHARE = 0.3  # of the seeds notice the silence of a node before its session ends
    ELR_SHARE = 0.4  # of the seeds have eligible leader replicas (KIP-966), as new clusters of Kafka 4.1

    def __init__(self, seed: int, *, keep_all: bool = False) -> None:
        self.unclean = UncleanTopic() if random.Random(f"{seed}:lossy").random() < self.UNCLEAN_SHARE else None
        draw = random.Random(f"{seed}:trimmed")
        self.trimmed = TrimmedTopic(draw) if draw.random() < self.TRIMMED_SHARE else None
        self.shape = self._draw_shape(random.Random(f"{seed}:shape"))
        self._silence_ms = SILENCE_MS if random.Random(f"{seed}:silence 0").random() < self.SILENCE_SHARE else 0
        super().__init__(seed, keep_all=keep_all)
        if self.unclean is not None:
            self.history.lossy_topics.add(self.unclean.name)
            self.clients += self.unclean.make_clients(self._client)
        self.reborn = self._make_reborn()
        if self.reborn is not None:
            self.history.durable_topics.add(REBORN)
            self.clients.append(self.reborn)
        if self.trimmed is not None:
            self.history.durable_topics.add(self.trimmed.name)
            self.clients += self.trimmed.make_clients(self._client)
        self.watch = ClusterWatch({node.host: node for node in self.nodes}, self.history, has_compaction=self.compacted is not None)
        self._silence_judge = SilenceJudge(self.loop, self.nodes, self.network, self.history)
        self._fencing_watch = FencingWatch(self.nodes, self.network, self.watch, self.history, are_votes_fixed=self._are_votes_fixed)

    # -- what it is made of ------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes if node.is_broker]

    def _draw_shape(self, draw: random.Random) -> Shape:
        return draw_shape(draw)

    def _make_nodes(self) -> list[Node]:
        settings = self._draw_settings()
        addresses = {node_id: f"node{node_id}:{CONTROLLER_PORT}" for node_id in self.shape.controller_ids}
        draw = self._stream("voter changes")
        self._moves_votes = draw.random() < self.MOVED_VOTES_SHARE
        self._steps_to_upgrade = self._draw_steps_to_upgrade()
        self._has_elr = random.Random(f"{self.seed}:elr").random() < self.ELR_SHARE
        features = self._features()
        initial_controllers: str | None = None
        if self._moves_votes:
            settings["controller.quorum.bootstrap.servers"] = ",".join(addresses.values())
            directories = {node_id: uuid_to_text(new_id(draw.randbytes)) for node_id in addresses}
            initial_controllers = ",".join(f"{node_id}@{address}:{directories[node_id]}" for node_id, address in addresses.items())
        else:
            settings["controller.quorum.voters"] = ",".join(f"{node_id}@{address}" for node_id, address in addresses.items())
        nodes = [self._make_node(node_id, roles, settings) for node_id, roles in self.shape.roles.items()]
        scram_users = self._scram_users()
        if initial_controllers or features or scram_users:  # a node that is not formatted does it itself
            for node in nodes:
                node.format(initial_controllers, features, scram_users)
        return nodes

    def _scram_users(self) -> list[str]:
        """That the cluster begins with, as arguments of --add-scram."""
        return []

    def _features(self) -> list[str]:
        return [*super()._features(), *([f"{ELR_FEATURE}=1"] if self._has_elr else [])]

    def _make_node(self, node_id: int, roles: str, settings: dict[str, str]) -> Node:
        host = f"node{node_id}"
        own = {
            "process.roles": roles,
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            **self._listeners(host, roles),
        }
        if self._has_racks:
            own["broker.rack"] = f"rack{node_id % RACKS_COUNT}"
        return Node(self.loop, self.network, host, f"{self.seed}:{host}", {**settings, **own})

    def _listeners(self, host: str, roles: str) -> dict[str, str]:
        """The settings of a node that say where it listens, and how."""
        listeners = {"broker": f"PLAINTEXT://{host}:{PORT}", "controller": f"CONTROLLER://{host}:{CONTROLLER_PORT}"}
        return {
            "listeners": ",".join(listeners[role] for role in roles.split(",")),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    @property
    def _are_votes_fixed(self) -> bool:
        """Whether the voters are the same for the whole run."""
        return len(self.shape.controller_ids) == 1 or not (self._moves_votes or self._steps_to_upgrade is not None)

    def _make_reborn(self) -> RebornClient | None:
        if random.Random(f"{self.seed}:reborn").random() >= self.REBORN_SHARE:
            return None
        return self._client(  # type: ignore[no-any-return]
            RebornClient, "reborn-client", node_ids=self.shape.broker_ids, find_away=self._find_away
        )

    def _find_away(self) -> list[int]:
        """The brokers that are down now."""
        return [node.node_id for node in self.brokers if not node.is_up]

    def _draw_profile(self) -> str:
        return self._draw.choice(list(CLUSTER_PROFILES))

    def _draw_settings(self) -> dict[str, str]:
        draw = self._draw
        self._has_racks = draw.random() < 0.5
        replicas_count = str(min(REPLICAS_COUNT, len(self.shape.broker_ids)))
        racks = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"} if self._has_racks else {}
        return {
            **super()._draw_settings(),
            **racks,
            **draw.choice(({}, SMALL_METADATA_LOG)),
            "log.dirs": draw.choice((DATA_DIR, f"{DATA_DIR},{DATA_DIR}2")),
            "replica.high.watermark.checkpoint.interval.ms": str(draw.choice((300, 5_000))),
            "log.flush.offset.checkpoint.interval.ms": str(draw.choice((300, 60_000))),
            "metadata.max.idle.interval.ms": str(draw.choice((500, 3_000))),
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": replicas_count,
            "default.replication.factor": replicas_count,
            "barnabas.fast.fencing.silence.ms": str(self._silence_ms),
            "broker.heartbeat.interval.ms": "300",
            "broker.session.timeout.ms": str(draw.choice((1_000, 2_000))),
            "replica.lag.time.max.ms": str(draw.choice((700, 3_000))),
            "replica.fetch.wait.max.ms": "300",
            "controller.quorum.fetch.timeout.ms": str(draw.choice((600, 1_500))),
            "controller.quorum.election.timeout.ms": "400",
            "controller.quorum.retry.backoff.ms": str(draw.choice((20, 100))),
            "controller.quorum.election.backoff.max.ms": "300",
            "controller.quorum.request.timeout.ms": "600",
        }

    def _make_nemesis(self) -> ClusterNemesis:
        names = [client.name for client in self.clients]
        return ClusterNemesis(self.loop, self.network, self.nodes, names, self.history, self._stream("nemesis"), watch=self.watch)

    def _make_admin(self) -> Admin:
        keys = [*self.keys, *chain.from_iterable(each.keys for each in (self.compacted, self.trimmed) if each is not None)]
        return self._client(  # type: ignore[no-any-return]
            ClusterAdmin, "admin", keys=keys, node_ids=self.shape.broker_ids, controller_ids=self.shape.controller_ids,
            find_away=self._find_away, controller_port=CONTROLLER_PORT, moves_votes=self._moves_votes,
            steps_to_upgrade=self._steps_to_upgrade,
        )  # fmt: skip

    def _draw_steps_to_upgrade(self) -> int | None:
        draw = random.Random(f"{self.seed}:kraft.version")
        return draw.randint(0, STEPS_TO_UPGRADE_MAX) if not self._moves_votes and draw.random() < self.UPGRADE_SHARE else None

    def _fault_kinds(self) -> list[str]:
        kinds = list(CLUSTER_PROFILES[self.profile])
        if kinds and self.unclean is not None:
            kinds += UNCLEAN_FAULTS
        if kinds and self._has_elr and len(self.brokers) > 2:
            kinds += ELR_FAULTS
        return [*kinds, *COMPACTION_FAULTS] if kinds and self.compacted is not None else kinds

    def _make_clients(self) -> list[Client]:
        draw = self._draw
        clients: list[Client] = []
        for index in range(draw.randint(1, 2)):
            pause_s = draw.choice((0.03, 0.06))
            clients.append(self._client(Producer, f"producer{index}", keys=self.keys, acks=-1, depth=draw.choice((1, 3)), pause_s=pause_s))
        if draw.random() < 0.5:
            rack = f"rack{draw.randrange(RACKS_COUNT)}" if self._has_racks else ""
            clients.append(self._client(Consumer, "consumer0", keys=self.keys, max_bytes=draw.choice((500, 10_000)), rack=rack))
        for index in range(draw.randint(0, 2)):
            commit_share = draw.choice((0.3, 1.0))
            clients.append(self._classic_member(index, commit_share))
        return clients

    async def _create_topics(self) -> None:
        draw = self._draw
        shared = {"internal.segment.bytes": str(draw.choice((8_000, 100_000)))}
        self.history.durable_topics.add(FLUSHED)
        await self.admin.create(FLUSHED, WATCHED_PARTITIONS_COUNT, {**shared, "flush.messages": "1"})
        await self.admin.create(PLAIN, WATCHED_PARTITIONS_COUNT, shared)
        if self.unclean is not None:
            await self.unclean.create(self.admin)
        if self.trimmed is not None:
            await self.trimmed.create(self.admin)
        if self.compacted is not None:
            await self.compacted.create(self.admin, self.nodes[0].offsets_partitions_count)

    # -- the run -----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self.loop.trace.cover(self.shape.name)
        watching = [self.loop.create_task(self._fencing_watch.run())]
        if self._silence_ms:
            watching.append(self.loop.create_task(self._silence_judge.run()))
        await super()._live()
        for task in watching:
            task.cancel()

    def _run(self) -> dict[str, list[Any]]:
        with self.watch.watching(), self._silence_judge.watching():
            findings = super()._run()
        for topic in (self.unclean, self.trimmed):
            findings = findings if topic is None else {**findings, **topic.findings}
        return findings

    async def _read_everything(self) -> dict[Key, list[Position]]:
        await self._settle()
        if self.reborn is not None:
            await self.reborn.check()
        return await super()._read_everything()

    async def _settle(self) -> None:
        """All replicas are in sync, and equal as far as they are committed."""
        deadline_s = self.loop.time() + SETTLE_MAX_S
        while True:
            unsettled = self._find_unsettled()
            if not unsettled:
                break
            if self.loop.time() > deadline_s:
                self.history.find("unsettled", unsettled[:5])
                return
            await asyncio.sleep(0.05)
        self.loop.note("world", "all replicas are in sync")
        self._compare_metadata()
        for key, (_, replicas) in self._replicas().items():
            start_offset = max(partition.log.log_start_offset for partition in replicas.values())
            end_offset = min(partition.log.high_watermark for partition in replicas.values())
            if self.compacted is not None and key in self.compacted.keys:
                self.compacted.compare_replicas(
                    key, {host: self.watch.records(each, host, start_offset, end_offset) for host, each in replicas.items()}
                )
                continue
            logs = {host: self.watch.batches(partition, host, start_offset, end_offset) for host, partition in replicas.items()}
            first_host, *others = sorted(logs)
            for host in others:
                differing = self._differing(key, logs[first_host], logs[host])
                if differing:
                    self.history.find("replicas-differ", (key, first_host, host, differing[:4]))
            if self.unclean is not None and key in self.unclean.keys:
                for host, batches in logs.items():
                    self.unclean.saw(key, batches, host)

    def _compare_metadata(self) -> None:
        """Every node's state is the same, whether it comes from the log or from a snapshot."""
        states = {host: sorted(map(repr, state_records(each._cache.state))) for host, each in self.watch.publishers.items()}
        first_host, *others = sorted(states)
        for host in others:
            if states[host] != states[first_host]:
                differing = sorted(set(states[host]) ^ set(states[first_host]))[:4]
                self.history.find("metadata-differs", (first_host, host, differing))

    def _differing(self, key: Key, first: list[Batch], second: list[Batch]) -> list[Batch]:
        """The batches of which not both replicas have the same.

        A power cut may take the end of a segment that was not flushed, and leave the segment behind it (storage/recovery.py, as in
        Kafka): such a hole stays in one replica, and no epoch tells. It may also bring the bytes back that a truncation had cut, in the
        place of newer ones of a later epoch (seed 1040455). Two different batches of one epoch at one offset are never right."""
        differing = sorted(set(first) ^ set(second))
        if self.history.power_cuts_s and not self.history.is_durable(key):
            places = Counter((batch.base_offset, batch.leader_epoch) for batch in differing)
            return [batch for batch in differing if places[batch.base_offset, batch.leader_epoch] > 1]
        return differing

    def _find_unsettled(self) -> list[Any]:
        """What is not in its place yet: nodes whose metadata is behind, replicas that are not in sync, leaders that are nowhere."""
        heard = {host: publisher.heard for host, publisher in self.watch.publishers.items()}
        if len(heard) < len(self.nodes) or len(set(heard.values())) > 1:
            return [heard]
        topics = next(iter(self.watch.publishers.values()))._cache.state.topics
        if not all(topic in topics for topic, _ in self._replicated_keys()):
            return [heard]
        found: list[Any] = []
        for key, (image, replicas) in self._replicas().items():
            leaders = [partition for partition in replicas.values() if partition.is_leader]
            ends = {self._end_of(key, each, leaders) for each in replicas.values()}
            is_moving = bool(image.adding_replicas or image.removing_replicas)
            is_whole = len(leaders) == 1 and len(leaders[0].isr) == len(image.replicas) == len(replicas)
            if is_moving or not is_whole or len(ends) != 1:
                found.append((key, image, sorted(replicas), [partition.isr for partition in leaders], sorted(ends)))
        return found

    def _end_of(self, key: Key, replica: Any, leaders: list[Any]) -> tuple[int, int]:
        """High watermark and log end; those of the leader for a replica that has all there is.

        A power cut may have taken the last batches of a leader's segment and left an empty one behind it (storage/recovery.py, as in
        Kafka): nobody gets past such a hole before the next record."""
        log = replica.log
        if leaders and self.history.power_cuts_s and not self.history.is_durable(key) and log.high_watermark == log.log_end_offset:
            leaders_log = leaders[0].log
            with suppress(ProcessDiedError, OSError):  # it is not settled then
                if leaders_log.segments.has_nothing_from(log.log_end_offset):
                    log = leaders_log
        return log.high_watermark, log.log_end_offset

    def _replicated_keys(self) -> list[Key]:
        """All partitions that clients write to."""
        more = [each.keys for each in (self.unclean, self.compacted, self.trimmed) if each is not None]
        return [*self.keys, *chain.from_iterable(more), *([KEY] if self.reborn is not None else [])]

    def _replicas(self) -> dict[Key, tuple[PartitionImage, dict[str, Any]]]:
        """What the metadata say of the partitions that clients write to, and their replicas, by host."""
        found: dict[Key, tuple[PartitionImage, dict[str, Any]]] = {}
        state = next(iter(self.watch.publishers.values()))._cache.state
        for key in self._replicated_keys():
            topic = state.topics[key[0]]
            image = topic.partitions[key[1]]
            hosts = [f"node{node_id}" for node_id in image.replicas]
            place = (bytes(topic.topic_id), key[1])
            found[key] = image, {host: self.watch.replicas[place, host] for host in hosts if (place, host) in self.watch.replicas}
        return found


class FiveNodesWorld(ClusterWorld):
    OPTIONS = " --nodes 5"

    def _draw_shape(self, draw: random.Random) -> Shape:
        return combined(5)
