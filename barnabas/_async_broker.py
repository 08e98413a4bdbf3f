"""`barnabas.AsyncBroker`: `barnabas.Broker` for asyncio. Calls that block run in a thread, so that the loop is free."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from ._broker import START_TIMEOUT_S, Broker
from ._in_thread import in_thread


class AsyncBroker:
    """As `Broker`, with `async with`; `start`, `stop`, `kill`, `restart`, `close`, `create_topic` and `client_config` are awaited."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        secure: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._broker: Broker = Broker(config, topics, secure=secure, start_timeout_s=start_timeout_s)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._broker).replace("Broker", "AsyncBroker", 1)

    async def start(self) -> Self:
        """See `Broker.start`. When cancelled, nothing is left running."""
        try:
            await self._in_thread(self._broker.start)
        except asyncio.CancelledError:
            await self._in_thread(self._broker.close)
            raise
        return self

    async def stop(self) -> None:
        await self._in_thread(self._broker.stop)

    async def kill(self) -> None:
        await self._in_thread(self._broker.kill)

    async def restart(self) -> None:
        await self._in_thread(self._broker.restart)

    async def close(self) -> None:
        await self._in_thread(self._broker.close)

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> None:
        create = functools.partial(self._broker.create_topic, name, partitions, replication_factor=replication_factor, config=config)
        await self._in_thread(functools.partial(create, exist_ok=exist_ok))

    async def client_config(self, user: str | None = None) -> dict[str, str]:
        """See `Broker.client_config`."""
        found: dict[str, str] = {}
        await self._in_thread(lambda: found.update(self._broker.client_config(user)))
        return found

    @property
    def ca_file(self) -> str:
        return self._broker.ca_file

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def host(self) -> str:
        return self._broker.host

    @property
    def port(self) -> int:
        return self._broker.port

    @property
    def pid(self) -> int:
        return self._broker.pid

    @property
    def data_dir(self) -> str:
        return self._broker.data_dir

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    @property
    def log(self) -> str:
        return self._broker.log

    async def _in_thread(self, function: Callable[[], object]) -> None:
        await in_thread(function, self._broker.interrupt)
