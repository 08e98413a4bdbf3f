"""`barnabas.AsyncCluster`: `barnabas.Cluster` for asyncio. Calls that block run in a thread, so that the loop is free."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from ._async_broker import AsyncBroker
from ._broker import START_TIMEOUT_S
from ._cluster import LEADER_POLL_S, LEADER_TIMEOUT_S, Cluster, ClusterBroker, no_leader
from ._in_thread import in_thread


class AsyncCluster:
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
        self._cluster = Cluster(brokers, config, topics, secure=secure, start_timeout_s=start_timeout_s)
        self.brokers = [AsyncClusterBroker(broker) for broker in self._cluster.brokers]

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._cluster).replace("Cluster", "AsyncCluster", 1)

    async def start(self) -> Self:
        """See `Cluster.start`. When cancelled, nothing is left running."""
        try:
            await self._in_thread(self._cluster.start)
        except asyncio.CancelledError:
            await self._in_thread(self._cluster.close)
            raise
        return self

    async def stop(self) -> None:
        await self._in_thread(self._cluster.stop)

    async def kill(self) -> None:
        await self._in_thread(self._cluster.kill)

    async def close(self) -> None:
        await self._in_thread(self._cluster.close)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> None:
        create = functools.partial(self._cluster.create_topic, name, partitions, replication_factor=replication_factor, config=config)
        await self._in_thread(functools.partial(create, exist_ok=exist_ok))

    async def client_config(self, user: str | None = None) -> dict[str, str]:
        """See `Cluster.client_config`."""
        found: dict[str, str] = {}
        await self._in_thread(lambda: found.update(self._cluster.client_config(user)))
        return found

    async def leader(self, topic: str, partition: int = 0, *, timeout_s: float = LEADER_TIMEOUT_S) -> AsyncClusterBroker:
        """See `Cluster.leader`. When cancelled, the brokers go on."""
        find = functools.partial(self._cluster.find_leader, topic, partition)
        deadline = time.monotonic() + timeout_s
        while (found := await in_thread(find, lambda: None)) is None:
            if time.monotonic() >= deadline:
                raise no_leader(topic, partition, timeout_s)
            await asyncio.sleep(LEADER_POLL_S)
        return self.brokers[found.node_id - 1]

    @property
    def ca_file(self) -> str:
        return self._cluster.ca_file

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    async def _in_thread(self, function: Callable[[], object]) -> None:
        await in_thread(function, self._cluster.interrupt)


class AsyncClusterBroker(AsyncBroker):
    """One broker of an `AsyncCluster`."""

    def __init__(self, broker: ClusterBroker) -> None:
        self._broker = broker
        self.node_id = broker.node_id
