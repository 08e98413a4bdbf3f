"""Node: the objects that all parts of a running node share: its config, its platform, and the order of its stop.

server.py creates one and passes it to the parts that it builds: quorum_server.py and client_server.py.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from broker.descriptors import divide_descriptors
from broker.loop.cpu_time import CpuMeter
from broker.loop.turns import Turns
from broker.observability.metrics import Metrics
from broker.platform import Platform
from broker.security.quotas.quota_managers import QuotaManagers
from config.server import ServerConfig

log = logging.getLogger("barnabas.server")

WAIT_FOREVER_MS = 2**31
"""From here on server.max.startup.time.ms, which Kafka sets to the end of time, bounds nothing."""


class StartError(Exception):
    """The broker can't start; the message is one line for the operator."""


class Node:
    """See the module's docstring. `cluster_id` is set when the log directories are open."""

    def __init__(self, config: ServerConfig, platform: Platform) -> None:
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = ""
        self.platform = platform
        self.loop = platform.loop
        self.clock = platform.clock
        self.random = random.Random(int.from_bytes(platform.entropy(16)))
        self.descriptors = divide_descriptors(platform.descriptors_max)
        self.metrics = Metrics()
        self.quotas = QuotaManagers(
            window_ms=config.quota_window_size_seconds * 1000,
            windows_count=config.quota_window_num,
            controller_window_ms=config.controller_quota_window_size_seconds * 1000,
            controller_windows_count=config.controller_quota_window_num,
            inter_broker_listener=config.inter_broker_listener_name,
            cpu_meter=CpuMeter(self.clock.monotonic_ns, self.clock.cpu_ns),
        )
        self.turns = Turns(self.loop.call_soon, self.clock.monotonic_us)
        self.stop_reason = ""  # set when the node is asked to stop
        self._stopped: asyncio.Future[int] = self.loop.create_future()
        self._undo: list[Callable[[], Any]] = []

    def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run `function` in the thread pool."""
        return self.loop.run_in_executor(self.platform.executor, function, *arguments)

    def on_stop(self, undo: Callable[[], Any]) -> None:
        """Have `stop` call `undo`, which may return an awaitable. The last one registered is called first."""
        self._undo.append(undo)

    async def stop(self) -> None:
        """Undo the start, in the reverse order."""
        while self._undo:
            try:
                outcome = self._undo.pop()()
                if outcome is not None:
                    await outcome
            except Exception:
                log.exception("stopping went on after an error")

    def request_stop(self, exit_code: int, reason: str) -> None:
        """Let `wait_stopped` return. `reason`, a signal's name or a failure, is logged. Later calls do nothing."""
        if not self._stopped.done():
            self.stop_reason = reason
            self._stopped.set_result(exit_code)

    async def wait_stopped(self) -> int:
        """Returns the exit code when the node was asked to stop."""
        return await self._stopped

    async def wait_unless_stopped(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for other nodes. Raises StartError when it takes too long, or this node is asked to stop first."""
        timeout_ms = self.config.server_max_startup_time_ms
        task = self.loop.create_task(waiting)
        timeout_s = timeout_ms / 1000 if timeout_ms < WAIT_FOREVER_MS else None
        try:
            await asyncio.wait((task, self._stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StartError(f"stopped by {self.stop_reason}" if self._stopped.done() else "the start took too long")
            task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
