"""A topic with unclean.leader.election.enable=true: what was acknowledged may be lost there, but replicas must not diverge.

Its clients keep a history of their own, of which nothing is checked against what they sent. What they read must be one log in each epoch:
two batches of one leader epoch at one offset are the same batch, whichever replica served it, and also in the replicas at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from protocol.records import iterate_headers
from tests.simulation.admin import Admin
from tests.simulation.clients import Client, Producer
from tests.simulation.cluster_watch import Batch
from tests.simulation.consumers import Consumer
from tests.simulation.history import History, Key
from tests.support.history_checker import Position

PARTITIONS_COUNT = 2
REPLICAS_COUNT = 2  # so that the quorum of three nodes outlives both
CONFIGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
PAUSE_S = 0.05
MAX_BYTES = 10_000


class UncleanTopic:
    """The topic of one run, its clients, and what they have found."""

    name = "unclean"

    def __init__(self) -> None:
        self.keys: list[Key] = [(self.name, partition) for partition in range(PARTITIONS_COUNT)]
        self._history = History(power_cuts_s=[math.inf])  # anything in it may be lost
        self._seen: dict[tuple[Key, int, int], Batch] = {}  # by partition, offset and epoch

    async def create(self, admin: Admin) -> None:
        await admin.create(self.name, PARTITIONS_COUNT, CONFIGS, replicas_count=REPLICAS_COUNT)

    def make_clients(self, make: Callable[..., Any]) -> list[Client]:
        """`make` is the world's."""
        clients = [
            make(Producer, "unclean-producer", keys=self.keys, acks=-1, depth=2, pause_s=PAUSE_S),
            make(UncleanConsumer, "unclean-consumer", keys=self.keys, max_bytes=MAX_BYTES, saw=self.saw),
        ]
        for client in clients:
            client.history = self._history
        return clients

    def saw(self, key: Key, batches: Iterable[Batch], where: str) -> None:
        """A consumer or, at the end, a replica has these."""
        for batch in batches:
            seen = self._seen.setdefault((key, batch.base_offset, batch.leader_epoch), batch)
            if seen != batch:
                self._history.find("diverging-reads", (key, where, seen, batch))

    @property
    def findings(self) -> dict[str, list[Any]]:
        return {anomaly: evidence for anomaly, evidence in self._history.findings.items() if evidence}


class UncleanConsumer(Consumer):
    """Reads on until its position is lost, and then from the beginning; `saw` is told of the committed batches that it is given."""

    def __init__(self, *arguments: Any, saw: Callable[[Key, Iterable[Batch], str], None], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._saw = saw

    def _read(self, key: Key, data: bytes, high_watermark: int, polled: dict[Key, list[Position]]) -> None:
        headers = (header for _, header in iterate_headers(data))
        batches = [Batch(each.base_offset, each.next_offset, each.partition_leader_epoch, each.crc) for each in headers]
        self._saw(key, batches, self.name)
        super()._read(key, data, high_watermark, polled)
