"""What `AsyncBroker` and `AsyncCluster` share: each owns its twin that blocks, and calls it in a thread."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from ._in_thread import in_thread

if TYPE_CHECKING:
    from ._broker import Broker
    from ._cluster import Cluster

Owned = TypeVar("Owned", bound="Broker | Cluster")


class AsyncOwner(Generic[Owned]):
    """`owned` has the same methods under the same names."""

    def __init__(self, owned: Owned) -> None:
        self._owned = owned

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._owned).replace("<barnabas.", "<barnabas.Async", 1)

    async def start(self) -> Self:
        """See the twin's `start`. When cancelled, nothing is left running."""
        try:
            await self._in_thread(self._owned.start)
        except asyncio.CancelledError:
            await self._in_thread(self._owned.close)
            raise
        return self

    async def stop(self) -> None:
        await self._in_thread(self._owned.stop)

    async def kill(self) -> None:
        await self._in_thread(self._owned.kill)

    async def close(self) -> None:
        await self._in_thread(self._owned.close)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> None:
        create = functools.partial(self._owned.create_topic, name, partitions, replication_factor=replication_factor, config=config)
        await self._in_thread(functools.partial(create, exist_ok=exist_ok))

    async def client_config(self, user: str | None = None) -> dict[str, str]:
        """See the twin's `client_config`."""
        found: dict[str, str] = {}
        await self._in_thread(lambda: found.update(self._owned.client_config(user)))
        return found

    @property
    def ca_file(self) -> str:
        return self._owned.ca_file

    @property
    def bootstrap_servers(self) -> str:
        return self._owned.bootstrap_servers

    async def _in_thread(self, function: Callable[[], object]) -> None:
        await in_thread(function, self._owned.interrupt)
