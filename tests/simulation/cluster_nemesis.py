"""What befalls a cluster: the faults of one broker, and those that only several nodes can have.

As with one broker, each fault has an end. Two may last at once, so that a majority may be gone for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.simulation.cluster_watch import ClusterWatch
from tests.simulation.disk import SimulatedDisk
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.nemesis import (
    CALLS_UNTIL_DEATH_MAX,
    CLOCK_JUMPS_S,
    COMPACTION_CALLS_MAX,
    COMPACTION_FAULTS,
    COMPACTION_SUFFIXES,
    FULL_ROOM_BYTES,
)
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import Node
from tests.simulation.replica_loss import ReplicaLoss

DOWN_MEAN_S = 0.7
STOP_LOOKS_MAX, STOP_LOOK_INTERVAL_S = 30, 0.1
CUT_MAX_S, PAUSE_MAX_S = 4.0, 4.0
LOOKS_FOR_A_FETCH_MAX = 300
SILENCE_S = (2.5, 4.5)  # broker.session.timeout.ms is 1 or 2 s
HANG_S = (4.5, 5.5)  # until the world finds that nobody has missed the broker (tests/simulation/fencing_watch.py)
PORT = 9092  # where brokers fetch from each other
OVERLAP_SHARE = 0.4  # of the faults begin while the one before lasts

CLUSTER_PROFILES: dict[str, tuple[str, ...]] = {
    "calm": (),
    "crashes": ("kill", "kill", "kill in a call", "kill all", "rolling restart", "pause", "restarts in an election", "silence", "hang"),
    "network": ("partition", "one-way partition", "cut pair", "reset", "slow network", "pause", "silence", "hang"),
    "power": ("power cut", "power cut", "power cut of all", "slow disk", "kill", "late fetch", "late fetch"),
    "disk": (
        "disk error", "lost directory", "lost directory", "full disk", "clock jump", "kill", "partition", "wiped replica", "copied replica",
    ),
    "everything": (
        "kill", "kill in a call", "kill all", "power cut", "pause", "partition", "one-way partition", "cut pair", "reset", "slow network",
        "slow disk", "rolling restart", "disk error", "full disk", "clock jump", "lost directory", "restarts in an election", "late fetch",
        "silence", "hang", "wiped replica", "copied replica",
    ),
}  # fmt: skip
UNCLEAN_FAULTS = ("last in sync", "last in sync")  # where a topic allows unclean elections
ELR_FAULTS = ("stop one after another",)  # with eligible leader replicas (KIP-966)
ALL_FAULTS = (*CLUSTER_PROFILES.values(), UNCLEAN_FAULTS, ELR_FAULTS, COMPACTION_FAULTS)
CLUSTER_KINDS = tuple(dict.fromkeys(kind for kinds in ALL_FAULTS for kind in kinds))


class ClusterNemesis:
    """Does the faults of one run."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        nodes: list[Node],
        clients: list[str],
        history: History,
        draw: random.Random,
        *,
        watch: ClusterWatch,
    ) -> None:
        self._loop = loop
        self._network = network
        self._nodes = nodes
        self._brokers = [node for node in nodes if node.is_broker]
        self._watch = watch
        self._replica_loss = ReplicaLoss(self._brokers, watch, draw)
        self._clients = clients
        self._history = history
        self._draw = draw
        self._lasting: list[asyncio.Task[None]] = []
        self._mended: dict[Node, None] = {}  # a log directory that failed is used again only after the next start
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "kill in a call": self._kill_in_a_call,
            "kill all": self._kill_all,
            "rolling restart": self._restart_in_turn,
            "power cut": self._cut_power,
            "power cut of all": self._cut_power_of_all,
            "pause": self._pause,
            "partition": self._partition,
            "one-way partition": self._partition_one_way,
            "cut pair": self._cut_pair,
            "reset": self._reset,
            "slow network": self._slow_network,
            "slow disk": self._slow_disk,
            "disk error": self._fail_disk,
            "full disk": self._fill_disk,
            "clock jump": self._jump,
            "lost directory": self._lose_directory,
            "late fetch": self._delay_a_fetch,
            "restarts in an election": self._restart_in_an_election,
            "last in sync": self._kill_the_last_in_sync,
            "stop one after another": self._stop_one_after_another,
            "silence": self._silence_together,
            "hang": self._hang,
            "wiped replica": self._wipe_replica,
            "copied replica": self._copy_replica,
            "kill in a compaction": self._kill_in_a_compaction,
            "power cut in a compaction": self._cut_power_in_a_compaction,
        }

    async def run(self, kinds: list[str], mean_interval_s: float) -> None:
        """One fault of each of `kinds`, each after the one before or, sometimes, during it."""
        for kind in kinds:
            await asyncio.sleep(self._draw.expovariate(1 / mean_interval_s))
            self._loop.note("fault", kind)
            self._loop.trace.counts[f"fault: {kind}"] += 1
            task = self._loop.create_task(self._do(kind))
            self._lasting.append(task)
            if self._draw.random() >= OVERLAP_SHARE:
                await task
        await asyncio.gather(*self._lasting)

    def heal(self) -> None:
        """End what lasts."""
        self._network.slowness = 1.0
        self._network.heal_all()
        for node in self._nodes:
            node.slowness = 1.0
            node.disk.write_error_share = node.disk.sync_error_share = 0.0
            node.disk.capacity_bytes = None
            if node in self._mended:
                node.kill()
            node.resume()
            node.start()

    async def _do(self, kind: str) -> None:
        await self._faults[kind]()

    def _later(self, longest_s: float, end: Callable[[], None]) -> None:
        self._loop.call_in_later(None, self._draw.uniform(0.1, longest_s), end)

    # -- of processes and machines -----------------------------------------------------------------------------------

    async def _kill(self) -> None:
        node = self._draw.choice(self._nodes)
        node.kill()
        await self._start_again(node)

    async def _kill_in_a_call(self) -> None:
        node = self._draw.choice(self._nodes)
        node.kill_at_call(self._draw.randrange(CALLS_UNTIL_DEATH_MAX))
        await self._until_down(node)
        node.kill()
        await self._start_again(node)

    async def _kill_in_a_compaction(self) -> None:
        node = await self._stop_in_a_compaction()
        node.kill()
        await self._start_again(node)

    async def _cut_power_in_a_compaction(self) -> None:
        await self._cut_power_of([await self._stop_in_a_compaction()])

    async def _stop_in_a_compaction(self) -> Node:
        node = self._draw.choice(self._nodes)
        node.kill_at_call(self._draw.randrange(COMPACTION_CALLS_MAX), self._draw.choice(COMPACTION_SUFFIXES))
        await self._until_down(node)
        return node

    async def _until_down(self, node: Node) -> None:
        for _ in range(100):
            if not node.is_up:
                return
            await asyncio.sleep(0.01)

    async def _kill_all(self) -> None:
        for node in self._nodes:
            node.kill()
        await asyncio.gather(*(self._start_again(node) for node in self._nodes))

    async def _restart_in_turn(self) -> None:
        is_orderly = self._draw.random() < 0.5
        for node in self._nodes:
            if is_orderly:
                await self._stop(node)
            else:
                node.kill()
            await self._start_again(node)

    async def _stop(self, node: Node) -> None:
        """As `docker stop`: who does not go in time is killed."""
        node.stop()
        for _ in range(STOP_LOOKS_MAX):
            if not node.is_up:
                return
            await asyncio.sleep(STOP_LOOK_INTERVAL_S)
        node.kill()

    async def _stop_one_after_another(self) -> None:
        """Who went last but one has all that is committed, and may lead when the last one is gone."""
        first, second, last = self._draw.sample(self._brokers, len(self._brokers))[:3]
        for node in (first, second):
            await asyncio.sleep(self._draw.uniform(0.0, 1.0))
            await self._stop(node)
        if self._draw.random() < 0.5:
            await self._stop(last)
        else:
            last.kill()
        for node in (second, first, last):
            await self._start_again(node)

    async def _restart_in_an_election(self) -> None:
        """A node is gone, perhaps the leader; voters restart at once, again and again, in a network where candidates cross each other."""
        self._network.slowness = self._draw.choice((1.0, 10.0, 30.0))
        gone, *others = self._draw.sample(self._nodes, len(self._nodes))
        gone.kill()
        for _ in range(self._draw.randint(2, 6)):
            await asyncio.sleep(self._draw.uniform(0.0, 0.4))
            node = self._draw.choice(others)
            node.kill()
            node.start()
        await self._start_again(gone)
        self._network.slowness = 1.0

    async def _kill_the_last_in_sync(self) -> None:
        """A node is gone until others have left it behind; then, perhaps, their leader goes, and it is back first."""
        behind, ahead, *_ = self._draw.sample(self._brokers, len(self._brokers))
        behind.kill()
        await asyncio.sleep(self._draw.uniform(0.3, 2.0))
        ahead.kill()
        behind.start()
        await asyncio.sleep(self._draw.uniform(0.5, 2.0))
        ahead.start()

    async def _cut_power(self) -> None:
        await self._cut_power_of([self._draw.choice(self._nodes)])

    async def _cut_power_of_all(self) -> None:
        await self._cut_power_of(self._nodes)

    async def _cut_power_of(self, nodes: list[Node]) -> None:
        self._history.power_cuts_s.append(self._loop.time())
        for node in nodes:
            node.cut_power()
        await asyncio.gather(*(self._start_again(node) for node in nodes))

    async def _delay_a_fetch(self) -> None:
        """A node loses power, and what it sent before reaches another one only after it has registered again."""
        node, other, *_ = self._draw.sample(self._nodes, len(self._nodes))
        self._network.slowness = 10.0
        for _ in range(LOOKS_FOR_A_FETCH_MAX):
            await asyncio.sleep(0.002)
            if self._network.has_under_way(node.host, other.host, PORT):
                break
        self._network.cut(node.host, other.host)
        await asyncio.sleep(self._draw.uniform(0.02, 0.2))
        self._network.slowness = 1.0
        self._history.power_cuts_s.append(self._loop.time())
        node.cut_power()
        await asyncio.sleep(self._draw.uniform(0.0, 0.2))
        node.start()
        await asyncio.sleep(self._draw.uniform(2.0, 4.0))  # its registration waits for the end of its old session
        self._network.heal(node.host, other.host)

    async def _start_again(self, node: Node) -> None:
        await asyncio.sleep(self._draw.expovariate(1 / DOWN_MEAN_S))
        node.start()

    async def _pause(self) -> None:
        node = self._draw.choice(self._nodes)
        node.pause()
        await asyncio.sleep(self._draw.uniform(0.1, PAUSE_MAX_S))
        node.resume()

    async def _hang(self) -> None:
        """A broker stands still for so long that it must be missed."""
        node = self._draw.choice(self._brokers)
        node.pause()
        await asyncio.sleep(self._draw.uniform(*HANG_S))
        node.resume()

    async def _silence_together(self) -> None:
        """The active controller hears no other broker for longer than a session: all of them stand still, or are cut off from it."""
        host = self._watch.controller_host or self._nodes[0].host
        others = [node for node in self._brokers if node.host != host]
        if self._draw.random() < 0.5:
            await self._cut([pair for node in others for pair in ((host, node.host), (node.host, host))], SILENCE_S)
            return
        for node in others:
            node.pause()
        await asyncio.sleep(self._draw.uniform(*SILENCE_S))
        for node in others:
            node.resume()

    async def _wipe_replica(self) -> None:
        node = await self._replica_loss.wipe()
        if node is not None:
            self._loop.trace.cover("replica wiped")
            node.start()

    async def _copy_replica(self) -> None:
        node = await self._replica_loss.copy()
        if node is not None:
            self._loop.trace.cover("replica copied")
            node.start()

    # -- of the network ----------------------------------------------------------------------------------------------

    async def _partition(self) -> None:
        """A node, or two of five, from the others. Clients are on either side."""
        count = self._draw.randint(1, max((len(self._nodes) - 1) // 2, 1))
        apart = [node.host for node in self._draw.sample(self._nodes, count)]
        apart += [client for client in self._clients if self._draw.random() < 0.5]
        rest = [host for host in self._hosts() if host not in apart]
        await self._cut([(one, other) for first, second in ((apart, rest), (rest, apart)) for one in first for other in second])

    async def _partition_one_way(self) -> None:
        """Others do not hear a node, or it does not hear them."""
        host = self._draw.choice(self._nodes).host
        others = [node.host for node in self._nodes if node.host != host]
        is_mute = self._draw.random() < 0.5
        await self._cut([(host, other) if is_mute else (other, host) for other in others])

    async def _cut_pair(self) -> None:
        """Two hosts, of which one is a node, do not hear each other."""
        host = self._draw.choice(self._nodes).host
        other = self._draw.choice([each for each in self._hosts() if each != host])
        await self._cut([(host, other), (other, host)])

    async def _cut(self, links: list[tuple[str, str]], range_s: tuple[float, float] = (0.2, CUT_MAX_S)) -> None:
        for source, target in links:
            self._network.cut(source, target)
        await asyncio.sleep(self._draw.uniform(*range_s))
        for source, target in links:
            self._network.heal(source, target)

    def _hosts(self) -> list[str]:
        return [*(node.host for node in self._nodes), *self._clients]

    async def _reset(self) -> None:
        hosts = self._hosts()
        for index, host in enumerate(hosts):
            for other in hosts[index + 1 :]:
                if self._draw.random() < 0.5:
                    self._network.reset_between(host, other)

    async def _slow_network(self) -> None:
        self._network.slowness = self._draw.choice((10.0, 50.0))
        self._later(2.0, lambda: setattr(self._network, "slowness", 1.0))

    # -- of disks and clocks -----------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        node = self._draw.choice(self._nodes)
        node.slowness = self._draw.choice((10.0, 100.0, 1000.0))
        self._later(2.0, lambda: setattr(node, "slowness", 1.0))

    async def _fail_disk(self) -> None:
        disk = self._draw_disk()
        what, shares = self._draw.choice((("write_error_share", (0.02, 0.2)), ("sync_error_share", (0.1, 0.5))))
        setattr(disk, what, self._draw.choice(shares))
        self._later(0.7, lambda: setattr(disk, what, 0.0))

    async def _fill_disk(self) -> None:
        disk = self._draw_disk()
        disk.capacity_bytes = disk.used_bytes + self._draw.randrange(FULL_ROOM_BYTES)
        self._later(0.7, lambda: setattr(disk, "capacity_bytes", None))

    def _draw_disk(self) -> SimulatedDisk:
        node = self._draw.choice(self._nodes)
        self._mended[node] = None
        return node.disk

    async def _lose_directory(self) -> None:
        """A log directory, rather not the one with the metadata, cannot be read or written until the node is started again."""
        node = self._draw.choice(self._nodes)
        node.disk.failed_dir = node.log_dirs[-1]
        await asyncio.sleep(self._draw.uniform(0.2, 3.0))
        node.disk.failed_dir = None
        node.kill()
        await self._start_again(node)

    async def _jump(self) -> None:
        self._draw.choice(self._nodes).clock.jump(self._draw.choice(CLOCK_JUMPS_S))
