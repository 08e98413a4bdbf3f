"""FailureDetector: proves, after the end of a connection, that the other process is gone: nothing listens at its address any more.

A proof takes two refused probes (ECONNREFUSED), PROBE_INTERVAL_MS apart: the machine answers that the port is closed. A timeout, no route,
or an unknown name proves nothing, because the machine or the network may be at fault. A probe that is accepted or reset may have come
before the end of the process, which closes one socket after the other, so a few more probes follow. A single refusal soon after a proof is
a new proof: the process may have been restarted meanwhile.

A wrong proof is possible (a process that closed its listener and lives), but safe: its actions are refused because of their old epochs.

No counterpart in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.loop.clock import Clock, pause
from broker.network.sockets import Network, connect_within

if TYPE_CHECKING:
    from broker.quorum.voters import Address

PROBE_INTERVAL_MS = 50
PROBES_MAX = 5
PROBE_TIMEOUT_MS = 1_000
PROOF_LIFE_MS = 1_000
"""How long one refusal is enough after a proof: longer than the election takes that the proof has caused."""
REFUSALS_NEEDED = 2

OnProof = Callable[[], None]


class FailureDetector:
    """Owns the running probes: at most one series for each address."""

    def __init__(self, network: Network, clock: Clock) -> None:
        self._network = network
        self._clock = clock
        self._waiting: dict[Address, list[OnProof]] = {}
        self._proven_until_ms: dict[Address, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def prove(self, address: Address, on_proof: OnProof) -> None:
        """Call `on_proof` later, when it is proven that the process at `address` is gone. It is never called otherwise."""
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.append(on_proof)
            return
        self._waiting[address] = [on_proof]
        task = asyncio.get_running_loop().create_task(self._prove(address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop all probes."""
        self._waiting.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prove(self, address: Address) -> None:
        is_gone = False
        try:
            is_gone = await self._is_gone(address)
        finally:
            waiting = self._waiting.pop(address, [])
        if is_gone:
            now_ms = self._clock.monotonic_ms()
            self._proven_until_ms = {each: until_ms for each, until_ms in self._proven_until_ms.items() if now_ms < until_ms}
            self._proven_until_ms[address] = now_ms + PROOF_LIFE_MS
            for on_proof in waiting:
                on_proof()

    async def _is_gone(self, address: Address) -> bool:
        refusals = REFUSALS_NEEDED - 1 if self._clock.monotonic_ms() < self._proven_until_ms.get(address, 0) else 0
        for probe in range(PROBES_MAX):
            if probe:
                await pause(self._clock, PROBE_INTERVAL_MS)
            refusals = refusals + 1 if await self._is_refused(address) else 0
            if refusals == REFUSALS_NEEDED:
                return True
        return False

    async def _is_refused(self, address: Address) -> bool:
        try:
            transport, _ = await connect_within(PROBE_TIMEOUT_MS, self._clock, self._network, *address, asyncio.Protocol)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        transport.abort()
        return False
