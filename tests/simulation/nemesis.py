"""What befalls a run: the kinds of faults, and when a seed's faults come.

Each fault has an end, so that a run without progress is the broker's fault. They come one after the other, with some time between them
in which clients get something done; what makes things slow or unreliable lasts on meanwhile, so that a power cut finds a slow disk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node import Node

DOWN_MEAN_S = 0.3
CALLS_UNTIL_DEATH_MAX = 40
FULL_ROOM_BYTES = 2_000
COMPACTION_CALLS_MAX = 60
COMPACTION_SUFFIXES = (".cleaned", ".swap", ".swap", ".deleted")  # of what is written, put in its place, and replaced
CLOCK_JUMPS_S = (-1800.0, -5.0, -0.5, 0.5, 5.0, 1800.0)

KINDS = (
    "kill", "kill in a call", "power cut", "power cut in a call", "pause", "reset", "cut link", "slow network", "slow disk", "cold cache",
    "disk error", "full disk", "clock jump",
)  # fmt: skip


COMPACTION_FAULTS = ("kill in a compaction", "power cut in a compaction")  # where there is a compacted topic


class Nemesis:
    """Does the faults of one run. `clients` are the hosts that talk to `node`."""

    def __init__(
        self, loop: SimulatedLoop, network: SimulatedNetwork, node: Node, clients: list[str], history: History, draw: random.Random
    ) -> None:
        self._loop = loop
        self._network = network
        self._node = node
        self._clients = clients
        self._history = history
        self._draw = draw
        self._faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "kill in a call": self._kill_in_a_call,
            "power cut": self._cut_power,
            "power cut in a call": self._cut_power_in_a_call,
            "pause": self._pause,
            "reset": self._reset,
            "cut link": self._cut_link,
            "slow network": self._slow_network,
            "slow disk": self._slow_disk,
            "cold cache": self._cold_cache,
            "disk error": self._disk_error,
            "full disk": self._full_disk,
            "clock jump": self._jump,
            "kill in a compaction": self._kill_in_a_compaction,
            "power cut in a compaction": self._cut_power_in_a_compaction,
        }

    async def run(self, kinds: list[str], mean_interval_s: float) -> None:
        """One fault of each of `kinds`, in turn."""
        for kind in kinds:
            await asyncio.sleep(self._draw.expovariate(1 / mean_interval_s))
            self._loop.note("fault", kind)
            self._loop.trace.counts[f"fault: {kind}"] += 1
            await self._faults[kind]()

    def heal(self) -> None:
        """End what lasts."""
        self._network.slowness = self._node.slowness = 1.0
        disk = self._node.disk
        disk.cold_share = disk.write_error_share = disk.sync_error_share = 0.0
        disk.capacity_bytes = None
        self._network.heal_all()
        self._node.resume()
        self._node.start()

    def _later(self, longest_s: float, end: Callable[[], None]) -> None:
        self._loop.call_in_later(None, self._draw.uniform(0.1, longest_s), end)

    # -- of the process and the machine --------------------------------------------------------------------------------

    async def _kill(self) -> None:
        self._node.kill()
        await self._start_again()

    async def _kill_in_a_call(self) -> None:
        self._node.kill_at_call(self._draw.randrange(CALLS_UNTIL_DEATH_MAX))
        await self._until_down()
        self._node.kill()
        await self._start_again()

    async def _cut_power(self) -> None:
        self._history.power_cuts_s.append(self._loop.time())
        self._node.cut_power()
        await self._start_again()

    async def _cut_power_in_a_call(self) -> None:
        self._node.kill_at_call(self._draw.randrange(CALLS_UNTIL_DEATH_MAX))
        await self._until_down()
        await self._cut_power()

    async def _kill_in_a_compaction(self) -> None:
        self._arm_for_compaction()
        await self._until_down()
        self._node.kill()
        await self._start_again()

    async def _cut_power_in_a_compaction(self) -> None:
        self._arm_for_compaction()
        await self._until_down()
        await self._cut_power()

    def _arm_for_compaction(self) -> None:
        self._node.kill_at_call(self._draw.randrange(COMPACTION_CALLS_MAX), self._draw.choice(COMPACTION_SUFFIXES))

    async def _until_down(self) -> None:
        for _ in range(100):
            if not self._node.is_up:
                return
            await asyncio.sleep(0.01)

    async def _start_again(self) -> None:
        await asyncio.sleep(self._draw.expovariate(1 / DOWN_MEAN_S))
        self._node.start()

    async def _pause(self) -> None:
        self._node.pause()
        await asyncio.sleep(self._draw.uniform(0.05, 3.0))
        self._node.resume()

    async def _jump(self) -> None:
        self._node.clock.jump(self._draw.choice(CLOCK_JUMPS_S))

    # -- of the network ------------------------------------------------------------------------------------------------

    async def _reset(self) -> None:
        for client in self._clients:
            if self._draw.random() < 0.7:
                self._network.reset_between(client, self._node.host)

    async def _cut_link(self) -> None:
        client, node = self._draw.choice(self._clients), self._node.host
        directions = self._draw.choice(([(client, node)], [(node, client)], [(client, node), (node, client)]))
        for source, target in directions:
            self._network.cut(source, target)
        await asyncio.sleep(self._draw.uniform(0.1, 3.0))
        for source, target in directions:
            self._network.heal(source, target)

    async def _slow_network(self) -> None:
        self._network.slowness = self._draw.choice((10.0, 100.0))
        self._later(2.0, lambda: setattr(self._network, "slowness", 1.0))

    # -- of the disk ---------------------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        self._node.slowness = self._draw.choice((10.0, 100.0, 1000.0))
        self._later(2.0, lambda: setattr(self._node, "slowness", 1.0))

    async def _cold_cache(self) -> None:
        self._node.disk.cold_share = self._draw.choice((0.1, 0.5))
        self._later(2.0, lambda: setattr(self._node.disk, "cold_share", 0.0))

    async def _disk_error(self) -> None:
        what, shares = self._draw.choice((("write_error_share", (0.02, 0.2)), ("sync_error_share", (0.1, 0.5))))
        setattr(self._node.disk, what, self._draw.choice(shares))
        self._later(0.7, lambda: setattr(self._node.disk, what, 0.0))

    async def _full_disk(self) -> None:
        self._node.disk.capacity_bytes = self._node.disk.used_bytes + self._draw.randrange(FULL_ROOM_BYTES)
        self._later(0.7, lambda: setattr(self._node.disk, "capacity_bytes", None))
