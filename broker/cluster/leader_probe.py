"""LeaderProbe: checks that the leaders of a Metadata answer are alive, by a connection to each that is closed at once.

A client that has lost its leader asks for Metadata within a millisecond, and may be faster than the end of this broker's own connections to
that leader. A process that ends closes its port first, so a refused connection shows it in time. An answer waits for the probes at most
PROBE_TIMEOUT_MS, and usually for a fraction of a millisecond. Each answer starts its own probe or joins a running one. A result of some
milliseconds ago is not reused: the leader may have died since, and librdkafka asks again only a second later. A flood of Metadata requests
must not become a flood of connections: one leader gets a burst of PROBES_BURST probes, then one every PROBE_INTERVAL_MS, or every
SILENT_PROBE_INTERVAL_MS if it was silent.

No counterpart in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from broker.loop.clock import Clock
from broker.loop.deferred import Deferred
from broker.network.sockets import Network, connect_within
from broker.quorum.voters import Address

PROBE_TIMEOUT_MS = 20
PROBE_INTERVAL_MS = 10
PROBES_BURST = 100
SILENT_PROBE_INTERVAL_MS = 200
"""If a leader's machine is gone, or far away, a tenth of the answers wait for it, and not all."""


class LeaderProbe:
    """Owns the pending connections. `on_refused` is called with a broker whose address refused one."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        find_address: Callable[[int], Address | None],
        on_refused: Callable[[int], None],
        *,
        node_id: int,
    ) -> None:
        self._network = network
        self._clock = clock
        self._find_address = find_address
        self._on_refused = on_refused
        self._node_id = node_id
        self._probes_until_ms: dict[int, int] = {}
        """Where a broker's probes end if each is given PROBE_INTERVAL_MS, one after the other. Up to PROBES_BURST may lie ahead."""
        self._silent_until_ms: dict[int, int] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(self, node_ids: Iterable[int]) -> Deferred | None:
        """Returns a Deferred that completes when the probes of these brokers have ended; None if none is needed."""
        now_ms = self._clock.monotonic_ms()
        tasks = {task for node_id in node_ids if (task := self._task(node_id, now_ms)) is not None}
        if not tasks:
            return None
        over = Deferred()
        left_count = len(tasks)

        def one_done(_: asyncio.Task[None]) -> None:
            nonlocal left_count
            left_count -= 1
            if left_count == 0:
                over.complete(None)

        for task in tasks:
            task.add_done_callback(one_done)
        return over

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, node_id: int, now_ms: int) -> asyncio.Task[None] | None:
        if node_id == self._node_id:
            return None
        task = self._tasks.get(node_id)
        if task is None and not self._has_had_its_probes(node_id, now_ms) and (address := self._find_address(node_id)) is not None:
            self._probes_until_ms[node_id] = max(self._probes_until_ms.get(node_id, 0), now_ms) + PROBE_INTERVAL_MS
            task = self._tasks[node_id] = asyncio.get_running_loop().create_task(self._probe(node_id, address))
            task.add_done_callback(lambda _: self._tasks.pop(node_id, None))
        return task

    def _has_had_its_probes(self, node_id: int, now_ms: int) -> bool:
        if now_ms < self._silent_until_ms.get(node_id, 0):
            return True
        return self._probes_until_ms.get(node_id, 0) - now_ms > (PROBES_BURST - 1) * PROBE_INTERVAL_MS

    async def _probe(self, node_id: int, address: Address) -> None:
        try:
            transport, _ = await connect_within(PROBE_TIMEOUT_MS, self._clock, self._network, *address, asyncio.Protocol)
            transport.abort()
        except ConnectionRefusedError:
            self._on_refused(node_id)
        except TimeoutError:
            self._silent_until_ms[node_id] = self._clock.monotonic_ms() + SILENT_PROBE_INTERVAL_MS
        except OSError:
            pass  # its address is unknown
