"""A simulated run whose producers and consumers are real aiokafka clients (tests/simulation/stock_clients.py).

What thin clients cannot show is shown here: that a stock client gets through kills, cuts and power cuts by its own retries, that its
idempotent producer is never told an error that it cannot handle, and that a group of its consumers misses no record.
"""

from __future__ import annotations

import logging
from typing import Any

from tests.simulation.clients import Client
from tests.simulation.loop import SimulatedLoop
from tests.simulation.stock_clients import StockConsumer, StockMember, StockProducer, machine_of_stock_clients
from tests.simulation.world import FLUSHED, World

GROUP = "stock"
PROFILES = ("crashes", "network", "power")


class StockWorld(World):
    """All of its topics are durable: what a power cut may take of the others is not for these clients to know."""

    OPTIONS = " --stock"
    COMPACTED_SHARE = CONSUMER_GROUP_SHARE = MIXED_GROUP_SHARE = 0.0

    def __init__(self, seed: int, *, keep_all: bool = False) -> None:
        super().__init__(seed, keep_all=keep_all)
        self._client_log = _ClientLog(self.loop)

    def _draw_profile(self) -> str:
        return self._draw.choice(PROFILES)

    def _draw_settings(self) -> dict[str, str]:
        settings = super()._draw_settings()
        self.history.are_commits_durable = True
        return {**settings, "log.flush.interval.messages": "1"}

    def _make_clients(self) -> list[Client]:
        draw, keys = self._draw, [key for key in self.keys if key[0] == FLUSHED]
        producers = [
            self._client(StockProducer, f"producer{index}", keys=keys, burst_max=draw.choice((1, 5)), pause_s=0.02)
            for index in range(draw.randint(1, 2))
        ]
        members = [self._client(StockMember, f"member{index}", group=GROUP, keys=keys) for index in range(draw.randint(1, 3))]
        return [*producers, self._client(StockConsumer, "consumer", keys=keys), *members]

    def _run(self) -> dict[str, list[Any]]:
        logger = logging.getLogger("aiokafka")
        propagates = logger.propagate
        logger.addHandler(self._client_log)
        logger.propagate = False
        try:
            with machine_of_stock_clients(self.loop, self.network, self._stream("aiokafka")):
                findings = super()._run()
        finally:
            logger.removeHandler(self._client_log)
            logger.propagate = propagates
        if "stuck" not in findings:
            self._check_that_members_read_all(findings)
        return findings

    def _check_that_members_read_all(self, findings: dict[str, list[Any]]) -> None:
        read = {
            (key, value)
            for operation in self.history.operations
            if operation["p"].startswith("member")
            for _, polled in operation["m"]
            for key, positions in polled.items()
            for _, value in positions
        }
        sent = [
            (step[1], step[3])
            for operation in self.history.operations
            if operation["f"] == "send" and operation["t"] == "ok"
            for step in operation["m"]
        ]
        unread = [each for each in sent if each not in read]
        if unread:
            findings["not-consumed"] = unread


class _ClientLog(logging.Handler):
    """Puts what the clients log into the trace."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.note("aiokafka", f"{record.levelname} {record.getMessage()}")
