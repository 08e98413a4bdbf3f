"""One simulated run from its seed: a broker, its clients, the faults that befall them, and the check of what the clients saw.

Everything that may differ between two runs is drawn from streams of random numbers that the seed begins, one for each part, so that
a change in one does not reshuffle the others. Small limits (segments of a few kilobytes, an index entry for each batch) are drawn as
well: they reach more of the code in less time.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from storage.errors import StorageError
from tests.simulation.admin import Admin
from tests.simulation.clients import Client, Producer
from tests.simulation.cluster_nemesis import ClusterNemesis
from tests.simulation.compacted import TOPIC, CompactedTopic
from tests.simulation.connection import LostError
from tests.simulation.consumer_group import SETTINGS, ConsumerGroupMember, Ledger
from tests.simulation.consumer_protocol import SUBSCRIPTION_VERSIONS
from tests.simulation.consumers import Consumer, FinalReader
from tests.simulation.group import GroupMember
from tests.simulation.group_watch import GroupWatch
from tests.simulation.history import History, Key
from tests.simulation.loop import DeadlockError, LivelockError, SimulatedLoop, current_life
from tests.simulation.mixed_group import MixedGroup
from tests.simulation.nemesis import COMPACTION_FAULTS, KINDS, Nemesis
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import Node
from tests.simulation.slices import all_requests_in_turns
from tests.simulation.trace import Trace

BROKER, PORT = "broker", 9092
DATA_DIR = "/data"
FLUSHED, PLAIN = "flushed", "plain"
PARTITIONS_COUNT = 2
REST_MAX_S = 120.0  # after the last fault everybody is at rest by then
GIVE_UP_S = 600.0

PROFILES: dict[str, tuple[str, ...]] = {
    "calm": (),
    "crashes": ("kill", "kill", "kill in a call", "kill in a call", "pause", "reset", "slow disk"),
    "power": ("power cut", "power cut", "power cut in a call", "kill in a call", "slow disk", "pause"),
    "network": ("reset", "reset", "cut link", "slow network", "pause", "kill"),
    "disk": ("disk error", "full disk", "slow disk", "cold cache", "kill", "power cut"),
    "everything": KINDS,
}
PROFILE_WEIGHTS = (1, 5, 5, 3, 3, 5)


COVERED_LINES = {
    "snapshot fetched": "fetching the snapshot of the metadata",
    "metadata log cut": "cutting the metadata log",
    "crash proven": "fencing broker",
    "replica truncated": "truncated ",
    "began within a batch": "began with the batch at ",
    "unclean election": "unclean election of broker",
    "eligible leader elected": "elected eligible leader replica",
    "log compacted": "log compacted",
    "compaction in vain": "compaction came to nothing",
    "classic group converted": "group converted group=m protocol=consumer",
    "consumer group converted": "group converted group=m protocol=classic",
}
"""Parts of the product that only some seeds reach, and how the lines begin that it logs there."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to. `findings` is empty when all promises were kept."""

    seed: int
    profile: str
    findings: dict[str, list[Any]]
    trace_hash: str
    virtual_s: float
    operations_count: int
    faults: dict[str, int]
    lines: list[str]
    covered: dict[str, int] = field(default_factory=dict)
    """How often parts of the product were reached that only some seeds reach."""
    options: str = ""
    """Of the command line, for this kind of world."""


def simulate(seed: int, *, keep_all: bool = False, make: Callable[..., World] | None = None) -> Outcome:
    """Run one seed to its end, in another kind of world if `make` says so."""
    was_enabled = gc.isenabled()
    gc.disable()  # a collection would end what a killed process has left, at a moment that the seed does not determine
    world = (make or World)(seed, keep_all=keep_all)
    try:
        return world.run()
    finally:
        world.close()
        del world
        _collect_what_was_killed()
        if was_enabled:
            gc.enable()


def _collect_what_was_killed() -> None:
    """Coroutines of killed processes end here, between two runs. What their `finally` blocks stumble over is of no interest."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = hook


class World:
    """All parts of one run."""

    OPTIONS = ""
    COMPACTED_SHARE = 0.4  # of the seeds have a compacted topic
    IS_REPLICATED = False
    CONSUMER_GROUP_SHARE = 0.4  # of the seeds have members of a KIP-848 group
    CONSUMER_GROUP_MEMBERS_MAX = 4
    MIXED_GROUP_SHARE = 0.3  # of the seeds have a group of both protocols
    SLOW_STEPS_SHARE = 0.3  # of the seeds have nodes whose long jobs and requests are interrupted

    def __init__(self, seed: int, *, keep_all: bool = False) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(Trace(keep_all=keep_all))
        self.network = SimulatedNetwork(self.loop, self._stream("network"))
        self.history = History()
        self._draw = self._stream("world")
        self.compacted = self._make_compacted()
        self.profile = self._draw_profile()
        self.nodes = self._make_nodes()
        self._has_slow_steps = self._stream("slow steps 3").random() < self.SLOW_STEPS_SHARE
        if self._has_slow_steps:
            for node in self.nodes:
                node.clock.slow_down_steps(self._stream(f"slow steps of {node.host}"))
        self.keys = self._make_keys()
        self.admin: Admin = self._make_admin()
        self.clients: list[Client] = [*self._make_clients(), *self._make_consumer_group()]
        if self.compacted is not None:
            self.clients += self.compacted.make_clients(self._client)
        self.mixed_group = self._make_mixed_group()
        self._group_watch = GroupWatch(self.history, self.loop.trace)
        self._log = _TraceHandler(self.loop)

    def run(self) -> Outcome:
        logger = logging.getLogger("barnabas")
        level, propagates = logger.level, logger.propagate
        logger.addHandler(self._log)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            with ExitStack() as patches:
                patches.enter_context(self._group_watch.watching())
                if self._has_slow_steps:
                    self.loop.trace.cover("slow steps")
                    patches.enter_context(all_requests_in_turns())
                findings = self._run()
        finally:
            logger.removeHandler(self._log)
            logger.setLevel(level)
            logger.propagate = propagates
        counts = self.loop.trace.counts
        return Outcome(
            seed=self.seed,
            profile=self.profile,
            findings=findings,
            trace_hash=self.loop.trace.hash,
            virtual_s=self.loop.time(),
            operations_count=sum(client.operations_count for client in [self.admin, *self.clients]),
            faults={kind.removeprefix("fault: "): count for kind, count in counts.items() if kind.startswith("fault: ")},
            lines=list(self.loop.trace.lines),
            covered=dict(self.loop.trace.covered),
            options=self.OPTIONS,
        )

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        self.loop.close()

    # -- the run -----------------------------------------------------------------------------------------------------

    def _run(self) -> dict[str, list[Any]]:
        task = self.loop.create_task(self._live())
        try:
            self.loop.run_until_complete(asyncio.wait_for(task, GIVE_UP_S))
        except TimeoutError:
            self.history.find("stuck", f"the run has not ended after {GIVE_UP_S:.0f} s")
        except (DeadlockError, LivelockError) as error:
            self.history.find("stuck", str(error))
        for context in self.loop.errors:
            error = context.get("exception")
            self.history.find("unhandled", f"{context.get('message')}: {error!r}")
        for line in self._log.failures:
            self.history.find("broker-failure", line)
        findings = {anomaly: evidence for anomaly, evidence in self.history.findings.items() if evidence}
        if "stuck" in findings:
            return findings
        segment_starts = {key: sorted({start for node in self.nodes for start in node.segment_starts(*key)}) for key in self.keys}
        findings = self.history.check(self._final, segment_starts)
        if self.mixed_group is not None:
            findings = {**findings, **self.mixed_group.find_unconsumed(self._final)}
        return findings if self.compacted is None else {**findings, **self.compacted.findings}

    async def _live(self) -> None:
        self.loop.note("world", f"seed {self.seed} profile {self.profile}")
        for node in self.nodes:
            node.start()
        await self._create_topics()
        self._running = {client: self.loop.create_task(client.run()) for client in [self.admin, *self.clients]}
        nemesis = self._make_nemesis()
        kinds = self._fault_kinds()
        self._draw.shuffle(kinds)
        await nemesis.run(kinds[: self._draw.randint(2, 5)], mean_interval_s=0.3)
        await asyncio.sleep(self._draw.uniform(0.2, 0.6))
        await self._come_to_rest(nemesis)
        if "stuck" not in self.history.findings:
            self._final = await self._read_everything()
            if self.compacted is not None:
                await self.compacted.check(self._client, self.brokers)

    async def _create_topics(self) -> None:
        draw = self._draw
        shared = {
            "internal.segment.bytes": str(draw.choice((2_000, 8_000, 100_000))),
            "index.interval.bytes": str(draw.choice((0, 100, 1_000, 4_096))),
        }
        self.history.durable_topics.add(FLUSHED)
        await self.admin.create(FLUSHED, PARTITIONS_COUNT, {**shared, "flush.messages": "1"})
        await self.admin.create(PLAIN, PARTITIONS_COUNT, shared)
        if self.compacted is not None:
            await self.compacted.create(self.admin, self.nodes[0].offsets_partitions_count)

    async def _come_to_rest(self, nemesis: Nemesis | ClusterNemesis) -> None:
        """End all faults and let the clients end what they began."""
        self.loop.note("world", "heals")
        nemesis.heal()
        members = [] if self.mixed_group is None else self.mixed_group.members
        clients = [client for client in self._running if client not in members]
        for client in clients:
            client.is_stopping = True
        await self._wait_for(clients)

    async def _wait_for(self, clients: list[Client]) -> None:
        deadline_s = self.loop.time() + REST_MAX_S
        while stuck := [client.name for client in clients if not self._running[client].done()]:
            if self.loop.time() > deadline_s:
                self.history.find("stuck", f"{REST_MAX_S:.0f} s after the last fault {', '.join(stuck)} had not ended")
                return
            await asyncio.sleep(0.01)
        for client in clients:
            self._running[client].result()  # what a client raised is an error of this harness

    async def _read_everything(self) -> dict[Key, list[tuple[int, str]]]:
        if self.mixed_group is not None:  # now that the logs end where they end
            self.mixed_group.read_to_the_end()
            await self._wait_for(self.mixed_group.members)
        reader = self._make_reader()
        found = await reader.read_all(self.keys)
        for _ in range(100):
            try:
                await self.admin.check_topics()
                break
            except LostError:
                await self.admin.back_off()
        for client in [reader, self.admin, *self.clients]:
            client.close()
        return found

    # -- what it is made of --------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> list[Node]:
        """The nodes that clients can reach."""
        return self.nodes

    def _stream(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}:{name}")

    def _client(self, kind: type[Any], name: str, **arguments: Any) -> Any:
        addresses = [(node.host, PORT) for node in self.brokers]
        return kind(name, self.network, addresses, self.history, self._stream(name), **arguments)

    def _make_keys(self) -> list[Key]:
        """The partitions that are read to their ends at the end."""
        return [(topic, partition) for topic in (FLUSHED, PLAIN) for partition in range(PARTITIONS_COUNT)]

    def _make_reader(self) -> FinalReader:
        return self._client(FinalReader, "reader", max_bytes=1 << 20)  # type: ignore[no-any-return]

    def _make_compacted(self) -> CompactedTopic | None:
        if self._stream("has compacted").random() >= self.COMPACTED_SHARE:
            return None
        return CompactedTopic(self._stream(TOPIC), self.history, is_replicated=self.IS_REPLICATED)

    def _make_admin(self) -> Admin:
        return self._client(Admin, "admin")  # type: ignore[no-any-return]

    def _fault_kinds(self) -> list[str]:
        kinds = list(PROFILES[self.profile])
        return kinds if self.compacted is None or not kinds else [*kinds, *COMPACTION_FAULTS]

    def _make_nodes(self) -> list[Node]:
        node = Node(self.loop, self.network, BROKER, str(self.seed), self._draw_settings())
        if features := self._features():  # a node that is not formatted does it itself
            node.format(None, features)
        return [node]

    def _features(self) -> list[str]:
        """That the cluster is formatted with, each as name=level."""
        return []

    def _make_nemesis(self) -> Nemesis | ClusterNemesis:
        names = [client.name for client in self.clients]
        return Nemesis(self.loop, self.network, self.nodes[0], names, self.history, self._stream("nemesis"))

    def _draw_profile(self) -> str:
        return self._draw.choices(list(PROFILES), PROFILE_WEIGHTS)[0]

    def _draw_settings(self) -> dict[str, str]:
        draw = self._draw
        self.history.are_commits_durable = draw.random() < 0.5
        settings = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://{BROKER}:{PORT}",
            "log.dirs": DATA_DIR,
            "barnabas.auto.format": "true",
            "barnabas.busy.poll.us": "0",
            "log.initial.task.delay.ms": str(draw.choice((50, 500))),
            "log.flush.offset.checkpoint.interval.ms": str(draw.choice((200, 1_000, 60_000))),
            "log.flush.start.offset.checkpoint.interval.ms": str(draw.choice((200, 60_000))),
            "replica.high.watermark.checkpoint.interval.ms": str(draw.choice((100, 5_000))),
            "log.retention.check.interval.ms": "1000",
            "offsets.topic.num.partitions": str(draw.choice((1, 3))),
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": str(draw.choice((0, 100))),
            "group.min.session.timeout.ms": "500",
            "group.consumer.assignment.interval.ms": self._stream("assignment interval").choice(("0", "200")),
            **SETTINGS,
        }
        if self.compacted is not None:
            settings.update(self.compacted.settings())
        if self.history.are_commits_durable:
            settings["log.flush.interval.messages"] = "1"
            self.history.durable_topics.add(PLAIN)
        return settings

    def _make_clients(self) -> list[Client]:
        draw = self._draw
        clients: list[Client] = []
        for index in range(draw.randint(1, 3)):
            keys = self.keys if draw.random() < 0.5 else draw.sample(self.keys, 2)
            clients.append(
                self._client(
                    Producer, f"producer{index}", keys=keys, acks=draw.choice((1, -1)), depth=draw.choice((1, 3)),
                    pause_s=draw.choice((0.01, 0.03)),
                )
            )  # fmt: skip
        for index in range(draw.randint(0, 2)):
            clients.append(self._client(Consumer, f"consumer{index}", keys=self.keys, max_bytes=draw.choice((500, 10_000))))
        for index in range(draw.randint(0, 3)):
            commit_share = draw.choice((0.3, 1.0))
            clients.append(self._classic_member(index, commit_share))
        return clients

    def _classic_member(self, index: int, commit_share: float) -> GroupMember:
        version = SUBSCRIPTION_VERSIONS[index % len(SUBSCRIPTION_VERSIONS)]
        return self._client(  # type: ignore[no-any-return]
            GroupMember, f"member{index}", group="g", keys=self.keys, commit_share=commit_share, subscription_version=version,
            max_bytes=2_000,
        )  # fmt: skip

    def _make_consumer_group(self) -> list[Client]:
        """From a stream of its own: the seeds without it are the worlds that they are."""
        draw = self._stream("consumer group")
        if draw.random() >= self.CONSUMER_GROUP_SHARE:
            return []
        ledger = Ledger("k", self.history)
        return [
            self._client(
                ConsumerGroupMember, f"consumer-member{index}", ledger=ledger, keys=self.keys, commit_share=draw.choice((0.3, 1.0)),
                instance_id=f"instance{index}" if draw.random() < 0.3 else None, max_bytes=2_000,
            )
            for index in range(draw.randint(1, self.CONSUMER_GROUP_MEMBERS_MAX))
        ]  # fmt: skip

    def _make_mixed_group(self) -> MixedGroup | None:
        draw = self._stream("mixed group")
        if draw.random() >= self.MIXED_GROUP_SHARE:
            return None
        group = MixedGroup(draw, self.history, self.keys, self._client)
        self.clients += group.members
        return group


class _TraceHandler(logging.Handler):
    """Puts the broker's log into the trace. A line with a traceback is a finding unless the disk is at fault."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop
        self._formatter = logging.Formatter()
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        life = current_life()
        who = life.name if life is not None else "log"
        line = record.getMessage()
        self._loop.note(who, f"{record.levelname} {line}")
        for what, beginning in COVERED_LINES.items():
            if line.startswith(beginning):
                self._loop.trace.cover(what)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, StorageError):
            self.failures.append(f"{record.getMessage()}: {self._formatter.formatException(record.exc_info)}")
