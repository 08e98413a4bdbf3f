"""`barnabas.AsyncCluster`: `barnabas.Cluster` for asyncio. Calls that block run in a thread, so that the loop is free."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable, Mapping

from ._async_broker import AsyncBroker
from ._async_owner import AsyncOwner
from ._broker import START_TIMEOUT_S
from ._cluster import LEADER_POLL_S, LEADER_TIMEOUT_S, Cluster, ClusterBroker, no_leader
from ._in_thread import in_thread


class AsyncCluster(AsyncOwner[Cluster]):
    """As `Cluster`, with `async with`; `start`, `stop`, `kill`, `close`, `create_topic`, `client_config` and `leader` are awaited.

    `brokers` are `AsyncBroker`s.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        secure: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(Cluster(brokers, config, topics, secure=secure, start_timeout_s=start_timeout_s))
        self.brokers = [AsyncClusterBroker(broker) for broker in self._owned.brokers]

    async def leader(self, topic: str, partition: int = 0, *, timeout_s: float = LEADER_TIMEOUT_S) -> AsyncClusterBroker:
        """See `Cluster.leader`. When cancelled, the brokers go on."""
        find = functools.partial(self._owned.find_leader, topic, partition)
        deadline = time.monotonic() + timeout_s
        while (found := await in_thread(find, lambda: None)) is None:
            if time.monotonic() >= deadline:
                raise no_leader(topic, partition, timeout_s)
            await asyncio.sleep(LEADER_POLL_S)
        return self.brokers[found.node_id - 1]


class AsyncClusterBroker(AsyncBroker):
    """One broker of an `AsyncCluster`."""

    def __init__(self, broker: ClusterBroker) -> None:
        AsyncOwner.__init__(self, broker)
        self.node_id = broker.node_id
