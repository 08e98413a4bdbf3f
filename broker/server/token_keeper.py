"""TokenKeeper: keeps the token by which this node logs in to others by OAUTHBEARER, fetched off the loop.

It is fetched at the start, and anew before it ends, as sasl.login.refresh.… say; a session ends with its token, and the login that comes
before that takes the newest. Where a fetch fails the earlier token counts, and it is tried again: with a growing pause until
sasl.login.retry.backoff.max.ms are over, and then every ten seconds.

Source: OAuthBearerRefreshingLogin, ExpiringCredentialRefreshingLogin, Retry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock, Timer, pause
from broker.security.sasl.access_token import RETRY_MS, AccessToken, refresh_time_ms
from protocol.sasl.exchange import SaslError
from protocol.sasl.oauthbearer_client import OAuthBearerClient

if TYPE_CHECKING:
    from broker.server.oauthbearer_login import Provider

log = logging.getLogger("barnabas.security")


class TokenKeeper:
    """Of one listener of the other nodes. `random` returns a number from 0 to 1."""

    def __init__(self, provider: Provider, clock: Clock, run_blocking: RunBlocking, random: Callable[[], float]) -> None:
        self._provider = provider
        self._clock = clock
        self._run_blocking = run_blocking
        self._random = random
        self._timer: Timer | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._token: AccessToken | None = None
        self._why = "none has been fetched yet"

    def start(self) -> None:
        """Fetch the first token, which blocks. Raises FetchError if another try would have the same end; otherwise it is tried again."""
        from broker.server.oauthbearer_login import FetchError

        try:
            self._use(self._provider.fetch())
        except FetchError as e:
            if e.is_final:
                raise
            log.warning("there is no token of OAUTHBEARER yet to log in to other nodes: %s", e)
            self._why = str(e)
            self._refresh_after(self._provider.retry_backoff_ms)

    def start_login(self) -> OAuthBearerClient:
        return OAuthBearerClient(self._find, self._provider.extensions)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _find(self) -> str:
        """Called in a thread: the token is replaced whole."""
        token = self._token
        if token is None:
            raise SaslError(f"there is no token: {self._why}")
        return token.text

    def _use(self, token: AccessToken) -> None:
        self._token = token
        now_ms = self._clock.now_ms()
        self._refresh_after(refresh_time_ms(token, self._provider.refresh, now_ms, self._random()) - now_ms)

    def _refresh_after(self, delay_ms: int) -> None:
        self._timer = self._clock.call_later(max(delay_ms, 0), self._refresh)

    def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._fetch_until_it_works())

    async def _fetch_until_it_works(self) -> None:
        from broker.server.oauthbearer_login import FetchError

        end_ms = self._clock.monotonic_ms() + self._provider.retry_backoff_max_ms
        pause_ms = self._provider.retry_backoff_ms
        while True:
            try:
                self._use(await self._run_blocking(self._provider.fetch))
                return
            except FetchError as e:
                self._why = str(e)
                left_ms = end_ms - self._clock.monotonic_ms()
                if e.is_final or left_ms <= 0:
                    log.warning("the token of OAUTHBEARER could not be fetched, the earlier one counts while it holds: %s", e)
                    self._refresh_after(RETRY_MS)
                    return
            await pause(self._clock, min(pause_ms, left_ms))
            pause_ms = max(1, pause_ms * 2)
