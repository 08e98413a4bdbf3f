"""`barnabas.AsyncBroker`: `barnabas.Broker` for asyncio. Calls that block run in a thread, so that the loop is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ._async_owner import AsyncOwner
from ._broker import START_TIMEOUT_S, Broker


class AsyncBroker(AsyncOwner[Broker]):
    """As `Broker`, with `async with`; `start`, `stop`, `kill`, `restart`, `close`, `create_topic` and `client_config` are awaited."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        secure: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(Broker(config, topics, secure=secure, start_timeout_s=start_timeout_s))

    async def restart(self) -> None:
        await self._in_thread(self._owned.restart)

    @property
    def host(self) -> str:
        return self._owned.host

    @property
    def port(self) -> int:
        return self._owned.port

    @property
    def pid(self) -> int:
        return self._owned.pid

    @property
    def data_dir(self) -> str:
        return self._owned.data_dir

    @property
    def is_running(self) -> bool:
        return self._owned.is_running

    @property
    def log(self) -> str:
        return self._owned.log
